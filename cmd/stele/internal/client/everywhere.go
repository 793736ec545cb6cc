package client

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"time"

	"k8s.io/client-go/rest"
	"stele.dev/stele/core/auth/pki"
	"stele.dev/stele/core/resources/decisionsapi"
	"stele.dev/stele/core/resources/replicas"
)

// DecisionsEverywhere is a client of the decisions of all servers of a log: each has a decision log of its own. Writes are asked of
// one server, because all of them have all writes. It is for one goroutine.
type DecisionsEverywhere struct {
	*Decisions                 // of the server that answers
	config     *rest.Config    // nil if the other servers cannot be listed
	known      map[string]bool // the names of all servers
	others     []otherServer   // the other servers, as far as they can be asked
	warn       func(text string)
	warned     map[string]bool
}

// otherServer is another server of the log.
type otherServer struct {
	*Decisions
	name string
	key  string // the fingerprint of the server's key
}

// askWithin bounds how long the list of servers takes, and the first answer of another server.
const askWithin = 10 * time.Second

// NewDecisionsEverywhere returns a client of the decisions of the server of a config, and of the other servers of its log. What cannot be
// asked is said to warn. Without the permission to list replicas only the first server is asked, and says so itself.
func NewDecisionsEverywhere(ctx context.Context, config *rest.Config, warn func(text string)) (*DecisionsEverywhere, error) {
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	e := &DecisionsEverywhere{warn: warn, warned: map[string]bool{}}
	all := rest.CopyConfig(config)
	all.WarningHandler = withoutOthers{config.WarningHandler}
	if e.find(ctx, all) == nil {
		e.config, config = all, all
	}
	var err error
	e.Decisions, err = NewDecisions(config)
	return e, err
}

// find finds the other servers of a log.
func (e *DecisionsEverywhere) find(ctx context.Context, config *rest.Config) error {
	all, err := Replicas(ctx, config)
	if err != nil {
		return err
	}
	runs := map[string]bool{}
	e.known = map[string]bool{}
	var authority []byte
	for i := range all {
		e.known[replicaName(&all[i])] = true
		x := &all[i].Status
		if x.Live {
			runs[x.Address] = true
		}
		if x.Self {
			authority = x.CABundle
		}
	}
	for i := range all {
		if x := &all[i]; x.Status.Live || !runs[x.Status.Address] { // a server that has started again has another name
			e.add(config, authority, x)
		}
	}
	return nil
}

// add adds a server, if it is another one. Credentials go to its address only if the server there has the key that the replica
// says, certified by the authority of the server that the user has chosen. An address comes from an object, and what else the
// kubeconfig trusts may be the authorities of the whole world.
func (e *DecisionsEverywhere) add(config *rest.Config, authority []byte, x *replicas.ReplicaObject) {
	if x.Status.Self {
		return
	}
	name := replicaName(x)
	switch {
	case x.Status.Address == "":
		e.missing(name, "it has no address")
		return
	case !x.Status.Live:
		e.missing(name, "it does not run")
		return
	case len(authority) == 0:
		e.missing(name, "the server does not say which authority certifies the addresses of replicas, so no credentials are sent there")
		return
	case x.Status.Keys.Server == "":
		e.missing(name, "it does not say which key its server has, so no credentials are sent there; upgrade it if it is of a former version")
		return
	}
	its := rest.CopyConfig(config)
	its.Host = "https://" + x.Status.Address
	its.Insecure, its.ServerName, its.CAFile, its.CAData = false, pki.OwnName, "", authority
	its.WarningHandler = named{config.WarningHandler, name}
	its, err := pinned(its, x.Status.Keys.Server)
	if err != nil {
		e.missing(name, err.Error())
		return
	}
	c, err := NewDecisions(its)
	if err != nil {
		e.missing(name, err.Error())
		return
	}
	e.others = append(e.others, otherServer{c, name, x.Status.Keys.Server})
}

// replicaName names a server for messages.
func replicaName(x *replicas.ReplicaObject) string {
	if x.Status.Address == "" {
		return x.Name
	}
	return x.Name + " (" + x.Status.Address + ")"
}

// missing says once that the decisions of a server are missing.
func (e *DecisionsEverywhere) missing(name, why string) {
	if !e.warned[name] {
		e.warned[name] = true
		e.warn(fmt.Sprintf("decisions of replica %s are missing: %s", name, why))
	}
}

// withoutOthers drops the warning that other servers have to be asked.
type withoutOthers struct{ rest.WarningHandler }

