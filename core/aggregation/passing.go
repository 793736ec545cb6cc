package aggregation

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/http/httputil"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"
	"stele.dev/stele/core/call"
	"stele.dev/stele/core/status"
	"stele.dev/stele/limits/breaker"
	"stele.dev/stele/policy"
)

// patientTime is how long a request waits at least whose end, by its own timeout, is the fault of the server.
const patientTime = 30 * time.Second

// queueTime is how long a request waits for a server that has as many requests as it may have.
const queueTime = 5 * time.Second

// longParts are the subresources whose requests go on for as long as both sides want, as in kube-apiserver.
var longParts = sets.New("attach", "exec", "proxy", "log", "portforward")

// Long reports whether a request goes on for as long as both sides want: a watch, one that is upgraded to another protocol, or one for
// a subresource that is a stream.
func Long(h *http.Request, i *request.RequestInfo) bool {
	return i.Verb == "watch" || upgrades(h) || longParts.Has(i.Subresource)
}

// upgrades reports whether a request asks for another protocol. HTTP/2 has no such requests.
func upgrades(h *http.Request) bool {
	return h.ProtoMajor == 1 && len(h.Header["Upgrade"]) > 0 && strings.Contains(strings.ToLower(strings.Join(h.Header["Connection"], ",")), "upgrade")
}

// BrokenError reports that an answer ended before it was complete. Its header was sent, so that only the end of the connection can tell
// the client.
type BrokenError struct {
	server string
	err    error
}

// Error names the server.
func (e *BrokenError) Error() string {
	return fmt.Sprintf("the answer of the server %s ended before it was complete: %v", e.server, e.err)
}

// Status implements the APIStatus of Kubernetes, for the record of the request.
func (e *BrokenError) Status() metav1.Status {
	return metav1.Status{Status: metav1.StatusFailure, Code: http.StatusBadGateway, Reason: metav1.StatusReasonInternalError, Message: e.Error()}
}

// Unwrap returns the cause.
func (e *BrokenError) Unwrap() error { return e.err }

// passing is a request that is passed on, and its answer. It belongs to the goroutine that serves the request, except for what its
// comments say.
type passing struct {
	server *server
	call   *call.Call
	ctx    context.Context // of the request to the other server
	asked  context.Context // of the client's request
	began  time.Time
	end    context.CancelCauseFunc
	long   bool
	// identity are the headers that name the user.
	identity http.Header
	// still returns an error if the user may not make the request any more.
	still func(context.Context) error

	reached  atomic.Bool // a connection has got the request; set by the transport
	answered bool        // the header of the answer is here
	trial    bool        // of the circuit
	seated   bool        // it has one of the slots of the server
	failure  error       // why there is no answer
	broken   error       // why the answer is not complete
	followed sync.WaitGroup
}

type passingKey struct{}

// errOver is the cause of the end of an open request that this server ends: it stops, or the policy names no such server any more.
var errOver = errors.New("aggregation: the request is over")

// Serve passes a call on to the server of an aggregate, and its answer to the client. still is asked after each change of policy
// whether a call that goes on for long may go on; its error ends the call. The error of Serve is for the client, unless it is
// a [BrokenError].
func (s *Servers) Serve(ctx context.Context, c *call.Call, a *policy.Aggregate, still func(context.Context) error) error {
	x, g := s.find(a)
	if x == nil {
		return unavailable(c, a, "the policy in force does not name it any more", 1)
	}
	if err := x.mayAsk(c); err != nil {
		s.metrics.request(a, wasUnavailable)
		return err
	}
	out, err := x.request(c)
	if err != nil {
		return err
	}
	p := &passing{server: x, call: c, asked: ctx, began: time.Now(), long: Long(c.HTTP, c.Info), still: still}
	if p.identity, err = identityOf(c.User); err != nil {
		return status.Refused(c.Resource(), c.Info.Name, fmt.Errorf("the server %s cannot be told who asks: %w", a.Name(), err))
	}
	if err := p.enter(ctx); err != nil {
		return err
	}
	defer p.leave()
	ctx, p.end = context.WithCancelCause(ctx)
	defer p.end(nil)
	p.ctx = ctx
	if !reads(c.HTTP.Method) {
		p.ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { p.reached.Store(true) }})
	}
	w := &answer{Response: c.W, passing: p, generation: g}
	if p.long {
		w.patience = call.NewPatience(c)
	}
	defer w.close()
	p.pass(w, out.WithContext(context.WithValue(ctx, passingKey{}, p)))
	switch {
	case p.failure != nil:
		return p.refusal()
	case p.broken != nil && !(p.call.Info.Verb == "watch" && ctx.Err() != nil): // a watch that this server ends has an end like others
		return &BrokenError{a.Name(), p.broken}
	}
	return nil
}

