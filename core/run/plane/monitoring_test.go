package plane_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/VictoriaMetrics/metricsql"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"
	"stele.dev/stele/core/record/audit"
	"stele.dev/stele/core/run/controllers"
	"stele.dev/stele/core/run/plane"
	"stele.dev/stele/core/run/plane/datadir"
	"stele.dev/stele/core/run/plane/planetest"
	"stele.dev/stele/core/tracing"
	"stele.dev/stele/policy/bundles"
)

var metricsWrite = flag.Bool("metrics.write", false, "write docs/METRICS.md anew")

// family is a metric of a server.
type family struct {
	name, kind, help string
	labels           []string
	series           []map[string]string
}

// loaded is a control plane with all that has metrics, after requests of each sort. Its metrics are by name.
func loaded(t *testing.T) map[string]*family {
	t.Helper()
	data, err := datadir.Open(t.TempDir(), datadir.Options{})
	if err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(data.Metrics()...)
	source, err := bundles.ReadFS(fstest.MapFS{"cue.mod/module.cue": bundle["cue.mod/module.cue"], "bundle.cue": {Data: []byte(planetest.Bundle)}}, ".")
	if err != nil {
		t.Fatal(err)
	}
	tokens := filepath.Join(t.TempDir(), "tokens.csv")
	if err := os.WriteFile(tokens, []byte(planetest.Tokens), 0o600); err != nil {
		t.Fatal(err)
	}
	all, err := controllers.Select([]string{"*"})
	if err != nil {
		t.Fatal(err)
	}
	tracer, err := tracing.New(t.Context(), &tracing.Config{Endpoint: ptr.To("127.0.0.1:1")}, "test", slog.New(slog.DiscardHandler)) // which traces nothing
	if err != nil {
		t.Fatal(err)
	}
	defer tracer.Shutdown(t.Context())
	c := plane.Config{
		Tracer: tracer, Dir: data.Path(), OpenLog: data.OpenLog, Policy: source, Metrics: registry, Controllers: all,
		Audit: plane.Audit{Sinks: []plane.AuditSink{{Sink: audit.NewLines("stdout", new(bytes.Buffer)), Local: true}}},
	}
	c.Authentication.TokenFile = tokens
	p, err := plane.New(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	stop, err := p.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := errors.Join(stop(), data.Close()); err != nil {
			t.Error(err)
		}
	}()
	send := func(method, path, body string, header ...string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		p.ServeHTTP(w, planetest.Request(method, path, body, header...))
		return w
	}
	for _, q := range [][3]string{
		{"POST", planetest.WidgetsPath, planetest.Widget("w", 1)}, {"PUT", planetest.WidgetsPath + "/w", planetest.Widget("w", 2)},
		{"GET", planetest.WidgetsPath + "/w", ""}, {"GET", planetest.WidgetsPath, ""}, {"GET", "/apis/example.com/v1/widgets", ""},
		{"GET", planetest.WidgetsPath + "?watch=1&timeoutSeconds=1", ""}, {"GET", planetest.WidgetsPath + "/none", ""},
		{"DELETE", planetest.WidgetsPath + "/w", ""}, {"GET", "/livez", ""}, {"GET", "/readyz", ""},
	} {
		send(q[0], q[1], q[2])
	}
	send("GET", planetest.WidgetsPath, "", "Authorization", "Bearer nobody-token")
	send("GET", planetest.WidgetsPath, "", "Authorization", "Bearer wrong")
	send("PATCH", planetest.WidgetsPath+"/w2", `{"apiVersion":"example.com/v1","kind":"Widget","spec":{"size":1}}`, "Content-Type", "application/apply-patch+yaml")

	families := map[string]*family{}
	deadline := time.Now().Add(2 * time.Minute)
	for found := 0; found < len(ofLibraries); time.Sleep(10 * time.Millisecond) { // controllers have begun to work
		if time.Now().After(deadline) {
			t.Fatalf("after two minutes /metrics has %d of %v", found, ofLibraries)
		}
		read(t, send("GET", "/metrics", ""), families)
		read(t, send("GET", "/metrics/slis", ""), families)
		found = 0
		for _, name := range ofLibraries {
			if families[name] != nil {
				found++
			}
		}
	}
	described(registry, families)
	return families
}

// ofLibraries are the metrics of Kubernetes' libraries that each server has. Others appear when what they measure is used; as those
// of all servers of a process are in one registry, other tests may have used it.
var ofLibraries = []string{
	"kubernetes_healthcheck", "kubernetes_healthchecks_total", "rest_client_request_duration_seconds", "rest_client_request_size_bytes", "rest_client_requests_total",
	"workqueue_adds_total", "workqueue_depth", "workqueue_longest_running_processor_seconds", "workqueue_queue_duration_seconds", "workqueue_retries_total",
	"workqueue_unfinished_work_seconds", "workqueue_work_duration_seconds",
}

