package tracing_test

import (
	"context"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"stele.dev/stele/core/run/plane"
	"stele.dev/stele/core/run/plane/planetest"
	"stele.dev/stele/core/tracing"
)

// spans is a collector: it keeps the spans that are sent to it.
type spans struct {
	collector.UnimplementedTraceServiceServer
	mu   sync.Mutex
	kept []*otlp.Span
}

func (s *spans) Export(_ context.Context, r *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, of := range r.ResourceSpans {
		for _, in := range of.ScopeSpans {
			s.kept = append(s.kept, in.Spans...)
		}
	}
	return &collector.ExportTraceServiceResponse{}, nil
}

// all returns the spans that have arrived.
func (s *spans) all() []*otlp.Span {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.kept)
}

// newCollector starts a collector, and returns where it listens.
func newCollector(t testing.TB) (*spans, string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s, server := &spans{}, grpc.NewServer()
	collector.RegisterTraceServiceServer(server, s)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	return s, listener.Addr().String()
}

// configuration writes a file with a TracingConfiguration.
func configuration(t testing.TB, lines ...string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "tracing.yaml")
	text := "apiVersion: apiserver.config.k8s.io/v1\nkind: TracingConfiguration\n" + strings.Join(lines, "\n") + "\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func newTracer(t testing.TB, endpoint string, rate int) *tracing.Tracer {
	t.Helper()
	config, err := tracing.ReadConfig(configuration(t, "endpoint: "+endpoint, "samplingRatePerMillion: "+strconv.Itoa(rate)))
	if err != nil {
		t.Fatal(err)
	}
	tracer, err := tracing.New(t.Context(), config, "test", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return tracer
}

// send sends a request, and returns the answer.
func send(t *testing.T, p *planetest.Plane, code int, method, path, body string, header ...string) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	p.ServeHTTP(w, planetest.Request(method, path, body, header...))
	if w.Code != code {
		t.Fatalf("%s %s: %d %s", method, path, w.Code, w.Body)
	}
	return w
}

// children returns the names of the spans below one, in the order in which they began.
func children(all []*otlp.Span, of *otlp.Span) (names []string) {
	all = slices.Clone(all)
	slices.SortStableFunc(all, func(a, b *otlp.Span) int { return int(a.StartTimeUnixNano) - int(b.StartTimeUnixNano) })
	for _, x := range all {
		if string(x.ParentSpanId) == string(of.SpanId) {
			names = append(names, x.Name)
		}
	}
	return names
}

func find(t *testing.T, all []*otlp.Span, name string) *otlp.Span {
	t.Helper()
	i := slices.IndexFunc(all, func(s *otlp.Span) bool { return s.Name == name })
	if i < 0 {
		t.Fatalf("there is no span %q", name)
	}
	return all[i]
}

func attributes(s *otlp.Span) map[string]string {
	values := map[string]string{}
	for _, a := range s.Attributes {
		values[a.Key] = a.Value.GetStringValue()
		if n := a.Value.GetIntValue(); n != 0 {
			values[a.Key] = strconv.FormatInt(n, 10)
		}
	}
	return values
}

// shutdown waits until the collector has all spans.
func shutdown(t *testing.T, tracer *tracing.Tracer) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tracer.Shutdown(ctx)
}

const createSpan, getSpan = "POST /apis/example.com/v1/namespaces/{:namespace}/widgets", "GET /apis/example.com/v1/namespaces/{:namespace}/widgets/{:name}"

