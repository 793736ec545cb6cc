package aggregation_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const aggregatedType = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

// version returns what aggregated discovery says of the group; nil if it is not listed.
func (s *site) version() *apidiscoveryv2.APIVersionDiscovery {
	s.t.Helper()
	var list apidiscoveryv2.APIGroupDiscoveryList
	if err := json.Unmarshal([]byte(s.send(s.admin, "GET", "/apis", "", "Accept", aggregatedType).body), &list); err != nil {
		s.t.Fatal(err)
	}
	i := slices.IndexFunc(list.Items, func(g apidiscoveryv2.APIGroupDiscovery) bool { return g.Name == group })
	if i < 0 {
		return nil
	}
	if i != len(list.Items)-1 {
		s.t.Errorf("the group of another server is number %d of %d", i, len(list.Items))
	}
	return &list.Items[i].Versions[0]
}

// A server that is down keeps its documents, marked stale, and whoever reads them waits for nobody.
func TestDocumentsOfAServer(t *testing.T) {
	t.Parallel()
	w := newWeather(t)
	s := newSite(t, w.aggregate(""))
	s.awaitServed()
	v := s.version()
	if v == nil || v.Freshness != apidiscoveryv2.DiscoveryFreshnessCurrent || len(v.Resources) != 1 || v.Resources[0].Resource != "forecasts" || v.Resources[0].Subresources[0].Subresource != "radio" || v.Resources[0].Scope != "Namespaced" {
		t.Fatalf("aggregated discovery says %+v", v)
	}
	var list metav1.APIResourceList
	if err := json.Unmarshal([]byte(s.send(s.admin, "GET", base, "").body), &list); err != nil || len(list.APIResources) != 2 || list.APIResources[0].ShortNames[0] != "fc" {
		t.Errorf("discovery says %+v %v", list, err)
	}
	if got := s.send(s.admin, "GET", "/apis/"+group, ""); !strings.Contains(got.body, `"preferredVersion":{"groupVersion":"weather.example.com/v1"`) {
		t.Errorf("the group is %s", got.body)
	}
	index := func() string {
		var found struct {
			Paths map[string]struct{ ServerRelativeURL string }
		}
		_ = json.Unmarshal([]byte(s.send(s.admin, "GET", "/openapi/v3", "").body), &found)
		return found.Paths["apis/weather.example.com/v1"].ServerRelativeURL
	}
	await(t, "the index of OpenAPI has the group", func() bool { return index() != "" })
	document := s.send(s.admin, "GET", index(), "")
	if !strings.Contains(document.body, "A forecast says what the weather will be.") || document.Header.Get("ETag") == "" {
		t.Errorf("the OpenAPI document is %d %s", document.StatusCode, document.body)
	}

	w.Down.Store(true)
	s.Activate(t, bundle(w.aggregate(", requests: 99"))) // another server for this one: it is asked at once
	await(t, "the server is not available", func() bool { return strings.HasPrefix(s.available("v1."+group), "False FailedDiscoveryCheck") })
	if v := s.version(); v == nil || v.Freshness != apidiscoveryv2.DiscoveryFreshnessStale {
		t.Errorf("aggregated discovery of a server that is down says %+v", v)
	}
	if got := s.send(s.admin, "GET", base, ""); got.StatusCode != 503 || !strings.Contains(got.status(), "so that its resources are not known") {
		t.Errorf("discovery of a server that never answered got %d %s", got.StatusCode, got.body)
	}
	w.Down.Store(false)
	s.awaitServed()
	if v := s.version(); v.Freshness != apidiscoveryv2.DiscoveryFreshnessCurrent || len(v.Resources) != 1 {
		t.Errorf("aggregated discovery of a server that is back says %+v", v)
	}
}

// APIServices show the groups of this server, as in Kubernetes, and those of others; a watch tells when one becomes available.
func TestAPIServices(t *testing.T) {
	t.Parallel()
	w := newWeather(t)
	w.Down.Store(true)
	s := newSite(t, w.aggregate(""))
	for _, name := range []string{"v1.", "v1.example.com", "v1.rbac.authorization.k8s.io", "v1.apiregistration.k8s.io"} {
		if is := s.available(name); is != "True" {
			t.Errorf("%q is %s", name, is)
		}
	}
	await(t, "the server is not available", func() bool { return strings.HasPrefix(s.available("v1."+group), "False FailedDiscoveryCheck") })
	got := s.send(s.admin, "GET", "/apis/apiregistration.k8s.io/v1/apiservices/v1."+group, "").body
	if !strings.Contains(got, `"service":{"name":"weather","port":`) || !strings.Contains(got, `"policy.stele.dev/url":"https://127.0.0.1:`) || !strings.Contains(got, `"groupPriorityMinimum":1000`) {
		t.Errorf("it is %s", got)
	}
	done := make(chan []byte, 1)
	go func() {
		text, _ := s.kubectl("wait", "--for=condition=Available", "apiservice/v1."+group, "--timeout=60s")
		done <- text
	}()
	w.Down.Store(false)
	if text := <-done; !strings.Contains(string(text), "condition met") {
		t.Errorf("kubectl wait says %s", text)
	}
	if got := s.send(s.admin, "DELETE", "/apis/apiregistration.k8s.io/v1/apiservices/v1."+group, ""); got.StatusCode != 405 {
		t.Errorf("a delete got %d", got.StatusCode)
	}
}

