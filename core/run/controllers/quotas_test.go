package controllers_test

import (
	"context"
	"fmt"
	"maps"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var quotas = schema.GroupVersionResource{Version: "v1", Resource: "resourcequotas"}

// used waits until the status of a quota says that so much is used, and returns the quota.
func (p *testPlane) used(t *testing.T, want map[string]string) *unstructured.Unstructured {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	w, err := p.in(quotas, "default").Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=q"})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	var last map[string]string
	for e := range w.ResultChan() {
		o, _ := e.Object.(*unstructured.Unstructured)
		if last, _, _ = unstructured.NestedStringMap(o.Object, "status", "used"); maps.Equal(last, want) {
			return o
		}
	}
	t.Fatalf("the status says %v, want %v", last, want)
	return nil
}

func TestTheStatusOfAQuotaIsReported(t *testing.T) {
	p := newPlane(t)
	hard := func(entries map[string]any) func(*unstructured.Unstructured) {
		return func(o *unstructured.Unstructured) { o.Object["spec"] = map[string]any{"hard": entries} }
	}
	for i := range 3 {
		p.create(t, widgets, "default", fmt.Sprint("w", i))
	}
	stop := p.run(t, "resourcequota-controller")
	typeOf[quotas] = metav1.TypeMeta{APIVersion: "v1", Kind: "ResourceQuota"}
	p.create(t, quotas, "default", "q", hard(map[string]any{"count/widgets.example.com": "2", "configmaps": "010", "pods": "4"}))
	o := p.used(t, map[string]string{"count/widgets.example.com": "3", "configmaps": "0"})
	if is, _, _ := unstructured.NestedStringMap(o.Object, "status", "hard"); !maps.Equal(is, map[string]string{"count/widgets.example.com": "2", "configmaps": "10", "pods": "4"}) {
		t.Errorf("hard: %v", is)
	}
	p.create(t, configMaps, "default", "c")
	p.delete(t, widgets, "default", "w1")
	o = p.used(t, map[string]string{"count/widgets.example.com": "2", "configmaps": "1"})
	if m := o.GetManagedFields(); len(m) == 0 || m[len(m)-1].Subresource != "status" {
		t.Errorf("managed fields: %+v", m)
	}
	// It was away, and somebody else has written the status.
	stop()
	p.delete(t, widgets, "default", "w2")
	p.patch(t, quotas, "default", "q", `{"spec":{"hard":{"pods":null}}}`)
	if _, err := p.in(quotas, "default").Patch(t.Context(), "q", "application/merge-patch+json", []byte(`{"status":{"used":{"configmaps":"99"}}}`), metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
	p.run(t, "*", "-garbage-collector-controller")
	o = p.used(t, map[string]string{"count/widgets.example.com": "1", "configmaps": "1"})
	if is, _, _ := unstructured.NestedStringMap(o.Object, "status", "hard"); len(is) != 2 {
		t.Errorf("hard: %v", is)
	}
}
