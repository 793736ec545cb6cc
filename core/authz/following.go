package authz

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	configmetrics "k8s.io/apiserver/pkg/server/options/authorizationconfig/metrics"
	"stele.dev/stele/core/reload"
)

// follow puts a file of the operator's in use, unless there is none, and again when what is read of it, and of
// what it names, is another content.
func (a *Authorizers) follow(flag, path string, read func() ([]byte, error), load func([]byte) error) {
	if path == "" {
		return
	}
	f := &reload.File{Path: path, Read: read, Load: func(_ context.Context, content []byte) error { return load(content) }}
	f.Content, _ = read() // what is wrong with it is said when it is loaded
	f.Outcome = a.metrics.Outcome(a.logger, flag, path)
	if tell := f.Outcome; path == a.options.ConfigFile {
		f.Outcome = func(err error) { a.recordReload(err); tell(err) }
	}
	a.files = append(a.files, f)
}

// Reload reads the operator's files anew. What cannot be read stays as it was.
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

// record says which webhooks are in use: of kubeconfigs where the endpoints are and which authorities they have, not
// by what this replica is known to them, which each has its own of.
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

// recordReload counts as kube-apiserver does what came of a change of the AuthorizationConfiguration.
func (a *Authorizers) recordReload(err error) {
	if err != nil {
		configmetrics.RecordAuthorizationConfigAutomaticReloadFailure("")
		return
	}
	configmetrics.RecordAuthorizationConfigAutomaticReloadSuccess("", string(a.webhooks.Load().text))
}

// Describe implements prometheus.Collector.
func (a *Authorizers) Describe(to chan<- *prometheus.Desc) { a.metrics.Describe(to) }

// Collect implements prometheus.Collector: what is in use of the operator's files.
func (a *Authorizers) Collect(to chan<- prometheus.Metric) { a.metrics.Collect(to) }
