package nonresource

import (
	"net/http"
	"strings"
	"time"

	"stele.dev/stele/core/call"
)

// Route serves a path that is no resource, for example /log/state. Only GET and HEAD requests at the present reach
// it, from users whom the policy grants the path as a nonResourceURL.
type Route struct {
	// Path is the path; one that ends with a slash includes all paths below it.
	Path string
	// Long is true if answers may take as long as the client reads them. Other answers have the timeout of every
	// request.
	Long bool
	// Cost estimates how long a call keeps a processor busy, before it is authorized; nil if that is about as long as a get.
	Cost func(c *call.Call) time.Duration
	// Serve answers the call: it writes to c.W and sets c.Sent, or returns an error for the client. It MUST be safe
	// for concurrent use.
	Serve func(c *call.Call) error
}

// Route returns the route of a path; nil if there is none.
func (s *Service) Route(path string) *Route {
	for i := range s.Routes {
		r := &s.Routes[i]
		if path == r.Path || strings.HasSuffix(r.Path, "/") && strings.HasPrefix(path, r.Path) {
			return r
		}
	}
	return nil
}

// serve answers a call of the route.
func (r *Route) serve(c *call.Call) error {
	if r.Long {
		p := &patient{ResponseWriter: c.W.ResponseWriter, patience: call.NewPatience(c)}
		c.W.ResponseWriter = p
		p.patience.Begin()
		defer p.patience.End()
	}
	return r.Serve(c)
}

// patient ends an answer whose client has stopped reading.
type patient struct {
	http.ResponseWriter
	patience *call.Patience
}

func (p *patient) Write(b []byte) (int, error) {
	defer p.patience.Write()()
	return p.ResponseWriter.Write(b)
}

func (p *patient) Unwrap() http.ResponseWriter { return p.ResponseWriter }
