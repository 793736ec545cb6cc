package aggregation

import (
	"cmp"
	"context"
	"crypto/tls"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/core/call"
	"stele.dev/stele/core/catalog/discovery"
	"stele.dev/stele/core/catalog/openapi"
	"stele.dev/stele/core/commit"
	"stele.dev/stele/limits/fair"
	"stele.dev/stele/policy"
)

// Law tells which policy is in force, as a committer does.
type Law interface {
	Tip() *commit.Tip
	PolicyChanged() <-chan struct{}
}

// Options are the options of [New].
type Options struct {
	// Law has the policy in force.
	Law Law
	// Certificate returns the client certificate that other servers are shown; nil for none. It is not called before a policy names a
	// server.
	Certificate func() (*tls.Certificate, error)
	Logger      *slog.Logger // may be nil
}

// Servers are the servers that the policy in force names. It is safe for concurrent use.
type Servers struct {
	options Options
	metrics *metrics
	current atomic.Pointer[generation]
	// version counts the changes of what discovery and OpenAPI say of the servers.
	version atomic.Uint64
	// asking limits the open requests that are authorized again at a time, after a change of policy.
	asking   *fair.Semaphore[string]
	draining chan struct{}
	drain    sync.Once

	mu      sync.Mutex      // held to change current
	running context.Context // of the checks; nil before Run
	checks  sync.WaitGroup
}

// generation is the servers of one policy. It is immutable.
type generation struct {
	policy   *policy.Policy
	servers  []*server
	replaced chan struct{} // closed when there is a newer one
}

// New returns the servers of the policy in force. They are not looked at before Run.
func New(o Options) *Servers {
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	s := &Servers{options: o, metrics: newMetrics(), asking: fair.New[string](16, 0), draining: make(chan struct{})}
	s.current.Store(&generation{replaced: make(chan struct{})})
	return s
}

// Run follows the policy in force, and looks whether its servers are available, until the context ends.
func (s *Servers) Run(ctx context.Context) error {
	s.mu.Lock()
	s.running = ctx
	for _, x := range s.current.Load().servers {
		s.check(x)
	}
	s.mu.Unlock()
	for {
		changed := s.options.Law.PolicyChanged()
		s.adopt()
		select {
		case <-changed:
		case <-ctx.Done():
			s.checks.Wait()
			for _, x := range s.current.Load().servers {
				x.transports.close()
			}
			return ctx.Err()
		}
	}
}

// Drain ends the open watches and the upgraded connections. Other requests are passed on as before.
func (s *Servers) Drain() { s.drain.Do(func() { close(s.draining) }) }

