package authz

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	configmetrics "k8s.io/apiserver/pkg/server/options/authorizationconfig/metrics"
	"stele.dev/stele/limits/reload"
)

// follow loads a file of the operator, unless there is none, and loads it again when it or a file that it names
// changes.
func (a *Authorizers) follow(flag, path string, read func() ([]byte, error), load func([]byte) error) {
	if path == "" {
		return
	}
	f := &reload.File{Path: path, Read: read, Load: func(_ context.Context, content []byte) error { return load(content) }}
	f.Content, _ = read() // load reports the error
	f.Outcome = a.metrics.Outcome(a.logger, flag, path)
	if tell := f.Outcome; path == a.options.ConfigFile {
		f.Outcome = func(err error) { a.recordReload(err); tell(err) }
	}
	a.files = append(a.files, f)
}

// Reload reads the operator's files again. A file that cannot be read stays as it was.
func (a *Authorizers) Reload() error {
	var errs []error
	for _, f := range a.files {
		content, err := f.Read()
		if err == nil {
			err = f.Load(context.Background(), content)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// record sets the metrics of the webhooks in use. The hash of a kubeconfig covers endpoints and authorities, but not
// the credentials, which differ between replicas.
func (a *Authorizers) record(w *webhooks) {
	flag := "authorization-webhook-config-file"
	if a.options.ConfigFile != "" {
		flag = "authorization-config"
		configmetrics.RegisterMetrics()
		configmetrics.RecordAuthorizationConfigLastConfigInfo("", string(w.text))
	}
	inUse := slices.Clone(w.text)
	for _, name := range slices.Sorted(maps.Keys(w.endpoints)) {
		client := w.endpoints[name].client
		inUse = fmt.Appendf(inUse, "\n%q %q %q", name, client.Host, client.CAData)
	}
	a.metrics.InUse(flag, inUse)
}

// recordReload counts the outcome of a reload of the AuthorizationConfiguration, as kube-apiserver does.
func (a *Authorizers) recordReload(err error) {
	if err != nil {
		configmetrics.RecordAuthorizationConfigAutomaticReloadFailure("")
		return
	}
	configmetrics.RecordAuthorizationConfigAutomaticReloadSuccess("", string(a.webhooks.Load().text))
}

// Digest returns a digest of the operator's files that are in use; "" if there are none. The credentials of webhooks do
// not count.
func (a *Authorizers) Digest() string { return a.metrics.Digest() }

// Describe implements prometheus.Collector.
func (a *Authorizers) Describe(to chan<- *prometheus.Desc) { a.metrics.Describe(to) }

// Collect implements prometheus.Collector. It reports which of the operator's files are in use.
func (a *Authorizers) Collect(to chan<- prometheus.Metric) { a.metrics.Collect(to) }
