package plane

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"stele.dev/stele/core/serve/server"
	"stele.dev/stele/core/status"
)

// drainTimeout is how long requests may take to end when the plane stops.
const drainTimeout = 20 * time.Second

// StopTime is how long a plane usually takes to stop at most, after its ShutdownDelay.
const StopTime = drainTimeout + 40*time.Second

// addReadiness adds the actor that stops first. It makes /readyz fail, and waits until load balancers have noticed.
func (p *Plane) addReadiness(g *group) {
	done := make(chan struct{})
	g.Add(func() error { <-done; return nil }, func(error) {
		p.NotReady()
		time.Sleep(p.config.ShutdownDelay)
		close(done)
	})
}

// addAPI adds the actor that serves the API.
func (p *Plane) addAPI(g *group) {
	if p.server == nil {
		done := make(chan struct{})
		g.Add(func() error { <-done; return nil }, func(error) { p.Drain(); close(done) })
		return
	}
	g.Add(func() error {
		p.front.use(p.Pipeline)
		if err := <-p.served; !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	}, func(error) { p.stopServing() })
}

// stopServing ends the API. Clients of HTTP/2 get a GOAWAY, requests in flight have drainTimeout to end, and watches
// end with a bookmark. Until then new connections are answered, so that a balancer that has not noticed yet loses no
// request: clients try again after a second.
func (p *Plane) stopServing() {
	ctx, cancel := context.WithTimeout(context.Background(), drainTimeout)
	defer cancel()
	refusing := p.newServer(http.HandlerFunc(p.refuse))
	go refusing.ServeTLS(p.handover.Listener(), "", "")
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		p.drainWatches(ctx)
	}()
	if err := p.server.Shutdown(ctx); err != nil {
		p.config.Logger.Warn("requests were cut off", "error", err)
		p.server.Close()
	}
	<-drained // those on WebSockets, too, which the server does not know any more
	p.handover.Close()
	ctx, cancel = context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if refusing.Shutdown(ctx) != nil {
		refusing.Close()
	}
}

// drainWatches ends all watches. If clients can go to another server, it spreads the ends over time.
func (p *Plane) drainWatches(ctx context.Context) {
	if p.Log.Exclusive() {
		p.Drain()
	}
	p.DrainSpread(ctx)
}

// healthPaths are served until the end, as by kube-apiserver.
var healthPaths = []string{"healthz", "livez", "readyz", "metrics"}

// refuse answers requests that come when the plane does not take any more, as kube-apiserver does with
// --shutdown-send-retry-after. client-go tries again, also writes.
func (p *Plane) refuse(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Connection", "close")
	if first, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/"); slices.Contains(healthPaths, first) {
		p.front.ServeHTTP(w, r)
		return
	}
	s, _ := status.From(status.TooManyRequests("the server is shutting down; try again"))
	answerStatus(w, s)
}

// answerStatus sends a Status before anybody is authenticated, on which client-go tries again.
func answerStatus(w http.ResponseWriter, s *metav1.Status) {
	body, err := json.Marshal(s)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError) // it is a constant
		return
	}
	h := w.Header()
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-cache, private")
	h.Set("Content-Type", "application/json")
	h.Set("Retry-After", strconv.Itoa(retryAfter))
	w.WriteHeader(int(s.Code))
	_, _ = w.Write(body)
}

// newServer returns a server with the plane's certificate.
func (p *Plane) newServer(handler http.Handler) *http.Server {
	s := server.New(server.WithCORS(handler, p.config.Origins), p.certificate, p.clientAuthorities, p.guard, p.config.Logger)
	p.config.TLS.Configure(s)
	return s
}
