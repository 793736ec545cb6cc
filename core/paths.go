package core

import (
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	"stele.dev/stele/core/discovery"
	"stele.dev/stele/core/negotiate"
	"stele.dev/stele/core/openapi"
	"stele.dev/stele/core/status"
	"stele.dev/stele/core/table"
	"stele.dev/stele/core/tokens"
	"stele.dev/stele/policy"
)

// answerPath answers what is not about resources.
func (p *Pipeline) answerPath(r *Request) error {
	if m := r.http.Method; m != http.MethodGet && m != http.MethodHead {
		return methodNotAllowed(m)
	}
	path := r.http.URL.Path
	switch {
	case path == "/healthz" || path == "/livez" || path == "/readyz":
		return p.answerHealth(r, path, "")
	case strings.HasPrefix(path, "/healthz/"), strings.HasPrefix(path, "/livez/"), strings.HasPrefix(path, "/readyz/"):
		kind, name, _ := strings.Cut(path[1:], "/")
		return p.answerHealth(r, "/"+kind, name)
	case path == "/version" || path == "/version/":
		return p.answerRaw(r, http.StatusOK, p.version)
	case path == "/metrics" && r.moment == nil: // which are of this process
		r.sent = true
		p.metrics.handler.ServeHTTP(r.w, r.http)
		return nil
	case path == "/openapi/v2" || path == "/openapi/v3" || strings.HasPrefix(path, "/openapi/v3/"):
		r.sent = true
		var w http.ResponseWriter = r.w
		if r.past != nil {
			w = below{r.w, atPrefix + "/" + strconv.FormatUint(r.past.Revision(), 10)}
		}
		p.surfaceOf(r).openapi.ServeHTTP(w, r.http)
		return nil
	case path == "/" || path == "":
		return p.answerRaw(r, http.StatusOK, map[string][]string{"paths": p.servedPaths(r)})
	}
	if found, err := p.answerIssuer(r); found {
		return err
	}
	return p.answerDiscovery(r)
}

// servedPaths are all paths but those of resources.
func (p *Pipeline) servedPaths(r *Request) []string {
	paths := append(p.surfaceOf(r).discovery.Paths(), "/openapi/v2", "/openapi/v3", "/version")
	for _, kind := range []string{"/healthz", "/livez", "/readyz"} {
		paths = append(paths, kind)
		for _, c := range p.allChecks() {
			if kind == "/readyz" || c.Live {
				paths = append(paths, kind+"/"+c.Name)
			}
		}
	}
	if p.issuerKnown(r) {
		paths = append(paths, tokens.ConfigurationPath, tokens.KeySetPath)
	}
	if r.moment == nil {
		paths = append(paths, "/metrics")
	}
	slices.Sort(paths)
	return paths
}

// localAddress is where the connection of the request ends, "" if there is none.
func (r *Request) localAddress() string {
	if address, ok := r.http.Context().Value(http.LocalAddrContextKey).(net.Addr); ok {
		return address.String()
	}
	return ""
}

func (p *Pipeline) answerDiscovery(r *Request) error {
	path := r.http.URL.Path
	f, aggregated, err := negotiate.Discovery(r.http, discovery.Aggregates(path))
	if err != nil {
		return err
	}
	var doc *discovery.Document
	if strings.Trim(path, "/") == "api" && !aggregated {
		doc = discovery.Core(r.localAddress())
	} else {
		doc = p.surfaceOf(r).discovery.Find(path, aggregated)
	}
	if doc == nil {
		return status.NotServed(r.info.Verb, r.resource())
	}
	h := r.w.Header()
	h.Set("Vary", "Accept, Accept-Encoding")
	h.Set("ETag", doc.ETag)
	if doc.Fresh(r.http) {
		r.sent = true
		r.w.WriteHeader(http.StatusNotModified)
		return nil
	}
	if compressed := doc.Compressed(); compressed != nil && f.MediaType == negotiate.JSON && !f.Pretty && negotiate.Gzip(r.http) {
		h.Set("Content-Encoding", "gzip")
		p.writeHeader(r, f.ContentType())
		h.Set("Content-Length", strconv.Itoa(len(compressed)))
		r.w.WriteHeader(http.StatusOK)
		r.sent = true
		if r.http.Method != http.MethodHead {
			_, _ = r.w.Write(compressed) // who is gone needs no answer
		}
		return nil
	}
	return p.writeBody(r, f, http.StatusOK, doc.Body)
}

