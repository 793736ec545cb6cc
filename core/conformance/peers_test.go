package conformance_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"go.etcd.io/etcd/server/v3/embed"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"sigs.k8s.io/yaml"
	"stele.dev/stele/core/conformance/testdata/fixtures"
	"stele.dev/stele/core/run/plane"
	"stele.dev/stele/policy/bundles"
	"stele.dev/stele/policy/compile"
	"stele.dev/stele/policy/importing"

	servertesting "k8s.io/apiextensions-apiserver/pkg/cmd/server/testing"
)

// namespaces that there are. Upstream's server, without that of Kubernetes above it, knows
// of none, and looks for none.
var namespaces = []string{"default", "other"}

// definitions are those of testdata/crds, by their names.
func definitions(t testing.TB) map[string][]byte {
	t.Helper()
	files, err := filepath.Glob("testdata/crds/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	of := map[string][]byte{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var named struct{ Metadata struct{ Name string } }
		// Anchors are resolved here, that both get the same.
		expanded, err := yaml.YAMLToJSON(text)
		if err == nil {
			err = json.Unmarshal(expanded, &named)
		}
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if of[named.Metadata.Name], err = yaml.JSONToYAML(expanded); err != nil {
			t.Fatal(err)
		}
	}
	return of
}

// startStele starts what is judged. policies are CUE files of the bundle, and configure changes the configuration.
func startStele(t testing.TB, policies map[string][]byte, configure ...func(*plane.Config)) *peer {
	t.Helper()
	started, err := fixtures.Start(definitions(t), policies, configure...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(started.Stop)
	p := newPeer(t, "stele", started.Config())
	for _, namespace := range namespaces[1:] {
		p.must(t, http.StatusCreated, "POST", "/api/v1/namespaces", []byte(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"`+namespace+`"}}`))
	}
	return p
}

// imports converts policies of upstream for the bundle of [startStele], which has the kinds that they are about.
func imports(t testing.TB, documents []importing.Document) *importing.Result {
	t.Helper()
	source, err := bundles.ReadFS(fixtures.Files(definitions(t), nil), ".")
	if err != nil {
		t.Fatal(err)
	}
	compiled, diags := compile.Bundle(source)
	if len(diags) > 0 {
		t.Fatal(diags)
	}
	imported, err := importing.Convert(documents, importing.Options{Package: "conformance", Team: "t", Whole: true, Into: compiled.Form})
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range imported.Notes {
		if !strings.Contains(n.Message, "run in the order of the names") {
			t.Errorf("not imported: %s", n)
		}
	}
	return imported
}

// startUpstream starts the judge: upstream's server, on an etcd of its own. It enforces the admission policies that it finds
// at above, the URL of the server above it; none if that is empty. flags are further ones, and replace those given here.
func startUpstream(t testing.TB, above string, flags ...string) *peer {
	t.Helper()
	klog.SetLogger(logr.Discard())
	kubeconfig, off := unused(t), "NamespaceLifecycle,MutatingAdmissionWebhook,ValidatingAdmissionWebhook"
	if above == "" {
		off += ",ValidatingAdmissionPolicy,MutatingAdmissionPolicy"
	} else {
		kubeconfig = kubeconfigOf(t, above)
	}
	server, err := servertesting.StartTestServer(quiet{t}, nil, append([]string{
		"--etcd-servers", startEtcd(t),
		"--etcd-compaction-interval", "0",
		"--authentication-skip-lookup",
		"--authentication-kubeconfig", unused(t), "--authorization-kubeconfig", unused(t), "--kubeconfig", kubeconfig,
		// All that would talk to the server above.
		"--enable-priority-and-fairness=false",
		"--disable-admission-plugins", off,
	}, flags...), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.TearDownFn)
	p := newPeer(t, "upstream", server.ClientConfig)
	for name, text := range definitions(t) {
		body, err := yaml.YAMLToJSON(text)
		if err != nil {
			t.Fatal(err)
		}
		const path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
		p.must(t, http.StatusCreated, "POST", path, body)
		p.await(t, path+"/"+name, func(a *answer) bool {
			text, _ := json.Marshal(a.body)
			var crd struct {
				Status struct {
					Conditions []struct{ Type, Status string }
				}
			}
			_ = json.Unmarshal(text, &crd)
			for _, c := range crd.Status.Conditions {
				if c.Type == "Established" && c.Status == "True" {
					return true
				}
			}
			return false
		})
	}
	for _, k := range kinds {
		for _, version := range k.versions {
			p.await(t, k.path(version, ""), func(a *answer) bool { return a.code == http.StatusOK })
			p.await(t, "/apis/example.com/"+version, func(a *answer) bool {
				text, _ := json.Marshal(a.body)
				return strings.Contains(string(text), `"`+k.plural+`"`)
			})
		}
	}
	return p
}

// await asks until the answer is as it is to be.
func (p *peer) await(t testing.TB, path string, is func(*answer) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for !is(p.do(t, "GET", path, nil, nil)) {
		select {
		case <-ctx.Done():
			t.Fatalf("%s: GET %s stays what it is", p.name, path)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// unused is a kubeconfig that upstream's server must be given.
func unused(t testing.TB) string { return kubeconfigOf(t, "http://127.0.0.1:1") }

func kubeconfigOf(t testing.TB, server string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	text := `{apiVersion: v1, kind: Config, current-context: c,
clusters: [{name: c, cluster: {server: "` + server + `"}}], users: [{name: c, user: {}}], contexts: [{name: c, context: {cluster: c, user: c}}]}`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// quiet lets only what is wrong be printed.
type quiet struct{ testing.TB }

func (quiet) Logf(string, ...any) {}

func startEtcd(t testing.TB) string {
	t.Helper()
	config := embed.NewConfig()
	config.Dir, config.LogLevel, config.UnsafeNoFsync = t.TempDir(), "panic", true
	config.ListenPeerUrls, config.ListenClientUrls = []url.URL{free(t)}, []url.URL{free(t)}
	config.AdvertisePeerUrls, config.AdvertiseClientUrls = config.ListenPeerUrls, config.ListenClientUrls
	config.InitialCluster = config.InitialClusterFromName(config.Name)
	etcd, err := embed.StartEtcd(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(etcd.Close)
	<-etcd.Server.ReadyNotify()
	return config.ListenClientUrls[0].String()
}

func free(t testing.TB) url.URL {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return url.URL{Scheme: "http", Host: listener.Addr().String()}
}

// peer is one of the two, and what it has answered so far.
type peer struct {
	name   string
	url    string
	client *http.Client
	config *rest.Config

	base      uint64                      // the revision at which a stream began
	newest    uint64                      // the newest that was seen since
	uids      map[string]int              // in the order in which they were seen
	generated []string                    // names that the server made
	objects   map[string][]map[string]any // all that was seen of an object, by its path
	token     string                      // of the newest list that goes on
}

func newPeer(t testing.TB, name string, config *rest.Config) *peer {
	t.Helper()
	config = rest.CopyConfig(config)
	config.UserAgent = "judge/1.0"
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	host := config.Host
	if !strings.Contains(host, "://") {
		host = "https://" + host
	}
	return &peer{name: name, url: host, client: client, config: config}
}

// begin forgets what was.
func (p *peer) begin(t testing.TB) {
	t.Helper()
	p.uids, p.generated, p.objects, p.token = map[string]int{}, nil, map[string][]map[string]any{}, ""
	a := p.do(t, "GET", kinds[0].path("v1", ""), nil, nil)
	revision, err := strconv.ParseUint(fmt.Sprint(field(a.body, "metadata", "resourceVersion")), 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", p.name, err)
	}
	p.base, p.newest = revision, revision
}

func (p *peer) must(t testing.TB, code int, method, path string, body []byte) *answer {
	t.Helper()
	a := p.do(t, method, path, http.Header{"Content-Type": {"application/json"}}, body)
	if a.code != code {
		t.Fatalf("%s: %s %s: %d %v", p.name, method, path, a.code, a.body)
	}
	return a
}
