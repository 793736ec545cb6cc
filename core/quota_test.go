package core_test

import (
	"fmt"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"stele.dev/stele/core/run/plane/planetest"
)

const quotasPath = "/api/v1/namespaces/default/resourcequotas"

func quota(name, hard string) string {
	return `{"apiVersion":"v1","kind":"ResourceQuota","metadata":{"name":"` + name + `"},"spec":{"hard":{` + hard + `}}}`
}

func TestQuotasAreKeptToTheUnit(t *testing.T) {
	p := planetest.NewPlane(t)
	p.Must(t, 201, "POST", quotasPath, quota("small", `"count/widgets.example.com":"2","size.example.com":10`))
	p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("a", 4))
	p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("b", 4))
	const forbidden = `widgets.example.com "%s" is forbidden: exceeded quota: small, requested: %s, used: %s, limited: %s`
	count := func(name string) string {
		return fmt.Sprintf(forbidden, name, "count/widgets.example.com=1", "count/widgets.example.com=2", "count/widgets.example.com=2")
	}
	size := func(name string, more, used int) string {
		return fmt.Sprintf(forbidden, name, fmt.Sprint("size.example.com=", more), fmt.Sprint("size.example.com=", used), "size.example.com=10")
	}
	merge := []string{"Content-Type", "application/merge-patch+json"}
	apply := []string{"Content-Type", "application/apply-patch+yaml"}
	for _, tc := range []struct {
		name, method, path, body string
		header                   []string
		code                     int
		message                  string
	}{
		{"one more", "POST", planetest.WidgetsPath, planetest.Widget("c", 1), nil, 403, count("c")},
		{"one more, as a dry run", "POST", planetest.WidgetsPath + "?dryRun=All", planetest.Widget("c", 1), nil, 403, count("c")},
		{"one more, too large", "POST", planetest.WidgetsPath, planetest.Widget("c", 7), nil, 403, fmt.Sprintf(forbidden, "c", "count/widgets.example.com=1,size.example.com=7", "count/widgets.example.com=2,size.example.com=8", "count/widgets.example.com=2,size.example.com=10")},
		{"one that exists: quotas come first, as upstream", "POST", planetest.WidgetsPath, planetest.Widget("a", 1), nil, 403, count("a")},
		{"by server-side apply", "PATCH", planetest.WidgetsPath + "/c?fieldManager=m", planetest.Widget("c", 1), apply, 403, count("c")},
		{"larger", "PATCH", planetest.WidgetsPath + "/a", `{"spec":{"size":7}}`, merge, 403, size("a", 3, 8)},
		{"larger, as a dry run", "PATCH", planetest.WidgetsPath + "/a?dryRun=All", `{"spec":{"size":7}}`, merge, 403, size("a", 3, 8)},
		{"larger, and it fits", "PATCH", planetest.WidgetsPath + "/a", `{"spec":{"size":6}}`, merge, 200, ""},
		{"the same", "PATCH", planetest.WidgetsPath + "/a", `{"spec":{"size":6}}`, merge, 200, ""},
		{"another field", "PATCH", planetest.WidgetsPath + "/a", `{"spec":{"color":"red"}}`, merge, 200, ""},
		{"in another namespace", "POST", "/apis/example.com/v1/namespaces/kube-system/widgets", planetest.Widget("c", 900), nil, 201, ""},
		{"of another kind", "POST", "/api/v1/namespaces/default/configmaps", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c"}}`, nil, 201, ""},
		{"smaller", "PATCH", planetest.WidgetsPath + "/b", `{"spec":{"size":1}}`, merge, 200, ""},
		{"a quota below what is there", "PATCH", quotasPath + "/small", `{"spec":{"hard":{"count/widgets.example.com":"1","size.example.com":"3"}}}`, merge, 200, ""},
		{"smaller, above the quota", "PATCH", planetest.WidgetsPath + "/a", `{"spec":{"size":5}}`, merge, 200, ""},
		{"a name that is generated", "POST", planetest.WidgetsPath, `{"metadata":{"generateName":"g-"},"spec":{"size":1}}`, nil, 403, "exceeded quota: small, requested: count/widgets.example.com=1,size.example.com=1, used: count/widgets.example.com=2,size.example.com=6"},
		{"without the quota", "DELETE", quotasPath + "/small", "", nil, 200, ""},
		{"one more, without the quota", "POST", planetest.WidgetsPath, planetest.Widget("c", 900), nil, 201, ""},
	} {
		a := p.Do(tc.method, tc.path, tc.body, tc.header...)
		if a.Code != tc.code || !strings.Contains(a.Message(), tc.message) {
			t.Fatalf("%s: %s\nwant %d %s", tc.name, a, tc.code, tc.message)
		}
		if a.Code == 403 && (a.Field("reason") != "Forbidden" || a.Header.Get("X-Stele-Stage") != "commit" || !strings.Contains(string(a.Body), `"field":"resourcequotas/default/small"`)) {
			t.Errorf("%s: stage %s: %s", tc.name, a.Header.Get("X-Stele-Stage"), a)
		}
	}
}

