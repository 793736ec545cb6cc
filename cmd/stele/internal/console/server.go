package console

import (
	"embed"
	"encoding/json"
	"io/fs"
	"mime"
	"net/http"
	"net/url"
	"path"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"stele.dev/stele/cmd/stele/internal/build"
	"stele.dev/stele/cmd/stele/internal/client"
)

//go:embed page
var embedded embed.FS

// files are the files of the page.
var files = func() fs.FS {
	sub, err := fs.Sub(embedded, "page")
	if err != nil {
		panic(err) // the folder is embedded
	}
	return sub
}()

// About is what the page shows of where it reads.
type About struct {
	// Server is the address of the server, without a moment.
	Server string `json:"server"`
	// Context is the context of the kubeconfig.
	Context string `json:"context,omitempty"`
	// Namespace is the namespace of the context.
	Namespace string `json:"namespace"`
	// Version is the version of this program.
	Version string `json:"version"`
	// As is the user whom the kubeconfig or a flag impersonates.
	As string `json:"as,omitempty"`
}

// pageSecurity is the Content-Security-Policy of the page: it loads its own files, and connects to this program.
const pageSecurity = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// answerSecurity is the Content-Security-Policy of answers of the server, which are data and never a page.
const answerSecurity = "default-src 'none'; frame-ancestors 'none'; sandbox"

// Handler serves the page and what it reads. It is safe for concurrent use.
type Handler struct {
	guard *guard
	about []byte
	proxy *proxy
	at    string // the moment that the kubeconfig's server shows; empty for now
}

// New returns a handler that reads from the server of config, for requests to http://host.
func New(config *rest.Config, about About, host string) (*Handler, error) {
	if _, _, err := splitHostPort(host); err != nil {
		return nil, err
	}
	at := ""
	if m := client.AtMoment.FindStringSubmatch(config.Host); m != nil {
		at = m[1]
	}
	config = rest.CopyConfig(config)
	config.Host = client.PresentURL(config.Host)
	p, err := newProxy(config)
	if err != nil {
		return nil, err
	}
	about.Server, about.Version, about.As = config.Host, build.Version, config.Impersonate.UserName
	text, err := json.Marshal(about)
	if err != nil {
		return nil, err
	}
	return &Handler{newGuard(host), text, p, at}, nil
}

// Link returns the link that opens the page. It works once.
func (h *Handler) Link() string { return h.guard.link() }

// ServeHTTP implements [http.Handler].
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("Content-Security-Policy", pageSecurity)
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("X-Frame-Options", "DENY")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("Cross-Origin-Opener-Policy", "same-origin")
	header.Set("Cross-Origin-Resource-Policy", "same-origin")
	header.Set("Cache-Control", "no-store")
	if refused := h.guard.checkOrigin(r); refused != nil {
		refuse(w, refused)
		return
	}
	reads := r.Method == http.MethodGet || r.Method == http.MethodHead
	if token := r.URL.Query().Get("token"); r.URL.Path == "/" && token != "" && reads {
		h.open(w, r, token)
		return
	}
	if refused := h.guard.checkSession(r); refused != nil {
		refuse(w, refused)
		return
	}
	switch isPage := r.URL.Path != "/console" && !isServerPath(r.URL.Path); {
	case isPage && !reads:
		header.Set("Allow", "GET, HEAD")
		refuse(w, &refusal{http.StatusMethodNotAllowed, "the page can only be read"})
	case isPage:
		serveFile(w, r)
	default:
		header.Set("Content-Security-Policy", answerSecurity)
		if refused := h.guard.checkKey(r); refused != nil {
			refuse(w, refused)
			return
		}
		if isServerPath(r.URL.Path) {
			h.proxy.ServeHTTP(w, r)
			return
		}
		header.Set("Content-Type", "application/json")
		w.Write(h.about) // the page may have gone
	}
}

// open answers the link: with the session, and the page. The key is in the fragment, which browsers do not send.
func (h *Handler) open(w http.ResponseWriter, r *http.Request, token string) {
	if h.guard.exchange(w, token) {
		start := url.Values{"key": {h.guard.key}}
		if h.at != "" {
			start.Set("at", h.at)
		}
		w.Header().Set("Location", "/#"+start.Encode())
		w.WriteHeader(http.StatusSeeOther)
		return
	}
	if h.guard.checkSession(r) == nil { // the same browser opens the link again
		http.Redirect(w, r, "/", http.StatusSeeOther)
		return
	}
	refuse(w, &refusal{http.StatusForbidden, "the link is not valid, or was used before: start stele console again, which prints a new one"})
}

// serveFile serves a file of the page.
func serveFile(w http.ResponseWriter, r *http.Request) {
	name := path.Clean(r.URL.Path)[1:]
	if r.URL.Path == "/" {
		name = "index.html"
	}
	content, err := fs.ReadFile(files, name)
	if err != nil { // also for a folder
		refuse(w, &refusal{http.StatusNotFound, "the page has no such file"})
		return
	}
	mediaType := mime.TypeByExtension(path.Ext(name))
	switch path.Ext(name) { // not by the machine's table of types
	case ".html":
		mediaType = "text/html; charset=utf-8"
	case ".js":
		mediaType = "text/javascript; charset=utf-8"
	case ".css":
		mediaType = "text/css; charset=utf-8"
	case ".svg":
		mediaType = "image/svg+xml"
	case "":
		mediaType = "text/plain; charset=utf-8"
	}
	w.Header().Set("Content-Type", mediaType)
	if r.Method != http.MethodHead {
		w.Write(content) // the browser may have gone
	}
}

// refuse answers with a Status as the server does, so that the page has one kind of error.
func refuse(w http.ResponseWriter, why *refusal) {
	text, err := json.Marshal(metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status:   metav1.StatusFailure, Code: int32(why.code), Reason: metav1.StatusReason("Console"), Message: why.text,
	})
	if err != nil {
		panic(err) // a Status is always JSON
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(why.code)
	w.Write(append(text, '\n')) // the browser may have gone
}