func TestEachStageOfARequestHasASpan(t *testing.T) {
	kept, endpoint := newCollector(t)
	tracer := newTracer(t, endpoint, 1_000_000)
	p := planetest.Start(t, planetest.Options{Config: plane.Config{Tracer: tracer}, Bundle: planetest.Bundle})
	w := send(t, p, 201, "POST", planetest.WidgetsPath, planetest.Widget("w", 1), "Authorization", "Bearer editor-token")
	send(t, p, 403, "DELETE", planetest.WidgetsPath+"/w", "", "Authorization", "Bearer nobody-token")
	shutdown(t, tracer)

	expectSpans(t, p, map[string]int{"stele_tracing_sent_spans_total": len(kept.all()), `stele_tracing_dropped_spans_total{reason="queue_full"}`: 0, `stele_tracing_dropped_spans_total{reason="send_failed"}`: 0})
	create := find(t, kept.all(), createSpan)
	want := []string{"connection", "authentication", "impersonation", "flow", "authorization", "decode", "mutation", "schema", "conditions", "validation", "commit"}
	if got := children(kept.all(), create); !slices.Equal(got, want) {
		t.Errorf("the spans of the stages are %v, want %v", got, want)
	}
	at := slices.IndexFunc(kept.all(), func(s *otlp.Span) bool { return s.Name == "commit" && string(s.ParentSpanId) == string(create.SpanId) })
	commit := kept.all()[at]
	if got := children(kept.all(), commit); !slices.Equal(got, []string{"append"}) {
		t.Errorf("below the commit are %v", got)
	}
	a := attributes(create)
	if a["audit-id"] != w.Header().Get("Audit-Id") || a["http.response.status_code"] != "201" || a["http.request.method"] != "POST" {
		t.Errorf("the span has the attributes %v", a)
	}
	if a := attributes(find(t, kept.all(), strings.Replace(getSpan, "GET", "DELETE", 1))); a["stele.stage"] != "authorization" || a["http.response.status_code"] != "403" {
		t.Errorf("the span of a refused request has the attributes %v", a)
	}
}

// The server continues the trace of a caller that it trusts, as kube-apiserver does. Other callers could make it trace all of their
// requests.
func TestTracesOfTrustedCallersAreContinued(t *testing.T) {
	const trace, sampled, not = "4bf92f3577b34da6a3ce929d0e0e4736", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00"
	for name, tt := range map[string]struct {
		rate               int
		token, traceparent string
		spans, continued   bool
		linked             int
	}{
		"administrator, traced":     {0, "admin-token", sampled, true, true, 0},
		"administrator, not traced": {1_000_000, "admin-token", not, false, false, 0},
		"other user, not sampled":   {0, "editor-token", sampled, false, false, 0},
		"other user, sampled":       {1_000_000, "editor-token", sampled, true, false, 1},
		"header that is none":       {1_000_000, "admin-token", "00-zz", true, false, 0},
		"no header, rate 0":         {0, "admin-token", "", false, false, 0},
		"no header, rate 1 of 1":    {1_000_000, "admin-token", "", true, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			kept, endpoint := newCollector(t)
			tracer := newTracer(t, endpoint, tt.rate)
			p := planetest.Start(t, planetest.Options{Config: plane.Config{Tracer: tracer}, Bundle: planetest.Bundle})
			send(t, p, 404, "GET", planetest.WidgetsPath+"/w", "", "Authorization", "Bearer "+tt.token, "Traceparent", tt.traceparent)
			shutdown(t, tracer)
			if !tt.spans {
				if len(kept.all()) > 0 {
					t.Errorf("there are %d spans", len(kept.all()))
				}
				return
			}
			get := find(t, kept.all(), getSpan)
			if continued := hex.EncodeToString(get.TraceId) == trace; continued != tt.continued || len(get.Links) != tt.linked {
				t.Errorf("the trace is continued: %v; it has %d links", continued, len(get.Links))
			}
		})
	}
}

// A webhook gets the span of the question.
func TestWebhooksGetTheTrace(t *testing.T) {
	kept, endpoint := newCollector(t)
	tracer := newTracer(t, endpoint, 1_000_000)
	header := make(chan string, 1)
	hook := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header <- r.Header.Get("Traceparent")
		http.Error(w, "no", http.StatusTeapot)
	}))
	t.Cleanup(hook.Close)
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: hook.Certificate().Raw})
	bundle := planetest.Bundle + fmt.Sprintf(`
bundle: teams: t: admission: webhooks: validating: "check.example.com": {
	rules: all: {apiGroups: ["example.com"], resources: ["widgets"], operations: ["CREATE"]}
	sideEffects: "None", failurePolicy: "Ignore", clientConfig: {url: %q, caBundle: %q}
}
`, hook.URL, authority)
	p := planetest.Start(t, planetest.Options{Config: plane.Config{Tracer: tracer}, Bundle: bundle})
	send(t, p, 201, "POST", planetest.WidgetsPath, planetest.Widget("w", 1))
	shutdown(t, tracer)
	asked := find(t, kept.all(), "webhook check.example.com")
	want := "00-" + hex.EncodeToString(asked.TraceId) + "-" + hex.EncodeToString(asked.SpanId) + "-01"
	if got := <-header; got != want {
		t.Errorf("the webhook gets %q, want %q", got, want)
	}
	if got := children(kept.all(), find(t, kept.all(), createSpan)); !slices.Contains(got, "validation") {
		t.Errorf("the stages are %v", got)
	}
}