// pass runs the proxy, which panics after an answer that is not complete.
func (p *passing) pass(w http.ResponseWriter, out *http.Request) {
	defer func() {
		if v := recover(); v != nil && v != http.ErrAbortHandler { // a client that disconnected needs no answer
			panic(v)
		}
	}()
	p.server.proxy.ServeHTTP(w, out)
}

// reads reports whether a method changes nothing.
func reads(method string) bool { return method == http.MethodGet || method == http.MethodHead }

// mayAsk returns an error if the server is not available for the version of a call.
func (x *server) mayAsk(c *call.Call) error {
	st := x.state(c.Info.APIVersion)
	switch {
	case x.unusable != nil:
		return unavailable(c, x.aggregate, x.unusable.Error(), 30)
	case st == nil:
		return unavailable(c, x.aggregate, unknown.Message, 1)
	case !st.Available:
		after := time.Until(time.Unix(x.next.Load(), 0))
		return unavailable(c, x.aggregate, fmt.Sprintf("it is not available since %s: %s", st.Since.UTC().Format(time.RFC3339), st.Message), int32(max(1, after/time.Second+1)))
	}
	return nil
}

// enter takes a slot of the server, and asks its circuit.
func (p *passing) enter(ctx context.Context) error {
	x := p.server
	waiting, cancel := context.WithTimeout(ctx, queueTime)
	defer cancel()
	if err := x.slots.Acquire(waiting, p.call.User.GetName()); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		x.of.metrics.request(x.aggregate, wasBusy)
		return unavailable(p.call, x.aggregate, fmt.Sprintf("it works on %d requests, as many as it may have at a time", x.aggregate.Requests), 1)
	}
	p.seated = true
	trial, ok := x.circuit.Allow()
	if !ok {
		p.unseat()
		x.of.metrics.request(x.aggregate, wasUnavailable)
		return unavailable(p.call, x.aggregate, "it did not answer several requests in a row, and is tried again soon", 1)
	}
	p.trial = trial
	return nil
}

// unseat gives back the slot, if the request has one.
func (p *passing) unseat() {
	if p.seated {
		p.seated = false
		p.server.slots.Release()
	}
}

// leave tells the circuit what became of the request, and gives back its slot.
func (p *passing) leave() {
	outcome, counted := breaker.Unknown, wasUnanswered
	switch {
	case p.answered:
		outcome, counted = breaker.Succeeded, wasAnswered
	case p.failure != nil && (p.asked.Err() == nil || time.Since(p.began) >= min(p.server.aggregate.AnswerTimeout, patientTime)): // else it was the client who ended it
		outcome = breaker.Failed
	}
	p.server.circuit.Done(p.trial, outcome)
	p.server.of.metrics.request(p.server.aggregate, counted)
	p.unseat()
}

// refusal returns the error for a client whose request was not answered. A write that may have reached the server must not be sent
// again by the client, so that it gets no Retry-After.
func (p *passing) refusal() error {
	a, why := p.server.aggregate, p.failure
	if refused := (*status.Error)(nil); errors.As(why, &refused) {
		return refused
	}
	if cause := context.Cause(p.asked); errors.Is(cause, context.DeadlineExceeded) {
		return unfinished(p.call, a, errors.New("the time of the request is over"))
	} else if cause != nil {
		return cause
	}
	if !reads(p.call.HTTP.Method) && p.reached.Load() {
		return unfinished(p.call, a, why)
	}
	return unavailable(p.call, a, reason(why), 1)
}

// reason returns why a server was not reached, or gave no answer.
func reason(err error) string {
	var unverified *tls.CertificateVerificationError
	switch {
	case errors.As(err, &unverified):
		return "its certificate is not trusted: " + unverified.Err.Error()
	case strings.Contains(err.Error(), "timeout awaiting response headers"):
		return "its answer did not begin in time"
	}
	return err.Error()
}

// unavailable returns the error for a request that was not passed on, or for a read that was not answered (503).
func unavailable(c *call.Call, a *policy.Aggregate, why string, seconds int32) error {
	err := status.Unavailable(fmt.Sprintf("the server %s, which answers the API group %s, cannot be used: %s", a.Name(), a.Group, why))
	err.ErrStatus.Details = detailsOf(c, a)
	err.ErrStatus.Details.RetryAfterSeconds = min(max(seconds, 1), 30)
	return err
}

// unfinished returns the error for a request whose time is over, and for a write that may have been carried out (504).
func unfinished(c *call.Call, a *policy.Aggregate, why error) error {
	doubt := ""
	if !reads(c.HTTP.Method) {
		doubt = "; whether the write was carried out is not known: look before you try again"
	}
	return &status.Error{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusGatewayTimeout, Reason: metav1.StatusReasonTimeout, Details: detailsOf(c, a),
		Message: fmt.Sprintf("the server %s, which answers the API group %s, did not answer in time: %s%s", a.Name(), a.Group, reason(why), doubt),
	}}
}

