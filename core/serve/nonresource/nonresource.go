// Package nonresource answers requests that are not about a resource: discovery, OpenAPI, health, version, metrics, and
// the keys that verify tokens. Documents that depend on the policy are made once for each policy. They list the
// virtual resources beside the policy's kinds.
package nonresource

import (
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/version"
	"stele.dev/stele/core/auth/tokens"
	"stele.dev/stele/core/call"
	"stele.dev/stele/core/call/negotiate"
	"stele.dev/stele/core/catalog"
	"stele.dev/stele/core/catalog/discovery"
	"stele.dev/stele/core/catalog/openapi"
	"stele.dev/stele/core/commit"
	"stele.dev/stele/core/object/table"
	"stele.dev/stele/core/status"
	"stele.dev/stele/policy"
)

// Options for [New].
type Options struct {
	Table     *catalog.Table
	Committer *commit.Committer
	// Tokens issues tokens of service accounts; nil if none are issued.
	Tokens  *tokens.ServiceAccounts
	Version version.Info
	// Metrics is the handler of /metrics.
	Metrics http.Handler
	// Checks are further health checks.
	Checks []Check
	// Routes are further paths.
	Routes []Route
	Logger *slog.Logger
	// LogLevel is the lowest level that Logger logs; nil if clients cannot change it.
	LogLevel *slog.LevelVar
}

// Service answers requests for paths that are not resources. It is safe for concurrent use.
type Service struct {
	Options
	notReady atomic.Bool
	failures failures
	slis     http.Handler
	current  atomic.Pointer[documents] // of the newest policy for which documents were requested

	mu   sync.Mutex   // held to make documents
	past []*documents // of policies not in force, most recently used first; guarded by mu
}

// New returns a service.
func New(o Options) *Service { return &Service{Options: o, slis: newSLIs()} }

// NotReady makes /readyz fail from now on.
func (s *Service) NotReady() { s.notReady.Store(true) }

// Answer answers a call that is not about a resource.
func (s *Service) Answer(c *call.Call) error {
	if c.HTTP.Method == http.MethodPut && c.HTTP.URL.Path == levelPath && s.LogLevel != nil && c.Past.Moment == nil {
		return s.setLevel(c)
	}
	if m := c.HTTP.Method; m != http.MethodGet && m != http.MethodHead {
		return status.MethodNotAllowed(m)
	}
	path := c.HTTP.URL.Path
	switch {
	case path == "/healthz" || path == "/livez" || path == "/readyz":
		return s.answerHealth(c, path, "")
	case strings.HasPrefix(path, "/healthz/"), strings.HasPrefix(path, "/livez/"), strings.HasPrefix(path, "/readyz/"):
		kind, name, _ := strings.Cut(path[1:], "/")
		return s.answerHealth(c, "/"+kind, name)
	case path == "/version" || path == "/version/":
		return c.WriteRaw(http.StatusOK, s.Version)
	case path == "/metrics" && c.Past.Moment == nil: // metrics have no past
		c.Sent = true
		s.Metrics.ServeHTTP(c.W, c.HTTP)
		return nil
	case path == "/metrics/slis" && c.Past.Moment == nil:
		c.Sent = true
		s.slis.ServeHTTP(c.W, c.HTTP)
		return nil
	case path == "/openapi/v2" || path == "/openapi/v3" || strings.HasPrefix(path, "/openapi/v3/"):
		c.Sent = true
		var w http.ResponseWriter = c.W
		if c.Past.Tip != nil {
			w = redirectsBelow{c.W, call.AtPrefix + "/" + strconv.FormatUint(c.Past.Tip.Revision(), 10)}
		}
		s.documentsOf(c).openapi.ServeHTTP(w, c.HTTP)
		return nil
	case path == "/" || path == "":
		return c.WriteRaw(http.StatusOK, map[string][]string{"paths": s.paths(c)})
	}
	if found, err := s.answerIssuer(c); found {
		return err
	}
	if r := s.Route(path); r != nil && c.Past.Moment == nil {
		return r.serve(c)
	}
	return s.answerDiscovery(c)
}

// paths returns all served paths that are not resources.
func (s *Service) paths(c *call.Call) []string {
	paths := append(s.documentsOf(c).discovery.Paths(), "/openapi/v2", "/openapi/v3", "/version")
	for _, kind := range []string{"/healthz", "/livez", "/readyz"} {
		paths = append(paths, kind)
		for _, check := range s.checks() {
			if kind == "/readyz" || check.Live {
				paths = append(paths, kind+"/"+check.Name)
			}
		}
	}
	if s.issues(c) {
		paths = append(paths, tokens.ConfigurationPath, tokens.KeySetPath)
	}
	if c.Past.Moment == nil {
		paths = append(paths, "/metrics", "/metrics/slis")
		for i := range s.Routes {
			paths = append(paths, strings.TrimSuffix(s.Routes[i].Path, "/"))
		}
	}
	slices.Sort(paths)
	return paths
}

// localAddress returns the server's end of the call's connection, "" if there is none.
func localAddress(c *call.Call) string {
	if address, ok := c.HTTP.Context().Value(http.LocalAddrContextKey).(net.Addr); ok {
		return address.String()
	}
	return ""
}