// surface is what can be derived of a policy once and shown to many. It is made when
// it is first asked for.
type surface struct {
	policy    *policy.Policy
	discovery *discovery.Documents
	openapi   *openapi.Service
	printers  sync.Map // *policy.Version -> *table.Printer
}

// surfaceOf returns the surface of the policy that the request sees.
func (p *Pipeline) surfaceOf(r *Request) *surface {
	of := r.world().Policy
	if s := p.surface.Load(); s != nil && s.policy == of {
		return s
	}
	p.surfaceMu.Lock()
	defer p.surfaceMu.Unlock()
	before := p.surface.Load()
	if before != nil && before.policy == of {
		return before
	}
	if of != r.tip.Policy {
		return p.surfaceThen(of)
	}
	var documents *openapi.Service
	if before != nil {
		documents = before.openapi
	}
	s := p.newSurface(of, documents)
	p.surface.Store(s)
	return s
}

// newSurface makes the surface of a policy. It takes documents over from before.
func (p *Pipeline) newSurface(of *policy.Policy, before *openapi.Service) *surface {
	return &surface{
		policy:    of,
		discovery: discovery.New(slices.Concat(p.ofPolicy(of), discoverVirtuals())),
		openapi:   openapi.New(of, p.version.GitVersion, before, slices.Concat(describeVirtuals(), p.tokenRequests())...),
	}
}

func (p *Pipeline) printer(r *Request) *table.Printer {
	s := p.surfaceOf(r)
	seen := r.seen()
	if printer, ok := s.printers.Load(seen); ok {
		return printer.(*table.Printer)
	}
	printer, _ := s.printers.LoadOrStore(seen, table.New(seen))
	return printer.(*table.Printer)
}

// answerHealth answers as kube-apiserver does: "ok", or which check failed; the list of
// checks if ?verbose is given. Why one failed is said under its own path, which a policy grants, and not where
// nobody in particular may ask: the error may be that of a plugin, with whatever it says.
func (p *Pipeline) answerHealth(r *Request, kind, only string) error {
	checks := p.allChecks()
	excluded := r.http.URL.Query()["exclude"]
	var text strings.Builder
	var failed []string
	found := false
	for _, c := range checks {
		if only != "" && c.Name != only || kind != "/readyz" && !c.Live {
			continue
		}
		found = true
		if slices.Contains(excluded, c.Name) {
			fmt.Fprintf(&text, "[+]%s excluded: ok\n", c.Name)
		} else if err := c.Check(); err != nil {
			failed = append(failed, fmt.Sprintf("%s: %v", c.Name, err))
			reason := "reason withheld"
			if only != "" {
				reason = err.Error()
			}
			fmt.Fprintf(&text, "[-]%s failed: %s\n", c.Name, reason)
		} else if c.Name == "policy" && r.tip.Policy != nil {
			fmt.Fprintf(&text, "[+]policy ok: %s is in force since revision %d\n", r.tip.Policy.DigestString(), r.tip.PolicyRevision())
		} else {
			fmt.Fprintf(&text, "[+]%s ok\n", c.Name)
		}
	}
	if !found {
		return status.NotServed("get", r.resource())
	}
	h := r.w.Header()
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("X-Content-Type-Options", "nosniff")
	r.sent = true
	name := kind[1:]
	if len(failed) > 0 {
		p.logger.Warn(name+" check failed", "checks", failed)
		r.w.WriteHeader(http.StatusInternalServerError)
		fmt.Fprintf(r.w, "%s%s check failed\n", text.String(), name)
		return nil
	}
	if _, verbose := r.http.URL.Query()["verbose"]; verbose {
		fmt.Fprintf(r.w, "%s%s check passed\n", text.String(), name)
		return nil
	}
	fmt.Fprint(r.w, "ok")
	return nil
}

// allChecks are those of the health paths, in their order.
func (p *Pipeline) allChecks() []Check {
	return slices.Concat([]Check{{Name: "ping", Live: true, Check: func() error { return nil }}}, p.ownChecks(), p.checks)
}

func (p *Pipeline) ownChecks() []Check {
	return []Check{
		{Name: "policy", Check: func() error {
			if p.committer.Tip().Policy == nil {
				return fmt.Errorf("no policy is in force")
			}
			return nil
		}},
		{Name: "log", Check: func() error {
			if d := p.committer.Unconfirmed(); d > maxUnconfirmed {
				return fmt.Errorf("not heard from for %s", d.Round(1e9))
			}
			return nil
		}},
		{Name: "shutdown", Check: func() error {
			if p.notReady.Load() {
				return fmt.Errorf("the server is about to stop")
			}
			return nil
		}},
	}
}
