package aggregation_test

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"stele.dev/stele/core/run/controllers"
	"stele.dev/stele/core/run/plane"
	"stele.dev/stele/core/run/plane/planetest"
)

const (
	group     = "weather.example.com"
	base      = "/apis/" + group + "/v1"
	forecasts = base + "/namespaces/default/forecasts"
)

// weather is a small API server of the group weather.example.com: forecasts in namespaces, which can be listed, watched and created, with
// the subresource radio, which echoes. What a forecast is called says how the server misbehaves.
type weather struct {
	*httptest.Server
	ca string // of its certificate, in PEM

	// List is the APIResourceList that it answers with, in place of its own; "" for that.
	List atomic.Value
	Down atomic.Bool // the server answers 503

	mu   sync.Mutex
	seen []*http.Request // what reached it, without the checks
	held chan struct{}   // closed when the test ends: forecasts that hang end
}

// issue returns a certificate for 127.0.0.1 that signs itself.
func issue(t testing.TB, until time.Time) (tls.Certificate, string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-48 * time.Hour), NotAfter: until, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

// newWeather starts the server.
func newWeather(t testing.TB) *weather {
	t.Helper()
	certificate, ca := issue(t, time.Now().Add(time.Hour))
	return startWeather(t, certificate, ca)
}

func startWeather(t testing.TB, certificate tls.Certificate, ca string) *weather {
	t.Helper()
	w := &weather{ca: ca, held: make(chan struct{})}
	w.Server = httptest.NewUnstartedServer(http.HandlerFunc(w.serve))
	w.Config.ErrorLog = log.New(io.Discard, "", 0)
	w.EnableHTTP2 = true
	w.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}, ClientAuth: tls.RequestClientCert}
	w.StartTLS()
	t.Cleanup(func() {
		close(w.held)
		w.CloseClientConnections()
		w.Close()
	})
	return w
}

// aggregate is the server in a bundle.
func (w *weather) aggregate(more string) string {
	return fmt.Sprintf("weather: {group: %q, versions: [\"v1\"], url: %q, private: true, caBundle: %q%s}", group, w.URL, w.ca, more)
}

// reached returns what has reached the server, without the checks.
func (w *weather) reached() []*http.Request {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.seen
}

// last returns the last request that has reached the server.
func (w *weather) last(t testing.TB) *http.Request {
	t.Helper()
	all := w.reached()
	if len(all) == 0 {
		t.Fatal("no request has reached the server")
	}
	return all[len(all)-1]
}

const resourceList = `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"weather.example.com/v1","resources":[
	{"name":"forecasts","singularName":"forecast","namespaced":true,"kind":"Forecast","verbs":["create","delete","get","list","watch"],"shortNames":["fc"]},
	{"name":"forecasts/radio","singularName":"","namespaced":true,"kind":"Radio","verbs":["get"]}]}`

const openAPIDocument = `{"openapi":"3.0.0","info":{"title":"weather","version":"v1"},"paths":{"/apis/weather.example.com/v1/namespaces/{namespace}/forecasts/{name}":{"get":{"x-kubernetes-action":"get",
	"x-kubernetes-group-version-kind":{"group":"weather.example.com","version":"v1","kind":"Forecast"},"responses":{"200":{"description":"OK"}}}}},"components":{"schemas":{"com.example.weather.v1.Forecast":{
	"description":"A forecast says what the weather will be.","type":"object","x-kubernetes-group-version-kind":[{"group":"weather.example.com","version":"v1","kind":"Forecast"}],
	"properties":{"spec":{"description":"The place and the time.","type":"object"}}}}}}`

func forecast(name string) string {
	return fmt.Sprintf(`{"kind":"Forecast","apiVersion":"weather.example.com/v1","metadata":{"name":%q,"namespace":"default","resourceVersion":"7"}}`, name)
}

func (w *weather) serve(a http.ResponseWriter, h *http.Request) {
	says := func(text string) {
		a.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(a, text)
	}
	if w.Down.Load() {
		http.Error(a, "down", http.StatusServiceUnavailable)
		return
	}
	switch h.URL.Path {
	case base:
		if list, _ := w.List.Load().(string); list != "" {
			says(list)
			return
		}
		says(resourceList)
		return
	case "/openapi/v3":
		says(`{"paths":{"apis/weather.example.com/v1":{"serverRelativeURL":"/openapi/v3/apis/weather.example.com/v1?hash=A"}}}`)
		return
	case "/openapi/v3/apis/weather.example.com/v1":
		says(openAPIDocument)
		return
	}
	body, _ := io.ReadAll(h.Body)
	kept := h.Clone(context.Background())
	kept.Body = io.NopCloser(strings.NewReader(string(body)))
	w.mu.Lock()
	w.seen = append(w.seen, kept)
	w.mu.Unlock()
	name := strings.TrimPrefix(strings.TrimPrefix(h.URL.Path, forecasts), "/")
	switch name {
	case "":
		w.collection(a, h, says)
	case "hang":
		select {
		case <-w.held:
		case <-h.Context().Done():
		}
	case "redirect":
		http.Redirect(a, h, "http://169.254.169.254/latest/meta-data", http.StatusFound)
	case "untrusted":
		a.WriteHeader(http.StatusUnauthorized)
	case "broken":
		a.Header().Set("Content-Length", "1000")
		says(`{"kind":"Forecast"`)
		a.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	case "odd":
		a.Header().Set("Audit-Id", "forged")
		a.Header().Set("Set-Cookie", "a=b")
		a.Header().Set("Access-Control-Allow-Origin", "*")
		a.WriteHeader(http.StatusTeapot)
	case "rain/radio":
		w.radio(a, h)
	default:
		says(forecast(name))
	}
}