func (s *Service) answerDiscovery(c *call.Call) error {
	path := c.HTTP.URL.Path
	f, aggregated, err := negotiate.Discovery(c.HTTP, discovery.Aggregates(path))
	if err != nil {
		return err
	}
	var doc *discovery.Document
	if strings.Trim(path, "/") == "api" && !aggregated {
		doc = discovery.Core(localAddress(c))
	} else {
		doc = s.documentsOf(c).discovery.Find(path, aggregated)
	}
	if doc == nil {
		return status.NotServed(c.Info.Verb, c.Resource())
	}
	h := c.W.Header()
	h.Set("Vary", "Accept, Accept-Encoding")
	h.Set("ETag", doc.ETag)
	if doc.Fresh(c.HTTP) {
		c.Sent = true
		c.W.WriteHeader(http.StatusNotModified)
		return nil
	}
	if compressed := doc.Compressed(); compressed != nil && f.MediaType == negotiate.JSON && !f.Pretty && negotiate.Gzip(c.HTTP) {
		h.Set("Content-Encoding", "gzip")
		c.WriteHeader(f.ContentType())
		h.Set("Content-Length", strconv.Itoa(len(compressed)))
		c.W.WriteHeader(http.StatusOK)
		c.Sent = true
		if c.HTTP.Method != http.MethodHead {
			_, _ = c.W.Write(compressed) // a client that disconnected needs no answer
		}
		return nil
	}
	return c.WriteBody(f, http.StatusOK, doc.Body)
}

// documents are the documents of one policy, shared by all clients. Each is made when it is first requested.
type documents struct {
	policy    *policy.Policy
	discovery *discovery.Documents
	openapi   *openapi.Service
	printers  sync.Map // *policy.Version -> *table.Printer
}

// documentsOf returns the documents of the policy that the call reads.
func (s *Service) documentsOf(c *call.Call) *documents {
	p := c.World().Policy
	if d := s.current.Load(); d != nil && d.policy == p {
		return d
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.current.Load()
	if before != nil && before.policy == p {
		return before
	}
	if p != c.Tip.Policy {
		return s.ofPast(p, before)
	}
	d := s.make(p, before)
	s.current.Store(d)
	return d
}

// make returns the documents of a policy. It reuses what did not change since before, which may be nil.
func (s *Service) make(p *policy.Policy, before *documents) *documents {
	var made *openapi.Service
	if before != nil {
		made = before.openapi
	}
	return &documents{
		policy:    p,
		discovery: discovery.New(s.Table.Discovery(p)),
		openapi:   openapi.New(p, s.Version.GitVersion, made, s.Table.OpenAPI()...),
	}
}

// keptOfPast is the number of policies not in force whose documents are kept.
const keptOfPast = 4

// ofPast returns the documents of a policy that is not in force. The caller holds mu.
func (s *Service) ofPast(p *policy.Policy, current *documents) *documents {
	var d *documents
	if i := slices.IndexFunc(s.past, func(d *documents) bool { return d.policy == p }); i >= 0 {
		d = s.past[i]
		s.past = slices.Delete(s.past, i, i+1)
	} else {
		d = s.make(p, current) // most kinds are the same
	}
	s.past = slices.Insert(s.past, 0, d)
	s.past = slices.Clip(s.past[:min(len(s.past), keptOfPast)])
	return d
}

// Printer returns the printer of tables for the version that the call's client sees. It is safe for concurrent use.
func (s *Service) Printer(c *call.Call) *table.Printer {
	d, seen := s.documentsOf(c), c.Seen()
	if printer, ok := d.printers.Load(seen); ok {
		return printer.(*table.Printer)
	}
	printer, _ := d.printers.LoadOrStore(seen, table.New(seen))
	return printer.(*table.Printer)
}

// redirectsBelow adds the prefix /at/<revision> to redirects.
type redirectsBelow struct {
	*call.Response
	prefix string
}

// WriteHeader implements http.ResponseWriter.
func (w redirectsBelow) WriteHeader(code int) {
	if to, err := url.Parse(w.Header().Get("Location")); err == nil && to.Path != "" {
		to.Path = w.prefix + to.Path
		w.Header().Set("Location", to.String())
	}
	w.Response.WriteHeader(code)
}

// issues reports whether the call can read the issuer and its keys. A read of the past cannot, because the keys are
// today's.
func (s *Service) issues(c *call.Call) bool {
	return s.Tokens != nil && c.Past.Moment == nil && s.Tokens.Discoverable() == nil
}

// answerIssuer answers with the configuration of the token issuer or with its keys. It reports whether the path is
// one of these.
func (s *Service) answerIssuer(c *call.Call) (bool, error) {
	if !s.issues(c) {
		return false, nil
	}
	var document func() ([]byte, error)
	contentType := tokens.ConfigurationType
	switch strings.TrimSuffix(c.HTTP.URL.Path, "/") {
	case tokens.ConfigurationPath:
		document = s.Tokens.Configuration
	case tokens.KeySetPath:
		document, contentType = s.Tokens.KeySet, tokens.KeySetType
	default:
		return false, nil
	}
	text, err := document()
	if err != nil {
		return true, err
	}
	c.W.Header().Set("Cache-Control", fmt.Sprintf("public, max-age=%d", tokens.MaxAge))
	return true, c.Send(contentType, http.StatusOK, text)
}