// kubectl runs kubectl as the administrator.
func (s *site) kubectl(args ...string) ([]byte, error) {
	c := exec.CommandContext(s.t.Context(), "kubectl", append([]string{"--kubeconfig", s.Kubeconfig(), "--cache-dir", s.Dir + "/cache"}, args...)...)
	c.Env = append(os.Environ(), "HOME="+s.Dir)
	return c.CombinedOutput()
}

func TestKubectlWorksWithAServer(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("kubectl"); err != nil {
		t.Skip("there is no kubectl: ", err)
	}
	w := newWeather(t)
	s := newSite(t, w.aggregate(""))
	s.awaitServed()
	await(t, "OpenAPI has the group", func() bool {
		return strings.Contains(s.send(s.admin, "GET", "/openapi/v3", "").body, "apis/weather.example.com/v1")
	})
	for _, c := range []struct{ command, want string }{
		{"get forecasts -o name", "forecast.weather.example.com/rain"},
		{"get fc", "rain"},
		{"api-resources --api-group=weather.example.com", "forecasts   fc           weather.example.com/v1   true         Forecast"},
		{"explain forecast.spec", "The place and the time."},
		{"get apiservices", "v1.weather.example.com            weather   True"},
		{"get --raw " + forecasts + "/rain", `"name":"rain"`},
	} {
		text, err := s.kubectl(strings.Fields(c.command)...)
		if err != nil || !bytes.Contains(text, []byte(c.want)) {
			t.Errorf("kubectl %s: %v\n%s\nwant %s", c.command, err, text, c.want)
		}
	}
}

// The past of an aggregated resource is on the other server. That of the same group, when this server answered it, is here.
func TestThePastIsNotHere(t *testing.T) {
	t.Parallel()
	w := newWeather(t)
	s := newSite(t, w.aggregate(""))
	s.awaitServed()
	got := s.send(s.admin, "GET", fmt.Sprintf("/at/%d%s", s.Committer.Tip().Revision(), forecasts), "")
	if got.StatusCode != 405 || !strings.Contains(got.status(), "the API group weather.example.com is answered by the server weather, and its past is not here") {
		t.Errorf("it got %d %s", got.StatusCode, got.body)
	}
	if got := s.send(s.admin, "GET", fmt.Sprintf("/at/%d/apis", s.Committer.Tip().Revision()), "", "Accept", aggregatedType); strings.Contains(got.body, group) {
		t.Error("discovery of the past lists the group")
	}
	if len(w.reached()) > 0 {
		t.Error("the server was asked")
	}
}

func TestExplanationsNameTheServer(t *testing.T) {
	t.Parallel()
	w := newWeather(t)
	s := newSite(t, w.aggregate(""))
	s.awaitServed()
	got := s.send(s.admin, "POST", "/apis/policy.stele.dev/v1/explanations", `{"apiVersion":"policy.stele.dev/v1","kind":"Explanation","spec":{"verb":"get","group":"weather.example.com","version":"v1","resource":"forecasts","namespace":"default","name":"rain"}}`,
		"Content-Type", "application/json")
	if !strings.Contains(got.body, "the server weather answers the API group weather.example.com; it is available since") || !strings.Contains(got.body, `"rule":"aggregate/weather"`) {
		t.Errorf("it says %s", got.body)
	}
	if len(w.reached()) > 0 {
		t.Error("the server was asked")
	}
}

// What a namespace has on another server is not for this one to delete, and its deletion waits for nobody.
func TestDeletingANamespaceAsksNoServer(t *testing.T) {
	t.Parallel()
	w := newWeather(t)
	s := newSite(t, w.aggregate(""))
	s.awaitServed()
	if got := s.send(s.admin, "POST", "/api/v1/namespaces", `{"metadata":{"name":"gone"}}`, "Content-Type", "application/json"); got.StatusCode != 201 {
		t.Fatal(got.body)
	}
	s.send(s.admin, "DELETE", "/api/v1/namespaces/gone", "")
	await(t, "the namespace is gone", func() bool { return s.send(s.admin, "GET", "/api/v1/namespaces/gone", "").StatusCode == 404 })
	if n := len(w.reached()); n > 0 {
		t.Errorf("the server was asked %d times", n)
	}
}
