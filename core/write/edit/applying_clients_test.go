package edit_test

import (
	"fmt"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	corev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"stele.dev/stele/core/resources/explain"
	"stele.dev/stele/core/run/plane/planetest"
)

func TestClientsApply(t *testing.T) {
	p := planetest.NewPlane(t)
	server := httptest.NewServer(p)
	t.Cleanup(server.Close)
	ctx := t.Context()

	widgets := planetest.DynamicClient(t, server.URL, nil).Resource(planetest.WidgetsResource.WithVersion("v1")).Namespace("default")
	body := func(size int64) *unstructured.Unstructured { return planetest.UnstructuredWidget("v1", "w", size) }
	if o, err := widgets.Apply(ctx, "w", body(1), metav1.ApplyOptions{FieldManager: "ann"}); err != nil || o.GetGeneration() != 1 {
		t.Fatal(o, err)
	}
	if _, err := widgets.Apply(ctx, "w", body(2), metav1.ApplyOptions{FieldManager: "bob"}); err == nil {
		t.Error("bob took what is ann's")
	}
	if o, err := widgets.Apply(ctx, "w", body(2), metav1.ApplyOptions{FieldManager: "bob", Force: true}); err != nil || o.GetGeneration() != 2 {
		t.Error(o, err)
	}
	status := planetest.UnstructuredWidget("v1", "w", 2)
	_ = unstructured.SetNestedField(status.Object, true, "status", "ready")
	o, err := widgets.ApplyStatus(ctx, "w", status, metav1.ApplyOptions{FieldManager: "controller"})
	if ready, _, _ := unstructured.NestedBool(o.Object, "status", "ready"); err != nil || !ready || o.GetGeneration() != 2 {
		t.Error(o, err)
	}

	clients, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL, BearerToken: "admin-token"})
	if err != nil {
		t.Fatal(err)
	}
	maps := clients.CoreV1().ConfigMaps("default")
	if _, err := maps.Apply(ctx, corev1.ConfigMap("c", "default").WithData(map[string]string{"a": "1"}), metav1.ApplyOptions{FieldManager: "ann"}); err != nil {
		t.Fatal(err)
	}
	if _, err := maps.Apply(ctx, corev1.ConfigMap("c", "default").WithData(map[string]string{"b": "2"}).WithLabels(map[string]string{"x": "y"}), metav1.ApplyOptions{FieldManager: "bob"}); err != nil {
		t.Fatal(err)
	}
	c, err := maps.Get(ctx, "c", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	mine, err := corev1.ExtractConfigMap(c, "bob")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"b": "2"}, mine.Data); diff != "" || mine.Labels["x"] != "y" {
		t.Errorf("what is bob's (-want +got):\n%s", diff)
	}
	// What is sent back as it was read is no write.
	before := p.Committer.Tip().Revision()
	if _, err := maps.Update(ctx, c, metav1.UpdateOptions{}); err != nil || p.Committer.Tip().Revision() != before {
		t.Error(err, p.Committer.Tip().Revision(), before)
	}
	c.Data["b"] = "3"
	if c, err = maps.Update(ctx, c, metav1.UpdateOptions{FieldManager: "bob"}); err != nil || len(c.ManagedFields) != 3 {
		t.Error(c, err)
	}
}

// Nobody's fields are lost, however many apply at the same time.
func TestManyApplyAtOnce(t *testing.T) {
	p := planetest.NewPlane(t)
	const managers = 8
	var running sync.WaitGroup
	for i := range managers {
		running.Go(func() {
			for j := range 5 {
				body := fmt.Sprintf(`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"a","labels":{"l%d":"%d"}},"spec":{"size":1}}`, i, j)
				if a := p.Apply("a", fmt.Sprint("m", i), body); a.Code > 201 {
					t.Error(a)
				}
			}
		})
	}
	running.Wait()
	a := p.Do("GET", planetest.WidgetsPath+"/a", "")
	if owners := a.Owners(t); len(owners) != managers {
		t.Errorf("owners %v", owners)
	}
	for i := range managers {
		if a.Field("metadata", "labels", fmt.Sprint("l", i)) != "4" {
			t.Errorf("%s", a)
		}
	}
}

func TestApplyIsExplained(t *testing.T) {
	p := planetest.NewPlane(t)
	p.Apply("a", "ann", sized)
	before := p.Committer.Tip().Revision()
	spec := explain.Spec{
		Verb: "patch", Group: "example.com", Version: "v1", Resource: "widgets", Namespace: "default", Name: "a",
		ContentType: planetest.Applied, Object: []byte(planetest.Widget("a", 7)),
	}
	if e := p.Explain(t, spec); e.Status.Code != 409 || e.Status.Message != `Apply failed with 1 conflict: conflict with "ann": .spec.size` {
		t.Errorf("%+v", e.Status)
	}
	if spec.FieldManager = "ann"; p.Explain(t, spec).Status.Code != 200 {
		t.Error("ann may not apply what is hers")
	}
	spec.FieldManager, spec.Force = "bob", true
	if p.Explain(t, spec).Status.Code != 200 {
		t.Error("bob may not force")
	}
	if spec.Name, spec.Object = "b", []byte(planetest.Widget("b", 7)); p.Explain(t, spec).Status.Code != 201 {
		t.Error("bob may not create")
	}
	if p.Committer.Tip().Revision() != before {
		t.Error("an explanation wrote")
	}
}