func detailsOf(c *call.Call, a *policy.Aggregate) *metav1.StatusDetails {
	return &metav1.StatusDetails{Group: c.Info.APIGroup, Kind: c.Info.Resource, Name: c.Info.Name, Causes: []metav1.StatusCause{{Type: "AggregatedServer", Message: a.Name(), Field: a.Source.String()}}}
}

// request returns the request that the other server gets, without its context. It has exactly the path that was authorized: a path that
// others could read as another one is refused, and the former way to watch as well, which not all servers know.
func (x *server) request(c *call.Call) (*http.Request, error) {
	h, i := c.HTTP, c.Info
	switch h.Method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete:
	default:
		return nil, status.MethodNotAllowed(h.Method)
	}
	parts := strings.Split(strings.TrimPrefix(h.URL.Path, "/"), "/")
	if slices.ContainsFunc(parts, func(s string) bool {
		return s == "" || s == "." || s == ".." || strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f || r == '\\' })
	}) {
		return nil, status.BadRequest("the path has an empty part, a part . or .., or a character that other servers read in another way: write each part once")
	}
	if len(parts) < 4 || parts[0] != "apis" || parts[1] != i.APIGroup || parts[2] != i.APIVersion || parts[3] == "watch" || parts[3] == "proxy" {
		return nil, status.BadRequestf("the server %s is asked by paths such as /apis/%s/%s/RESOURCE: to watch, add the query ?watch=true", x.aggregate.Name(), i.APIGroup, i.APIVersion)
	}
	body, length := http.NoBody, int64(0)
	var sent io.ReadCloser = body
	if h.Body != nil && h.Body != http.NoBody {
		raw, err := call.ReadLimited(h)
		if err != nil {
			return nil, err
		}
		if len(raw) > 0 {
			sent, length = io.NopCloser(bytes.NewReader(raw)), int64(len(raw))
		}
	}
	to := *h.URL
	to.Scheme, to.Host, to.RawPath, to.User, to.Fragment = x.address.Scheme, x.address.Host, "", nil, ""
	out := &http.Request{
		Method: h.Method, URL: &to, Host: x.address.Host, Header: h.Header.Clone(), Body: sent, ContentLength: length, RemoteAddr: h.RemoteAddr,
		Proto: h.Proto, ProtoMajor: h.ProtoMajor, ProtoMinor: h.ProtoMinor, TLS: h.TLS,
	}
	return out, nil
}

// copying are the buffers in which answers are copied.
var copying = &buffers{sync.Pool{New: func() any { b := make([]byte, 32<<10); return &b }}}

type buffers struct{ pool sync.Pool }

func (b *buffers) Get() []byte  { return *b.pool.Get().(*[]byte) }
func (b *buffers) Put(x []byte) { b.pool.Put(&x) }

// newProxy returns the proxy of a server. Each of its requests has a passing in its context.
func newProxy(x *server) *httputil.ReverseProxy {
	of := func(h *http.Request) *passing { return h.Context().Value(passingKey{}).(*passing) }
	return &httputil.ReverseProxy{
		Rewrite:        func(r *httputil.ProxyRequest) { of(r.In).rewrite(r) },
		Transport:      x,
		BufferPool:     copying,
		ModifyResponse: func(a *http.Response) error { return of(a.Request).begin(a) },
		ErrorHandler: func(_ http.ResponseWriter, h *http.Request, err error) {
			p := of(h)
			p.failure = err
		},
		ErrorLog: log.New(io.Discard, "", 0),
	}
}

// rewrite names the user, and the address of the client for the other server's audit log. It is called after the proxy has removed the
// headers that the client's header Connection names, which could be those that name the user.
func (p *passing) rewrite(r *httputil.ProxyRequest) {
	withhold(r.Out.Header)
	maps.Copy(r.Out.Header, p.identity)
	if host, _, err := net.SplitHostPort(r.In.RemoteAddr); err == nil {
		r.Out.Header.Set("X-Forwarded-For", host)
	}
	r.Out.Host = r.In.Host
}

// RoundTrip implements http.RoundTripper: an answer that only informs is not passed on.
func (x *server) RoundTrip(h *http.Request) (*http.Response, error) {
	p := h.Context().Value(passingKey{}).(*passing)
	out := h.WithContext(p.ctx)
	transport := x.transports.requests
	if h.Header.Get("Upgrade") != "" {
		transport = x.transports.upgrades
	}
	answer, err := transport.RoundTrip(out)
	if err == nil {
		answer.Request = h
	}
	return answer, err
}

// kept are headers of an answer that are this server's to say.
var kept = []string{"Audit-Id", "X-Kubernetes-Pf-Flowschema-Uid", "X-Kubernetes-Pf-Prioritylevel-Uid", "Alt-Svc", "Strict-Transport-Security", "Set-Cookie", "Stele-Policy", "Stele-Revision", "X-Stele-Stage"}