// Metrics have what is used of quotas, under the names of kube-state-metrics, and count refusals.
func TestMetricsOfQuotas(t *testing.T) {
	p := planetest.NewPlane(t)
	p.Must(t, 201, "POST", quotasPath, quota("small", `"count/widgets.example.com":"1","size.example.com":"10500m","requests.cpu":"4"`))
	p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("a", 4))
	for _, name := range []string{"b", "c"} {
		p.Must(t, 403, "POST", planetest.WidgetsPath, planetest.Widget(name, 7))
	}
	p.Must(t, 403, "POST", planetest.WidgetsPath+"?dryRun=All", planetest.Widget("d", 7)) // is not counted
	p.Must(t, 200, "PATCH", quotasPath+"/small", `{"spec":{"hard":{"size.example.com":"3"}}}`, "Content-Type", "application/merge-patch+json")
	text := string(p.Must(t, 200, "GET", "/metrics", "").Body)
	for _, line := range []string{
		`kube_resourcequota{namespace="default",resource="count/widgets.example.com",resourcequota="small",type="hard"} 1`,
		`kube_resourcequota{namespace="default",resource="count/widgets.example.com",resourcequota="small",type="used"} 1`,
		`kube_resourcequota{namespace="default",resource="size.example.com",resourcequota="small",type="hard"} 3`,
		`kube_resourcequota{namespace="default",resource="size.example.com",resourcequota="small",type="used"} 4`,
		`kube_resourcequota{namespace="default",resource="requests.cpu",resourcequota="small",type="hard"} 4`,
		`stele_resourcequota_refusals_total{resource="count/widgets.example.com"} 2`,
		`stele_resourcequota_refusals_total{resource="size.example.com"} 2`,
		`stele_resourcequotas 1`, `stele_resourcequotas_exceeded 1`,
	} {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("no line %s", line)
		}
	}
	if strings.Contains(text, `resource="requests.cpu",resourcequota="small",type="used"`) {
		t.Error("a usage of what is not counted")
	}
}

// As in Kubernetes, an object that waits for finalizers is counted until it is gone, and a write must fit into all quotas.
func TestWhatQuotasCount(t *testing.T) {
	p := planetest.NewPlane(t)
	p.Must(t, 201, "POST", quotasPath, quota("a", `"configmaps":"1"`))
	p.Must(t, 201, "POST", quotasPath, quota("b", `"count/configmaps":"3"`))
	path := "/api/v1/namespaces/default/configmaps"
	configMap := func(name, more string) string {
		return `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"` + name + `"` + more + `}}`
	}
	p.Must(t, 201, "POST", path, configMap("held", `,"finalizers":["example.com/f"]`))
	p.Must(t, 200, "DELETE", path+"/held", "")
	if a := p.Must(t, 403, "POST", path, configMap("c", "")); !strings.Contains(a.Message(), "exceeded quota: a, requested: configmaps=1, used: configmaps=1, limited: configmaps=1") {
		t.Error(a)
	}
	p.Must(t, 200, "PATCH", path+"/held", `{"metadata":{"finalizers":null}}`, "Content-Type", "application/merge-patch+json")
	p.Must(t, 201, "POST", path, configMap("c", ""))
	p.Must(t, 200, "DELETE", path, "") // the collection
	p.Must(t, 201, "POST", path, configMap("c", ""))
	p.Must(t, 201, "POST", quotasPath, quota("c", `"resourcequotas":"2"`)) // below what is there, with itself
	if a := p.Must(t, 403, "POST", quotasPath, quota("d", `"pods":"2"`)); !strings.Contains(a.Message(), "exceeded quota: c, requested: resourcequotas=1, used: resourcequotas=3, limited: resourcequotas=2") {
		t.Error(a)
	}
	if a := p.Must(t, 422, "POST", "/api/v1/namespaces/kube-system/resourcequotas", quota("d", `"sizes.example.com":"2"`)); !strings.Contains(a.Message(), `ResourceQuota "d" is invalid: [spec.hard[sizes.example.com]: Invalid value: "sizes.example.com": must be a standard resource type or fully qualified, spec.hard[sizes.example.com]: Invalid value: "sizes.example.com": must be a standard resource for quota]`) {
		t.Error(a)
	}
}