// expectSpans expects values of metrics.
func expectSpans(t *testing.T, p *planetest.Plane, want map[string]int) {
	t.Helper()
	metrics := send(t, p, 200, "GET", "/metrics", "").Body.String()
	for series, n := range want {
		if line := fmt.Sprintf("\n%s %d\n", series, n); !strings.Contains(metrics, line) {
			t.Errorf("the metrics do not have%s", line)
		}
	}
}

// A collector that takes connections and never answers delays neither requests nor the stop.
func TestACollectorThatHangsDelaysNothing(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	tracer := newTracer(t, listener.Addr().String(), 1_000_000)
	p := planetest.Start(t, planetest.Options{Config: plane.Config{Tracer: tracer}, Bundle: planetest.Bundle})
	for range 1000 { // 7,000 spans: more than the queue has room for
		send(t, p, 404, "GET", planetest.WidgetsPath+"/w", "")
	}
	expectSpans(t, p, map[string]int{"stele_tracing_sent_spans_total": 0})
	dropped := regexp.MustCompile(`stele_tracing_dropped_spans_total\{reason="queue_full"\} (\d+)`).FindStringSubmatch(send(t, p, 200, "GET", "/metrics", "").Body.String())
	if dropped[1] == "0" {
		t.Error("no spans are counted as dropped")
	}
	began := time.Now()
	tracer.Shutdown(t.Context())
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("the stop took %s", took)
	}
}

func TestConfigurationsAreRead(t *testing.T) {
	for name, tt := range map[string]struct {
		lines []string
		want  string
	}{
		"nothing":         {nil, ""},
		"unknown field":   {[]string{"rate: 1"}, "unknown field"},
		"rate above all":  {[]string{"samplingRatePerMillion: 1000001"}, "less than or equal to one million"},
		"unknown scheme":  {[]string{"endpoint: ftp://x"}, "unsupported scheme"},
		"socket":          {[]string{"endpoint: unix:///run/otel.sock"}, ""},
		"rate below zero": {[]string{"samplingRatePerMillion: -1"}, "must be positive"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := tracing.ReadConfig(configuration(t, tt.lines...))
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("the error is %v, want %q", err, tt.want)
			}
		})
	}
	if _, err := tracing.ReadConfig(filepath.Join(t.TempDir(), "none.yaml")); err == nil {
		t.Error("a file that is not there is read")
	}
}

// What tracing costs a get, without TLS and HTTP/2: off, of one request in a hundred, and of all.
func BenchmarkGet(b *testing.B) {
	for name, rate := range map[string]int{"off": -1, "never": 0, "one in a hundred": 10_000, "all": 1_000_000} {
		b.Run(name, func(b *testing.B) {
			var tracer *tracing.Tracer
			if rate >= 0 {
				_, endpoint := newCollector(b)
				tracer = newTracer(b, endpoint, rate)
				defer tracer.Shutdown(b.Context())
			}
			p := planetest.Start(b, planetest.Options{Config: plane.Config{Tracer: tracer}, Bundle: planetest.Bundle})
			p.ServeHTTP(httptest.NewRecorder(), planetest.Request("POST", planetest.WidgetsPath, planetest.Widget("w", 1)))
			b.ReportAllocs()
			for b.Loop() {
				w := httptest.NewRecorder()
				if p.ServeHTTP(w, planetest.Request("GET", planetest.WidgetsPath+"/w", "")); w.Code != http.StatusOK {
					b.Fatal(w.Body)
				}
			}
		})
	}
}