// begin checks the header of an answer. What it returns replaces the answer.
func (p *passing) begin(a *http.Response) error {
	x := p.server
	p.answered = true
	switch code := a.StatusCode; {
	case code >= 300 && code < 400 && a.Header.Get("Location") != "":
		a.Body.Close()
		return unavailable(p.call, x.aggregate, fmt.Sprintf("it answered with a redirect (%d), which is not followed and not passed on", code), 30)
	case code == http.StatusUnauthorized:
		a.Body.Close()
		return unavailable(p.call, x.aggregate, "it does not trust the client certificate of this server (401); the authority is in the ConfigMap extension-apiserver-authentication in kube-system", 30)
	case code == http.StatusSwitchingProtocols && !upgrades(p.call.HTTP):
		a.Body.Close()
		return unavailable(p.call, x.aggregate, "it changed the protocol, which nobody asked for", 30)
	}
	if p.long {
		p.unseat()
	}
	for _, name := range kept {
		a.Header.Del(name)
	}
	for name := range a.Header {
		if strings.HasPrefix(name, "Access-Control-") {
			delete(a.Header, name)
		}
	}
	if len(a.Header["Cache-Control"]) > 0 {
		p.call.W.Header().Del("Cache-Control")
	}
	p.call.Sent = true
	if a.StatusCode != http.StatusSwitchingProtocols {
		a.Body = &body{a.Body, p}
	}
	return nil
}

// body is the body of an answer.
type body struct {
	io.ReadCloser
	passing *passing
}

// Read implements io.Reader. It notes why an answer is not complete. A watch that this server ends has an end like others.
func (b *body) Read(to []byte) (int, error) {
	n, err := b.ReadCloser.Read(to)
	if err == nil || err == io.EOF {
		return n, err
	}
	if p := b.passing; p.call.Info.Verb == "watch" && p.ctx.Err() != nil {
		return n, io.EOF
	}
	b.passing.broken = err
	return n, err
}

// answer is the answer to the client. It passes nothing on that only informs, and ends an answer that goes on for long when its client
// stops reading.
type answer struct {
	*call.Response
	passing    *passing
	generation *generation
	patience   *call.Patience // nil if the answer does not go on for long
	begun      bool
}

// WriteHeader implements http.ResponseWriter.
func (w *answer) WriteHeader(code int) {
	if code < 200 {
		return
	}
	w.begin()
	w.Response.WriteHeader(code)
	w.follow()
}

// begin begins an answer that goes on for long.
func (w *answer) begin() {
	if w.patience != nil && !w.begun {
		w.begun = true
		w.patience.Begin()
	}
}

// Write implements http.ResponseWriter.
func (w *answer) Write(b []byte) (int, error) {
	if w.patience != nil {
		defer w.patience.Write()()
	}
	return w.Response.Write(b)
}

// FlushError implements what http.ResponseController looks for.
func (w *answer) FlushError() error {
	if w.patience != nil {
		defer w.patience.Write()()
	}
	return w.Response.FlushError()
}

// Hijack takes over the connection for another protocol. The record of a request that must be recorded first is made before.
func (w *answer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	if gate := w.Gate; gate != nil {
		w.Gate = nil
		if err := gate(http.StatusSwitchingProtocols); err != nil {
			return nil, nil, err
		}
	}
	conn, buffered, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err == nil {
		w.Hold, w.Code, w.patience = 0, http.StatusSwitchingProtocols, nil
		w.follow()
	}
	return conn, buffered, err
}

// follow ends an answer that goes on for long when the user may not read it any more, or when the server stops.
func (w *answer) follow() {
	p := w.passing
	if !p.long || p.still == nil {
		return
	}
	p.followed.Go(func() { p.follow(w.generation) })
}

func (p *passing) follow(g *generation) {
	s := p.server.of
	for {
		select {
		case <-g.replaced:
			if g = s.current.Load(); !slices.Contains(g.servers, p.server) {
				p.end(errOver)
				return
			}
			if err := p.askAgain(); err != nil {
				p.end(err)
				return
			}
		case <-s.draining:
			p.end(errOver)
			return
		case <-p.ctx.Done():
			return
		}
	}
}

// askAgain asks whether the user may still make the request, in turn with others.
func (p *passing) askAgain() error {
	asking := p.server.of.asking
	if err := asking.Acquire(p.ctx, p.call.Requester.GetName()); err != nil {
		return err
	}
	defer asking.Release()
	return p.still(p.ctx)
}

// close ends an answer that went on for long.
func (w *answer) close() {
	w.passing.end(nil)
	w.passing.followed.Wait()
	if w.begun && w.patience != nil {
		w.patience.End()
	}
}