// HandleWarningHeader implements rest.WarningHandler.
func (w withoutOthers) HandleWarningHeader(code int, agent, text string) {
	if w.WarningHandler != nil && !strings.HasPrefix(text, decisionsapi.AskOthers) {
		w.WarningHandler.HandleWarningHeader(code, agent, text)
	}
}

// named adds the name of a server to its warnings.
type named struct {
	rest.WarningHandler
	name string
}

// HandleWarningHeader implements rest.WarningHandler.
func (n named) HandleWarningHeader(code int, agent, text string) {
	if n.WarningHandler != nil && !strings.HasPrefix(text, decisionsapi.AskOthers) {
		n.WarningHandler.HandleWarningHeader(code, agent, "replica "+n.name+": "+text)
	}
}

// Versions are the resource versions of lists, by the number of the server; "" for one that has not answered.
type Versions []string

// List calls each with decisions of all servers, the newest first, and returns the resource versions of their lists.
func (e *DecisionsEverywhere) List(ctx context.Context, q DecisionsQuery, each func([]*Decision) error) (Versions, error) {
	ordered := newestFirst{each: each}
	versions, err := e.list(ctx, q, ordered.add)
	if err == nil {
		err = ordered.end()
	}
	return versions, err
}

// list lists decisions as the servers order them.
func (e *DecisionsEverywhere) list(ctx context.Context, q DecisionsQuery, each func([]*Decision) error) (Versions, error) {
	versions := make(Versions, 1+len(e.others))
	if len(e.others) == 0 || q.Fields["type"] == decisionsapi.TypeWrite {
		version, err := e.Decisions.List(ctx, q, each)
		versions[0] = version
		return versions, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	sources := []*pulled{e.Decisions.pull(ctx, q, &versions[0])}
	q.NoWrites = true
	for i := range e.others {
		sources = append(sources, e.others[i].pull(ctx, q, &versions[i+1]))
	}
	defer func() {
		for _, s := range sources {
			s.stop()
		}
	}()
	for i, s := range sources {
		if s.advance(); s.err != nil && i > 0 {
			e.missing(e.others[i-1].name, s.err.Error())
		}
	}
	const pageSize = 500
	var page []*Decision
	for n := 0; q.Limit == 0 || n < q.Limit; n++ {
		if sources[0].err != nil {
			return versions, sources[0].err
		}
		newest := newestOf(sources)
		if newest < 0 {
			break
		}
		s := sources[newest]
		page = append(page, s.next)
		if s.advance(); s.err != nil && newest > 0 {
			e.missing(e.others[newest-1].name, s.err.Error())
		}
		if len(page) == pageSize {
			if err := each(page); err != nil {
				return versions, err
			}
			page = nil
		}
	}
	return versions, each(page)
}

// newestOf returns the source with the newest decision; -1 if none has any. Of decisions of one time the first source comes first.
func newestOf(sources []*pulled) int {
	newest := -1
	for i, s := range sources {
		if s.next != nil && (newest < 0 || s.at.After(sources[newest].at)) {
			newest = i
		}
	}
	return newest
}

// pulled are the decisions of a list, one after the other.
type pulled struct {
	pull func() (*Decision, error, bool)
	stop func()

	next *Decision // nil at the end, and after an error
	at   time.Time
	err  error
}

// pull lists decisions, and sets the resource version when the first page is there.
func (c *Decisions) pull(ctx context.Context, q DecisionsQuery, version *string) *pulled {
	s := &pulled{}
	s.pull, s.stop = iter.Pull2(func(yield func(*Decision, error) bool) {
		at, err := c.List(ctx, q, func(page []*Decision) error {
			for _, d := range page {
				if !yield(d, nil) {
					return context.Canceled
				}
			}
			return nil
		})
		if *version = at; err != nil && !isCanceled(ctx, err) {
			yield(nil, err)
		}
	})
	return s
}

func isCanceled(ctx context.Context, err error) bool {
	return err == context.Canceled || ctx.Err() != nil
}

func (s *pulled) advance() {
	d, err, ok := s.pull()
	if s.next, s.err = d, err; !ok || err != nil {
		s.next = nil
		return
	}
	s.at, s.err = time.Parse(time.RFC3339Nano, d.Time)
}

// Get returns the newest decision of the first request with an audit ID of the server that answers, or of another one.
func (e *DecisionsEverywhere) Get(ctx context.Context, auditID string) (*Decision, error) {
	d, err := e.Decisions.Get(ctx, auditID)
	for i := 0; i < len(e.others) && err != nil; i++ {
		if found, otherErr := e.others[i].Get(ctx, auditID); otherErr == nil {
			return found, nil
		}
	}
	return d, err
}
