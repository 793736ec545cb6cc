package nonresource

import (
	"context"
	"net/http"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/prometheus/slis"
)

// newSLIs returns the handler of /metrics/slis: the results of health checks, as far as probes have asked for them (KEP-3466).
func newSLIs() http.Handler {
	registry := metrics.NewKubeRegistry()
	slis.Register(registry)
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{})
}

// observe counts the result of a check for a probe of /healthz, /livez or /readyz.
func observe(ctx context.Context, probe, check string, err error) {
	result := slis.Success
	if err != nil {
		result = slis.Error
	}
	_ = slis.ObserveHealthcheck(ctx, check, probe, result) // it has no errors
}
