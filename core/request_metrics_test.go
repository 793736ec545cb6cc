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
)

// described is what a dashboard needs of a family: its type and help, and the labels and buckets of each series.
func described(f *dto.MetricFamily) []string {
	lines := []string{f.GetName() + " " + f.GetType().String() + " " + strings.TrimPrefix(strings.TrimPrefix(f.GetHelp(), "[STABLE] "), "[ALPHA] ")}
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
	p := newPlane(t)
	infos := &apirequest.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}
	const merge, apply = "application/merge-patch+json", "application/apply-patch+yaml"
	send := func(method, path, body, contentType string) {
		r := request(method, path, body)
		if contentType != "" {
			r.Header.Set("Content-Type", contentType)
		}
		a := p.serve(r)
		info, err := infos.NewRequestInfo(r)
		if err != nil {
			t.Fatal(err)
		}
		r = r.WithContext(apirequest.WithRequestInfo(r.Context(), info))
		endpoints.MonitorRequest(r, strings.ToUpper(info.Verb), info.APIGroup, info.APIVersion, info.Resource, info.Subresource, endpoints.CleanScope(info), endpoints.APIServerComponent, false, "", a.code, len(a.body), time.Millisecond)
	}
	for _, q := range []struct{ method, path, body, contentType string }{
		{"POST", widgetsPath, widget("a", 1), ""},
		{"POST", widgetsPath, widget("a", 1), ""},
		{"POST", widgetsPath + "?dryRun=All", widget("b", 1), ""},
		{"POST", widgetsPath + "?dryRun=Some", widget("b", 1), ""},
		{"GET", widgetsPath, "", ""},
		{"GET", widgetsPath + "/a", "", ""},
		{"GET", widgetsPath + "/b", "", ""},
		{"GET", widgetsPath + "/a/status", "", ""},
		{"GET", "/apis/example.com/v1/widgets", "", ""},
		{"GET", "/apis/example.com/v1/plains", "", ""},
		{"GET", widgetsPath + "?watch=1&timeoutSeconds=1&resourceVersion=999999", "", ""},
		{"PUT", widgetsPath + "/a", widget("a", 2), ""},
		{"PATCH", widgetsPath + "/a", `{"spec":{"size":3}}`, merge},
		{"PATCH", widgetsPath + "/a?fieldManager=m&force=true", `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"a"},"spec":{"size":4}}`, apply},
		{"DELETE", widgetsPath + "/a?dryRun=All", "", ""},
		{"DELETE", widgetsPath + "/a", "", ""},
		{"DELETE", widgetsPath, "", ""},
	} {
		send(q.method, q.path, q.body, q.contentType)
	}
	p.must(t, 200, "GET", "/livez", "")
	endpoints.InstrumentHandlerFunc("GET", "", "", "", "/livez", "", endpoints.APIServerComponent, false, "", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") })(httptest.NewRecorder(), httptest.NewRequest("GET", "/livez", nil))

	running := watchWidgets + "&resourceVersion=" + fmt.Sprint(p.committer.Tip().Revision())
	w := p.watch(t, running)
	send("POST", widgetsPath, widget("c", 1), "")
	w.next(t)
	r := request("GET", running, "")
	info, _ := infos.NewRequestInfo(r)
	const total, duration, longrunning = "apiserver_request_total", "apiserver_request_duration_seconds", "apiserver_longrunning_requests"
	var upstream []*dto.MetricFamily
	endpoints.RecordLongRunning(r, info, endpoints.APIServerComponent, func() {
		var err error
		if upstream, err = legacyregistry.DefaultGatherer.Gather(); err != nil {
			t.Fatal(err)
		}
	})
	got := families(t, p.must(t, 200, "GET", "/metrics", "").body, total, duration, longrunning)
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
	if compared != 3 {
		t.Errorf("%d families are compared", compared)
	}
}
