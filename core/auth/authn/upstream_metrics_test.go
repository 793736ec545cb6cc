package authn_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/component-base/metrics/legacyregistry"
	"stele.dev/stele/core/auth/authn"
)

// What is measured of authentication under upstream's names has upstream's labels and buckets.
func TestMetricsOfAuthenticationAreUpstreams(t *testing.T) {
	nobody := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	known := authenticator.RequestFunc(func(*http.Request) (*authenticator.Response, bool, error) {
		return &authenticator.Response{User: &user.DefaultInfo{Name: "admin"}}, true, nil
	})
	filters.WithAuthentication(nobody, known, nobody, nil, nil).ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(context.Background(), "GET", "/", nil))
	upstream, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	log := authn.NewFailureLog(authn.FailureOptions{})
	log.Attempted(&user.DefaultInfo{Name: "admin"}, nil, time.Millisecond)
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(log)
	own, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	compared := 0
	for _, want := range upstream {
		i := slices.IndexFunc(own, func(f *dto.MetricFamily) bool { return f.GetName() == want.GetName() })
		if i < 0 {
			continue
		}
		compared++
		series := func(f *dto.MetricFamily) (all []string) {
			for _, m := range f.Metric {
				text := ""
				for _, l := range m.Label {
					text += l.GetName() + "=" + l.GetValue() + " "
				}
				all = append(all, text)
			}
			return all
		}
		for _, labels := range series(want) {
			if !slices.Contains(series(own[i]), labels) {
				t.Errorf("%s has no %s", want.GetName(), labels)
			}
		}
		bounds := func(f *dto.MetricFamily) (all []float64) {
			for _, b := range f.Metric[0].GetHistogram().GetBucket() {
				all = append(all, b.GetUpperBound())
			}
			return all
		}
		if diff := cmp.Diff(bounds(want), bounds(own[i])); diff != "" || want.GetType() != own[i].GetType() {
			t.Errorf("%s is a %s, upstream a %s (-upstream +stele):\n%s", want.GetName(), own[i].GetType(), want.GetType(), diff)
		}
	}
	if compared != 3 {
		t.Errorf("%d families are compared", compared)
	}
}