// collection lists, watches and creates.
func (w *weather) collection(a http.ResponseWriter, h *http.Request, says func(string)) {
	switch {
	case h.Method == http.MethodPost:
		a.Header().Set("Content-Type", "application/json")
		a.WriteHeader(http.StatusCreated)
		says(forecast("made"))
	case h.URL.Query().Get("watch") != "":
		a.Header().Set("Content-Type", "application/json")
		for i := 0; ; i++ {
			if _, err := fmt.Fprintf(a, `{"type":"ADDED","object":%s}`+"\n", forecast(fmt.Sprint("n", i))); err != nil {
				return
			}
			a.(http.Flusher).Flush()
			if i >= 1 {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		select {
		case <-w.held:
		case <-h.Context().Done():
		}
	default:
		says(`{"kind":"ForecastList","apiVersion":"weather.example.com/v1","metadata":{"resourceVersion":"7"},"items":[` + forecast("rain") + `]}`)
	}
}

// radio echoes the lines of a connection.
func (w *weather) radio(a http.ResponseWriter, h *http.Request) {
	if h.Header.Get("Upgrade") != "echo" {
		http.Error(a, "want an upgrade", http.StatusBadRequest)
		return
	}
	conn, buffered, err := a.(http.Hijacker).Hijack()
	if err != nil {
		return
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	for {
		line, err := buffered.ReadString('\n')
		if err != nil {
			return
		}
		_, _ = io.WriteString(conn, "heard "+line)
	}
}

// bundle is a bundle with servers; eddie may do all with forecasts.
func bundle(aggregates string) string {
	return strings.Replace(planetest.Bundle, `cluster: "test"`, `cluster: "test"
	aggregate: {`+aggregates+`}
	teams: sky: {
		contact: "#sky", groups: ["weather.example.com"], namespaces: ["*"]
		rbac: {
			clusterRoles: forecaster: rules: all: {verbs: ["*"], apiGroups: ["weather.example.com"], resources: ["*"]}
			bindings: eddie: {clusterRole: "forecaster", subjects: [{user: "eddie"}, {group: "forecasters"}], namespaces: ["*"]}
		}
	}`, 1)
}

// site is a control plane with a port, which passes requests on to servers.
type site struct {
	*planetest.Plane
	t     testing.TB
	admin *rest.Config
}

func newSite(t testing.TB, aggregates string) *site {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	chosen, err := controllers.Select([]string{"*"})
	if err != nil {
		t.Fatal(err)
	}
	s := &site{Plane: planetest.Start(t, planetest.Options{Bundle: bundle(aggregates), Config: plane.Config{Listener: listener, Controllers: chosen}}), t: t}
	if s.admin, err = clientcmd.BuildConfigFromFlags("", s.Kubeconfig()); err != nil {
		t.Fatal(err)
	}
	return s
}

// as returns the configuration of a client with a static token.
func (s *site) as(token string) *rest.Config {
	c := rest.AnonymousClientConfig(s.admin)
	c.BearerToken = token
	return c
}

// await waits until a condition holds.
func await(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !holds(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within a minute", what)
		}
	}
}

// reply is an answer that was read.
type reply struct {
	*http.Response
	body string
}

// status returns the message of a Status.
func (r reply) status() string {
	var s struct{ Message string }
	_ = json.Unmarshal([]byte(r.body), &s)
	return s.Message
}

// send sends a request with some headers, as key and value.
func (s *site) send(c *rest.Config, method, path, body string, headers ...string) reply {
	s.t.Helper()
	got, err := s.try(c, method, path, body, headers...)
	if err != nil {
		s.t.Fatal(err)
	}
	return got
}

// try is send for any goroutine.
func (s *site) try(c *rest.Config, method, path, body string, headers ...string) (reply, error) {
	client, err := rest.HTTPClientFor(c)
	if err != nil {
		return reply{}, err
	}
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	q, err := http.NewRequestWithContext(s.t.Context(), method, s.admin.Host+path, strings.NewReader(body))
	if err != nil {
		return reply{}, err
	}
	for i := 0; i+1 < len(headers); i += 2 {
		q.Header.Add(headers[i], headers[i+1])
	}
	answer, err := client.Do(q)
	if err != nil {
		return reply{}, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return reply{answer, "broken: " + err.Error()}, nil
	}
	return reply{answer, string(text)}, nil
}

// awaitServed waits until the server is available.
func (s *site) awaitServed() {
	s.t.Helper()
	await(s.t, "the server is available", func() bool { return s.available("v1."+group) == "True" })
}

// available returns the status of the condition Available of an APIService, and its reason if that is not True.
func (s *site) available(name string) string {
	s.t.Helper()
	var o struct {
		Status struct {
			Conditions []struct{ Status, Reason, Message string }
		}
	}
	if err := json.Unmarshal([]byte(s.send(s.admin, "GET", "/apis/apiregistration.k8s.io/v1/apiservices/"+name, "").body), &o); err != nil || len(o.Status.Conditions) == 0 {
		return "none"
	}
	c := o.Status.Conditions[0]
	if c.Status == "True" {
		return c.Status
	}
	return c.Status + " " + c.Reason + " " + c.Message
}

// lines reads lines of a connection.
func lines(r io.Reader) func() string {
	buffered := bufio.NewReader(r)
	return func() string {
		line, err := buffered.ReadString('\n')
		if err != nil {
			return "ended: " + err.Error()
		}
		return strings.TrimSpace(line)
	}
}