// adopt makes the servers of the policy in force the current ones. A server that both policies name in the same way stays, with its
// connections and documents.
func (s *Servers) adopt() *generation {
	tip := s.options.Law.Tip()
	if now := s.current.Load(); tip == nil || tip.Policy == now.policy {
		return now
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.current.Load()
	p := s.options.Law.Tip().Policy
	if p == now.policy {
		return now
	}
	next := &generation{policy: p, replaced: make(chan struct{})}
	if p != nil {
		list := p.Aggregates()
		for i := range list {
			next.servers = append(next.servers, s.serverOf(&list[i], now))
		}
	}
	s.current.Store(next)
	for _, x := range now.servers {
		if !slices.Contains(next.servers, x) {
			x.stop()
		}
	}
	s.version.Add(1)
	close(now.replaced)
	return next
}

// serverOf returns the server of an aggregate: one of a generation, or a new one. The caller holds mu.
func (s *Servers) serverOf(a *policy.Aggregate, now *generation) *server {
	if i := slices.IndexFunc(now.servers, func(x *server) bool { return x.aggregate.Same(a) }); i >= 0 {
		return now.servers[i]
	}
	x := newServer(s, a)
	if s.running != nil {
		s.check(x)
	}
	return x
}

// check starts to look whether a server is available. The caller holds mu.
func (s *Servers) check(x *server) {
	ctx, cancel := context.WithCancel(s.running)
	x.cancel = cancel
	s.checks.Go(func() { x.look(ctx) })
}

// find returns the server of an aggregate; nil if the policy in force has no such server any more.
func (s *Servers) find(a *policy.Aggregate) (*server, *generation) {
	g := s.adopt()
	for _, x := range g.servers {
		if x.aggregate == a || x.aggregate.Same(a) {
			return x, g
		}
	}
	return nil, g
}

// Version returns a number that changes with what [Servers.Documents] returns.
func (s *Servers) Version() uint64 {
	s.adopt()
	return s.version.Load()
}

// Documents returns what discovery and OpenAPI show of the servers of a policy. Nothing waits for a server.
func (s *Servers) Documents(p *policy.Policy) (groups []discovery.Remote, documents []openapi.Other) {
	for _, st := range s.Statuses(p) {
		groups = append(groups, discovery.Remote{
			Group: st.Aggregate.Group, Version: st.Version, Priority: st.Aggregate.GroupPriority, Resources: st.resources, Known: st.known, Stale: !st.Available,
		})
		if st.openAPI != nil {
			documents = append(documents, openapi.Other{Path: "apis/" + st.Aggregate.Group + "/" + st.Version, Document: st.openAPI})
		}
	}
	return groups, documents
}

// Status is what is known of one version of a group that another server answers.
type Status struct {
	Aggregate *policy.Aggregate
	Version   string
	Availability
	documents
}

// Statuses returns what is known of the servers of a policy, by group and version.
func (s *Servers) Statuses(p *policy.Policy) (list []Status) {
	aggregates := p.Aggregates()
	for i := range aggregates {
		a := &aggregates[i]
		x, _ := s.find(a)
		for _, v := range a.Versions {
			st := Status{Aggregate: a, Version: v, Availability: unknown}
			if x != nil {
				if at := x.state(v); at != nil {
					st.Availability, st.documents = at.Availability, at.documents
				}
			}
			list = append(list, st)
		}
	}
	slices.SortStableFunc(list, func(a, b Status) int { return strings.Compare(a.Aggregate.Group, b.Aggregate.Group) })
	return list
}

// Lists reports whether the server of an aggregate lists a resource in discovery, as far as that is known. s may be nil.
func (s *Servers) Lists(a *policy.Aggregate, version, resource, subresource string) bool {
	if s == nil {
		return false
	}
	x, _ := s.find(a)
	if x == nil {
		return false
	}
	st := x.state(version)
	if st == nil {
		return false
	}
	i := slices.IndexFunc(st.resources, func(r discovery.Resource) bool { return r.Name == resource })
	if i < 0 || subresource == "" {
		return i >= 0
	}
	return slices.ContainsFunc(st.resources[i].Subresources, func(r metav1.APIResource) bool { return r.Name == resource+"/"+subresource })
}

// Describe says in words whether the server of an aggregate is available for a version.
func (s *Servers) Describe(a *policy.Aggregate, version string) string {
	st := (*state)(nil)
	if x, _ := s.find(a); x != nil {
		st = x.state(version)
	}
	switch {
	case st == nil:
		return unknown.Message
	case st.Available:
		return "it is available since " + st.Since.UTC().Format(time.RFC3339)
	}
	return "it is not available since " + st.Since.UTC().Format(time.RFC3339)
}

// NoDocument returns the error of a call for the discovery document of a version that another server answers and has not told yet (503); nil
// for other paths.
func (s *Servers) NoDocument(c *call.Call) error {
	parts := strings.Split(strings.Trim(c.HTTP.URL.Path, "/"), "/")
	if len(parts) != 3 || parts[0] != "apis" || c.Tip == nil || c.Tip.Policy == nil {
		return nil
	}
	a := c.Tip.Policy.Aggregate(schema.GroupVersion{Group: parts[1], Version: parts[2]})
	if a == nil {
		return nil
	}
	return unavailable(c, a, s.Describe(a, parts[2])+", so that its resources are not known", 1)
}
