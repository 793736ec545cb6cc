package console

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"

	"k8s.io/client-go/rest"
	"stele.dev/stele/core/resources/access"
	"stele.dev/stele/core/resources/blame"
	"stele.dev/stele/core/resources/explain"
)

// serverPath is before the paths of the server.
const serverPath = "/server"

// isServerPath reports whether a path is of the server.
func isServerPath(path string) bool { return strings.HasPrefix(path, serverPath+"/") }

// questions are the paths of the server to which the page may POST: what is created there is answered, and not stored.
var questions = map[string]bool{
	"/apis/authentication.k8s.io/v1/selfsubjectreviews":                            true,
	"/apis/authorization.k8s.io/v1/selfsubjectaccessreviews":                       true,
	"/apis/" + blame.Group + "/" + blame.Version + "/" + blame.Plural:              true,
	"/apis/" + explain.Group + "/" + explain.Version + "/" + explain.Plural:        true,
	"/apis/" + access.Group + "/" + access.Version + "/" + access.ReviewPlural:     true,
	"/apis/" + access.Group + "/" + access.Version + "/" + access.DifferencePlural: true,
}

// readable are the parts of the server that the page may GET.
var readable = []string{"/api", "/apis", "/openapi/v3", "/version", "/readyz"}

// sent are the headers of the page that the server gets. Above all, the cookie, credentials and impersonation are left out.
var sent = []string{"Accept", "Content-Type", "If-None-Match"}

// received are the headers of the server that the page gets.
var received = []string{"Content-Type", "Content-Length", "Date", "Etag", "Retry-After", "Warning", "Audit-Id", "Stele-Policy", "Stele-Revision"}

// maxQuestion is how large the body of a question may be.
const maxQuestion = 3 << 20

// proxy sends requests of the page to the server with the user's credentials. It is safe for concurrent use.
type proxy struct {
	reverse httputil.ReverseProxy
	server  string
}

func newProxy(config *rest.Config) (*proxy, error) {
	transport, err := rest.TransportFor(config)
	if err != nil {
		return nil, err
	}
	server, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, err
	}
	p := &proxy{server: config.Host}
	p.reverse = httputil.ReverseProxy{
		Transport:     transport,
		FlushInterval: -1, // events of watches are shown when they come
		ErrorLog:      log.New(io.Discard, "", 0),
		ErrorHandler:  p.explain,
		Rewrite: func(r *httputil.ProxyRequest) {
			path := strings.TrimPrefix(r.In.URL.Path, serverPath)
			header := http.Header{"User-Agent": {config.UserAgent}}
			for _, name := range sent {
				if values := r.In.Header.Values(name); len(values) > 0 {
					header[name] = values
				}
			}
			target := *server
			target.Path, target.RawPath = strings.TrimSuffix(server.Path, "/")+path, ""
			target.RawQuery = r.In.URL.RawQuery
			r.Out.URL, r.Out.Host, r.Out.Header = &target, target.Host, header
		},
		ModifyResponse: func(r *http.Response) error {
			if r.StatusCode >= 300 && r.StatusCode < 400 && r.StatusCode != http.StatusNotModified || r.StatusCode == http.StatusSwitchingProtocols {
				return fmt.Errorf("it answers %s, which no API server does to a read", r.Status)
			}
			header := http.Header{}
			for _, name := range received {
				if values := r.Header.Values(name); len(values) > 0 {
					header[name] = values
				}
			}
			r.Header, r.Trailer = header, nil
			return nil
		},
	}
	return p, nil
}

// ServeHTTP sends a read to the server, and refuses anything else.
func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := strings.TrimPrefix(r.URL.Path, serverPath)
	if refused := check(r.Method, path); refused != nil {
		if refused.code == http.StatusMethodNotAllowed {
			w.Header().Set("Allow", "GET")
		}
		refuse(w, refused)
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxQuestion)
	p.reverse.ServeHTTP(w, r)
}

// check refuses a request that may write, and a path that is not of the API.
func check(method, path string) *refusal {
	for part := range strings.SplitSeq(path[1:], "/") {
		if part == ".." || part == "." {
			return &refusal{http.StatusBadRequest, "the path is not clean"}
		}
	}
	below, isPast := strings.CutPrefix(path, "/at/")
	if isPast { // the server refuses writes there, too
		_, rest, _ := strings.Cut(below, "/")
		path = "/" + rest
	}
	if method == http.MethodPost && questions[path] && !isPast {
		return nil
	}
	if method != http.MethodGet {
		return &refusal{http.StatusMethodNotAllowed, "the console only reads: use kubectl or stele to write"}
	}
	for _, root := range readable {
		if path == root || strings.HasPrefix(path, root+"/") {
			return nil
		}
	}
	return &refusal{http.StatusNotFound, "the console does not read this path"}
}

// explain answers for a server that does not answer.
func (p *proxy) explain(w http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() != nil {
		w.WriteHeader(http.StatusBadGateway) // the page has gone
		return
	}
	code := http.StatusBadGateway
	var failed *url.Error
	if errors.As(err, &failed) {
		err = failed.Err
	}
	if errors.Is(err, context.DeadlineExceeded) {
		code = http.StatusGatewayTimeout
	}
	w.Header().Set("Content-Security-Policy", answerSecurity)
	refuse(w, &refusal{code, fmt.Sprintf("the server %s cannot be asked: %v", p.server, err)})
}