// Many clients of one server write at once: as many as fit succeed.
func TestWritersRaceForAQuota(t *testing.T) {
	p := planetest.NewPlane(t)
	p.Must(t, 201, "POST", quotasPath, quota("q", `"count/widgets.example.com":"7","size.example.com":"60"`))
	var created, refused atomic.Int64
	var writers sync.WaitGroup
	for i := range 8 {
		writers.Go(func() {
			for n := range 5 {
				switch a := p.Do("POST", planetest.WidgetsPath, planetest.Widget(fmt.Sprintf("w-%d-%d", i, n), 10)); a.Code {
				case 201:
					created.Add(1)
				case 403:
					refused.Add(1)
				default:
					t.Error(a)
				}
			}
		})
	}
	writers.Wait()
	if created.Load() != 6 || refused.Load() != 34 {
		t.Errorf("%d were created and %d refused; 6 fit", created.Load(), refused.Load())
	}
	if q := p.Committer.Tip().Quotas.Quota("default", "q"); q.Lines[0].Used.Text("") != "6" || q.Lines[1].Used.Text("") != "60" {
		t.Errorf("used: %+v", q.Lines)
	}
}

// A policy that sums otherwise counts what is there anew, and refuses accordingly.
func TestUsageFollowsThePolicy(t *testing.T) {
	p := planetest.NewPlane(t)
	p.Must(t, 201, "POST", quotasPath, quota("q", `"size.example.com":"10"`))
	p.Must(t, 201, "POST", planetest.WidgetsPath, `{"metadata":{"name":"a"},"spec":{"size":5,"ports":[{"name":"x","port":70},{"name":"y","port":8}]}}`)
	other := strings.Replace(planetest.Bundle, `path: ".spec.size"`, `path: ".spec.ports[*].port"`, 1)
	p.Activate(t, other)
	if a := p.Must(t, 403, "POST", planetest.WidgetsPath, `{"metadata":{"name":"b"},"spec":{"size":1,"ports":[{"name":"x","port":1}]}}`); !strings.Contains(a.Message(), "requested: size.example.com=1, used: size.example.com=78, limited: size.example.com=10") {
		t.Error(a)
	}
	p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("b", 900))
	p.Activate(t, planetest.Bundle)
	if a := p.Must(t, 403, "POST", planetest.WidgetsPath, planetest.Widget("c", 1)); !strings.Contains(a.Message(), "used: size.example.com=905") {
		t.Error(a)
	}
}

// client-go writes quotas in Protocol Buffers, and gets Kubernetes' error.
func TestQuotasByClientGo(t *testing.T) {
	p := planetest.NewPlane(t)
	server := httptest.NewServer(p)
	defer server.Close()
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL, BearerToken: "admin-token", QPS: -1, ContentConfig: rest.ContentConfig{ContentType: "application/vnd.kubernetes.protobuf"}})
	if err != nil {
		t.Fatal(err)
	}
	made, err := client.CoreV1().ResourceQuotas("default").Create(t.Context(), &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "q"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourceConfigMaps: resource.MustParse("1"), corev1.ResourceRequestsCPU: resource.MustParse("1500m")}},
		Status:     corev1.ResourceQuotaStatus{Used: corev1.ResourceList{corev1.ResourceConfigMaps: resource.MustParse("7")}},
	}, metav1.CreateOptions{})
	if err != nil || len(made.Status.Used) != 0 || made.Spec.Hard.Name("requests.cpu", resource.DecimalSI).String() != "1500m" {
		t.Fatalf("%v %+v", err, made)
	}
	made.Status.Used = corev1.ResourceList{corev1.ResourceConfigMaps: resource.MustParse("7")} // the status is not what is enforced
	if _, err := client.CoreV1().ResourceQuotas("default").UpdateStatus(t.Context(), made, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	for i, want := range []bool{true, false} {
		_, err := client.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("c", i)}}, metav1.CreateOptions{})
		if (err == nil) != want || !want && (!apierrors.IsForbidden(err) || err.Error() != `configmaps "c1" is forbidden: exceeded quota: q, requested: configmaps=1, used: configmaps=1, limited: configmaps=1`) {
			t.Errorf("%d: %v", i, err)
		}
	}
}
