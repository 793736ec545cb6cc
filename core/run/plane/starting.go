package plane

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"

	"stele.dev/stele/core/status"
)

// front is the handler of the listener. Until the API takes over it answers itself, so that a client finds out at once
// that the plane starts, and a probe that it lives. It is safe for concurrent use.
type front struct {
	startup *startup
	api     atomic.Pointer[http.Handler] // nil while the plane starts
}

// use makes the API answer from now on.
func (f *front) use(api http.Handler) { f.api.Store(&api) }

// ServeHTTP implements [http.Handler].
func (f *front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if api := f.api.Load(); api != nil {
		(*api).ServeHTTP(w, r)
		return
	}
	h := w.Header()
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-cache, private")
	read := r.Method == http.MethodGet || r.Method == http.MethodHead
	switch kind, check, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/"); {
	case read && (kind == "livez" || kind == "healthz") && (check == "" || check == "ping"):
		h.Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = io.WriteString(w, "ok") // a client that disconnected needs no answer
	case read && kind == "readyz":
		h.Set("Content-Type", "text/plain; charset=utf-8")
		h.Set("Retry-After", strconv.Itoa(retryAfter))
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = fmt.Fprintf(w, "[+]ping ok\n[-]start failed: %s\nreadyz check failed\n", f.startup)
	default:
		unavailable(w)
	}
}

// retryAfter is after how many seconds clients should try again while the plane starts or stops.
const retryAfter = 1

// unavailable answers with a Status on which client-go tries again. Nobody is authenticated yet, so it tells nothing
// about the start.
func unavailable(w http.ResponseWriter) {
	s, _ := status.From(status.Unavailable("the server is starting; try again"))
	answerStatus(w, s)
}
