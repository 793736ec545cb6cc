package core_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	prommodel "github.com/prometheus/common/model"
	"k8s.io/apimachinery/pkg/util/sets"
	endpoints "k8s.io/apiserver/pkg/endpoints/metrics"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/component-base/metrics/legacyregistry"
	"stele.dev/stele/core/run/plane/planetest"
)

// described is what a dashboard needs of a family: its type and help, and the labels and buckets of each series.
func described(f *dto.MetricFamily) []string {
	lines := []string{f.GetName() + " " + f.GetType().String() + " " + strings.TrimPrefix(strings.TrimPrefix(strings.TrimPrefix(f.GetHelp(), "[STABLE] "), "[ALPHA] "), "[BETA] ")}
	for _, m := range f.Metric {
		var line strings.Builder
		labels := slices.SortedFunc(slices.Values(m.Label), func(a, b *dto.LabelPair) int { return strings.Compare(a.GetName(), b.GetName()) })
		for _, l := range labels {
			fmt.Fprintf(&line, "%s=%q ", l.GetName(), l.GetValue())
		}
		if m.Counter != nil {
			fmt.Fprintf(&line, "%v", m.Counter.GetValue())
		}
		for _, b := range m.GetHistogram().GetBucket() {
			fmt.Fprintf(&line, "%v,", b.GetUpperBound())
		}
		lines = append(lines, strings.TrimSuffix(line.String(), "+Inf,"))
	}
	slices.Sort(lines[1:])
	return lines
}

// families are those of a text that are wanted.
func families(t *testing.T, text []byte, wanted ...string) map[string]*dto.MetricFamily {
	t.Helper()
	parser := expfmt.NewTextParser(prommodel.LegacyValidation)
	all, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	for name := range all {
		if !slices.Contains(wanted, name) {
			delete(all, name)
		}
	}
	return all
}

// What is measured of requests has upstream's names, labels, values and buckets: each request is told to upstream's
// functions as well, as upstream's handler of custom kinds tells them.
func TestMetricsOfRequestsAreUpstreams(t *testing.T) {
	endpoints.Register()
	endpoints.Reset()
	p := planetest.NewPlane(t)
	infos := &apirequest.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}
	const merge, apply = "application/merge-patch+json", "application/apply-patch+yaml"
	send := func(method, path, body, contentType string) {
		r := planetest.Request(method, path, body)
		if contentType != "" {
			r.Header.Set("Content-Type", contentType)
		}
		a := p.Serve(r)
		info, err := infos.NewRequestInfo(r)
		if err != nil {
			t.Fatal(err)
		}
		r = r.WithContext(apirequest.WithLatencyTrackers(apirequest.WithRequestInfo(r.Context(), info)))
		endpoints.MonitorRequest(r, strings.ToUpper(info.Verb), info.APIGroup, info.APIVersion, info.Resource, info.Subresource, endpoints.CleanScope(info), endpoints.APIServerComponent, false, "", a.Code, len(a.Body), time.Millisecond)
	}
	for _, q := range []struct{ method, path, body, contentType string }{
		{"POST", planetest.WidgetsPath, planetest.Widget("a", 1), ""},
		{"POST", planetest.WidgetsPath, planetest.Widget("a", 1), ""},
		{"POST", planetest.WidgetsPath + "?dryRun=All", planetest.Widget("b", 1), ""},
		{"POST", planetest.WidgetsPath + "?dryRun=Some", planetest.Widget("b", 1), ""},
		{"GET", planetest.WidgetsPath, "", ""},
		{"GET", planetest.WidgetsPath + "/a", "", ""},
		{"GET", planetest.WidgetsPath + "/b", "", ""},
		{"GET", planetest.WidgetsPath + "/a/status", "", ""},
		{"GET", "/apis/example.com/v1/widgets", "", ""},
		{"GET", "/apis/example.com/v1/plains", "", ""},
		{"GET", planetest.WidgetsPath + "?watch=1&timeoutSeconds=1&resourceVersion=999999", "", ""},
		{"PUT", planetest.WidgetsPath + "/a", planetest.Widget("a", 2), ""},
		{"PATCH", planetest.WidgetsPath + "/a", `{"spec":{"size":3}}`, merge},
		{"PATCH", planetest.WidgetsPath + "/a?fieldManager=m&force=true", `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"a"},"spec":{"size":4}}`, apply},
		{"DELETE", planetest.WidgetsPath + "/a?dryRun=All", "", ""},
		{"DELETE", planetest.WidgetsPath + "/a", "", ""},
		{"DELETE", planetest.WidgetsPath, "", ""},
	} {
		send(q.method, q.path, q.body, q.contentType)
	}
	p.Must(t, 200, "GET", "/livez", "")
	endpoints.InstrumentHandlerFunc("GET", "", "", "", "/livez", "", endpoints.APIServerComponent, false, "", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") })(httptest.NewRecorder(), httptest.NewRequestWithContext(apirequest.WithLatencyTrackers(t.Context()), "GET", "/livez", nil))

	running := planetest.WatchWidgets + "&resourceVersion=" + fmt.Sprint(p.Committer.Tip().Revision())
	w := p.Watch(t, running)
	send("POST", planetest.WidgetsPath, planetest.Widget("c", 1), "")
	w.Next(t)
	endpoints.WatchEvents.WithLabelValues("example.com", "v1", "widgets").Inc()
	endpoints.WatchEventsSizes.WithLabelValues("example.com", "v1", "widgets").Observe(1)
	r := planetest.Request("GET", running, "")
	info, _ := infos.NewRequestInfo(r)
	names := []string{
		"apiserver_request_total", "apiserver_request_duration_seconds", "apiserver_request_sli_duration_seconds", "apiserver_response_sizes", "apiserver_longrunning_requests",
		"apiserver_watch_events_total", "apiserver_watch_events_sizes",
	}
	var upstream []*dto.MetricFamily
	endpoints.RecordLongRunning(r, info, endpoints.APIServerComponent, func() {
		var err error
		if upstream, err = legacyregistry.DefaultGatherer.Gather(); err != nil {
			t.Fatal(err)
		}
	})
	got := families(t, p.Must(t, 200, "GET", "/metrics", "").Body, names...)
	compared := 0
	for _, f := range upstream {
		own := got[f.GetName()]
		if own == nil {
			continue
		}
		compared++
		if diff := cmp.Diff(described(f), described(own)); diff != "" {
			t.Errorf("(-upstream +stele)\n%s", diff)
		}
	}
	if compared != len(names) {
		t.Errorf("%d families are compared", compared)
	}
}