// stability begins the help of metrics of Kubernetes' libraries.
var stability = regexp.MustCompile(`^\[(ALPHA|BETA|STABLE)\] `)

// read adds the metrics of an answer.
func read(t *testing.T, w *httptest.ResponseRecorder, families map[string]*family) {
	t.Helper()
	if w.Code != http.StatusOK {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	all, err := parser.TextToMetricFamilies(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	for name, f := range all {
		if !stability.MatchString(f.GetHelp()) || slices.Contains(ofLibraries, name) {
			families[name] = familyOf(f)
		}
	}
}

func familyOf(f *dto.MetricFamily) *family {
	found := &family{name: f.GetName(), kind: strings.ToLower(f.GetType().String()), help: stability.ReplaceAllString(f.GetHelp(), "")}
	for _, m := range f.Metric {
		series := map[string]string{}
		for _, l := range m.Label {
			series[l.GetName()] = l.GetValue()
			if !slices.Contains(found.labels, l.GetName()) {
				found.labels = append(found.labels, l.GetName())
			}
		}
		found.series = append(found.series, series)
		if m.Histogram != nil { // one series for each bucket, as in the text
			for _, b := range m.Histogram.Bucket {
				bucket := maps.Clone(series)
				bucket["le"] = strings.TrimSuffix(fmt.Sprint(b.GetUpperBound()), ".0")
				found.series = append(found.series, bucket)
			}
		}
	}
	slices.Sort(found.labels)
	return found
}

var descPattern = regexp.MustCompile(`^Desc\{fqName: "(.*?)", help: "(.*?)"(?:, unit: ".*?")?, constLabels: \{(.*?)\}, variableLabels: \{(.*)\}\}$`)

// described adds the metrics that have no series yet.
func described(registry *prometheus.Registry, families map[string]*family) {
	descs := make(chan *prometheus.Desc)
	go func() { registry.Describe(descs); close(descs) }()
	for d := range descs {
		parts := descPattern.FindStringSubmatch(d.String())
		if parts == nil || families[parts[1]] != nil {
			continue
		}
		f := &family{name: parts[1], kind: kindOfName(parts[1]), help: parts[2]}
		if parts[4] != "" {
			f.labels = strings.Split(parts[4], ",")
			slices.Sort(f.labels)
		}
		families[f.name] = f
	}
}

// kindOfName returns the type of a metric that has no series yet: the rules of promlint for names leave no other.
func kindOfName(name string) string {
	switch {
	case strings.HasSuffix(name, "_total"), name == "apiserver_admission_webhook_rejection_count":
		return "counter"
	case strings.HasSuffix(name, "_duration_seconds"):
		return "histogram"
	}
	return "gauge"
}

// upstreamNames breaks rules of promlint, and has the names of others.
var upstreamNames = regexp.MustCompile(`^(apiserver_|authenticat|authorization_|etcd_|kube_|kubernetes_|workqueue_|rest_client_|go_|process_)`)

func TestMetricsAreListed(t *testing.T) {
	families := loaded(t)
	for name, f := range families {
		if upstreamNames.MatchString(name) {
			continue
		}
		kind := dto.MetricType(dto.MetricType_value[strings.ToUpper(f.kind)])
		problems, err := promlint.NewWithMetricFamilies([]*dto.MetricFamily{{Name: &name, Help: &f.help, Type: &kind}}).Lint()
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range problems {
			if _, known := lintExceptions[name]; !known {
				t.Errorf("%s: %s", p.Metric, p.Text)
			}
		}
	}
	page := metricsPage(families)
	const file = "../../../docs/METRICS.md"
	if *metricsWrite {
		if err := os.WriteFile(file, []byte(page), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	was, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	if string(was) != page {
		t.Error("docs/METRICS.md is not what the server has: run `make metrics`, and read the difference")
	}
}

// lintExceptions are metrics whose names break a rule of promlint, and why they stay.
var lintExceptions = map[string]string{}

// unit returns the unit that a name says.
func unit(name string) string {
	for _, u := range []string{"seconds", "bytes"} {
		if strings.Contains(name, "_"+u) {
			return u
		}
	}
	if name == "apiserver_response_sizes" || name == "apiserver_watch_events_sizes" {
		return "bytes"
	}
	return ""
}

// metricsPage returns docs/METRICS.md.
func metricsPage(families map[string]*family) string {
	var b strings.Builder
	b.WriteString(metricsHead)
	groups := []struct{ title, prefix string }{
		{"Metrics of stele", "stele_"}, {"Metrics with the names of kube-apiserver and its libraries", ""},
	}
	names := slices.Sorted(maps.Keys(families))
	for _, g := range groups {
		fmt.Fprintf(&b, "\n## %s\n\n| metric | type | labels | unit | meaning |\n|---|---|---|---|---|\n", g.title)
		for _, name := range names {
			f := families[name]
			if strings.HasPrefix(name, "stele_") != (g.prefix != "") || strings.HasPrefix(name, "go_") || strings.HasPrefix(name, "process_") {
				continue
			}
			labels := ""
			for _, l := range f.labels {
				labels = strings.TrimPrefix(labels+", `"+l+"`", ", ")
			}
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", name, f.kind, labels, unit(name), strings.ReplaceAll(cmp.Or(f.help, "—"), "|", `\|`))
		}
	}
	return b.String()
}

const metricsHead = `# Metrics

*Reference for operators.*

Written by ` + "`make metrics`" + `; do not edit. [MONITORING.md](MONITORING.md) says how to use them, and what differs from kube-apiserver.

These are the metrics of ` + "`/metrics`" + ` and ` + "`/metrics/slis`" + ` on a server with an embedded etcd that has answered requests of each sort. Further ones come with
what is used: admission webhooks (` + "`apiserver_admission_webhook_*`" + `: [WEBHOOKS.md](WEBHOOKS.md)), webhooks of authentication and authorization, JWTs and client
certificates ([AUTHENTICATION.md](AUTHENTICATION.md), [AUTHORIZATION.md](AUTHORIZATION.md)), a cluster of etcd and a bucket ([REPLICAS.md](REPLICAS.md)), a source of policies
([DELIVERY.md](DELIVERY.md)), encryption of what is stored (` + "`apiserver_storage_transformation_*`, `apiserver_envelope_encryption_*`, `apiserver_encryption_config_controller_*`" + `:
[OPERATING.md](OPERATING.md#secrets-at-rest)). ` + "`go_*`" + ` and ` + "`process_*`" + ` are those of Prometheus' library for Go.
`

// rules is a file with rules of Prometheus.
type rules struct {
	Groups []struct {
		Rules []struct {
			Record, Alert, Expr string
			Annotations         map[string]string
		}
	}
}

func readRules(t *testing.T, file string) (r rules) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(text, &r); err != nil {
		t.Fatal(err)
	}
	return r
}

// expressionsOf returns the expressions of a dashboard of Grafana.
func expressionsOf(t *testing.T, file string) (list []string) {
	t.Helper()
	var d struct {
		Panels []struct{ Targets []struct{ Expr string } }
	}
	text, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(text, &d)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range d.Panels {
		for _, x := range p.Targets {
			list = append(list, strings.NewReplacer("$__rate_interval", "5m", "$instance", ".*").Replace(x.Expr))
		}
	}
	return list
}

// rare are metrics of alerts and dashboards that a server has only when something fails, or when it uses what this one does not, and why.
var rare = map[string]string{
	"stele_policy_drift":                                     "it has no source of policies",
	"stele_policy_source_pulls_total":                        "it has no source of policies",
	"stele_plugin_failures_total":                            "it has no plugins",
	"stele_admission_webhook_failures_total":                 "it has no webhooks",
	"stele_projection_differs":                               "nothing is verified",
	"apiserver_request_terminations_total":                   "no request is ended",
	"apiserver_flowcontrol_rejected_requests_total":          "no request is refused",
	"apiserver_client_certificate_expiration_seconds_bucket": "nobody has a client certificate",
	"apiserver_client_certificate_expiration_seconds_count":  "nobody has a client certificate",
}

// added are the labels that Prometheus adds.
var added = []string{"job", "instance", "cluster", "namespace", "service", "endpoint"}

// Each expression of our alerts and dashboards, and of kubernetes-mixin about kube-apiserver, can be parsed, and finds series: its
// metrics have the labels, with the values, that it asks for.
func TestDashboardsAndAlertsFindTheirSeries(t *testing.T) {
	const folder = "../../../examples/monitoring/"
	families := loaded(t)
	sources := map[string][]string{"dashboard-server": expressionsOf(t, folder+"dashboard-server.json"), "dashboard-log": expressionsOf(t, folder+"dashboard-log.json")}
	recorded := map[string]bool{"up": true}
	for name, file := range map[string]string{"alerts": folder + "alerts.yaml", "mixin": "testdata/mixin.yaml"} {
		for _, g := range readRules(t, file).Groups {
			for _, r := range g.Rules {
				sources[name] = append(sources[name], r.Expr)
				recorded[r.Record] = true
			}
		}
	}
	found := 0
	for name, list := range sources {
		for _, text := range list {
			parsed, err := metricsql.Parse(text)
			if err != nil {
				t.Errorf("%s: %s: %v", name, text, err)
				continue
			}
			metricsql.VisitAll(parsed, func(e metricsql.Expr) {
				m, ok := e.(*metricsql.MetricExpr)
				if !ok {
					return
				}
				found++
				for _, filters := range m.LabelFilterss {
					if problem := missing(families, recorded, filters); problem != "" {
						t.Errorf("%s: %s: %s", name, text, problem)
					}
				}
			})
		}
	}
	if found < 100 {
		t.Errorf("only %d selectors were looked at", found)
	}
}

// missing returns why a selector finds nothing; "" if it finds a series.
func missing(families map[string]*family, recorded map[string]bool, filters []metricsql.LabelFilter) string {
	name, rest := "", []metricsql.LabelFilter{}
	for _, f := range filters {
		if f.Label == "__name__" {
			name = f.Value
		} else if !slices.Contains(added, f.Label) {
			rest = append(rest, f)
		}
	}
	if recorded[name] {
		return ""
	}
	f := families[name]
	for _, suffix := range []string{"_bucket", "_count", "_sum"} {
		if f == nil {
			f = families[strings.TrimSuffix(name, suffix)]
		}
	}
	if _, known := rare[name]; known && (f == nil || len(f.series) == 0) {
		return ""
	}
	if f == nil {
		return name + " does not exist"
	}
	for _, x := range rest {
		if x.Label != "le" && !slices.Contains(f.labels, x.Label) {
			return name + " has no label " + x.Label
		}
	}
	if slices.ContainsFunc(f.series, func(s map[string]string) bool { return selects(rest, s) }) {
		return ""
	}
	return name + " has no such series"
}

func selects(filters []metricsql.LabelFilter, series map[string]string) bool {
	return !slices.ContainsFunc(filters, func(f metricsql.LabelFilter) bool {
		pattern := regexp.QuoteMeta(f.Value)
		if f.IsRegexp {
			pattern = f.Value
		}
		if f.Label == "code" && (strings.HasPrefix(f.Value, "5") || strings.HasPrefix(f.Value, "3")) {
			return false // no request fails, and none is answered with a redirect
		}
		return regexp.MustCompile("^(?:"+pattern+")$").MatchString(series[f.Label]) == f.IsNegative
	})
}

// A series is known by its job: two jobs of the same name would write each other's series about the reading itself.
func TestEachMetricIsAskedOfTheJobThatReadsItsPath(t *testing.T) {
	const folder = "../../../examples/monitoring/"
	var config struct {
		Jobs []struct {
			Name        string `json:"job_name"`
			MetricsPath string `json:"metrics_path"`
			Relabel     []any  `json:"relabel_configs"`
		} `json:"scrape_configs"`
	}
	text, err := os.ReadFile(folder + "prometheus.yml")
	if err == nil {
		err = yaml.Unmarshal(text, &config)
	}
	if err != nil {
		t.Fatal(err)
	}
	jobs := map[string]string{} // by path
	for _, j := range config.Jobs {
		if path := cmp.Or(j.MetricsPath, "/metrics"); jobs[path] != "" || len(j.Relabel) > 0 {
			t.Errorf("the job %s reads %s like another one, or has labels of another one", j.Name, path)
		} else {
			jobs[path] = j.Name
		}
	}
	list := slices.Concat(expressionsOf(t, folder+"dashboard-server.json"), expressionsOf(t, folder+"dashboard-log.json"))
	for _, g := range readRules(t, folder+"alerts.yaml").Groups {
		for _, r := range g.Rules {
			list = append(list, r.Expr)
		}
	}
	for _, text := range list {
		parsed, err := metricsql.Parse(text)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		metricsql.VisitAll(parsed, func(e metricsql.Expr) {
			m, ok := e.(*metricsql.MetricExpr)
			if !ok {
				return
			}
			for _, filters := range m.LabelFilterss {
				asked := map[string]string{}
				for _, f := range filters {
					asked[f.Label] = f.Value
				}
				path := "/metrics"
				if strings.HasPrefix(asked["__name__"], "kubernetes_healthcheck") {
					path = "/metrics/slis"
				}
				if asked["job"] != jobs[path] {
					t.Errorf("%s asks the job %q, want %q", text, asked["job"], jobs[path])
				}
			}
		})
	}
}

func TestEachAlertHasASectionOfTheRunbook(t *testing.T) {
	text, err := os.ReadFile("../../../docs/MONITORING.md")
	if err != nil {
		t.Fatal(err)
	}
	sections := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		if title, ok := strings.CutPrefix(line, "### "); ok {
			sections[strings.ToLower(strings.TrimSpace(title))] = true
		}
	}
	for _, g := range readRules(t, "../../../examples/monitoring/alerts.yaml").Groups {
		for _, r := range g.Rules {
			section, ok := strings.CutPrefix(r.Annotations["runbook"], "docs/MONITORING.md#")
			if !ok || section != strings.ToLower(r.Alert) || !sections[section] {
				t.Errorf("%s has the runbook %q, which is no section of its own", r.Alert, r.Annotations["runbook"])
			}
		}
	}
}
