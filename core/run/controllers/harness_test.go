package controllers_test

import (
	"context"
	"log/slog"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"stele.dev/stele/core/run/controllers"
	"stele.dev/stele/core/run/plane/planetest"
)

const bundle = `
package test
import "stele.dev/policy"

bundle: policy.#Bundle & {
	cluster: "test"
	teams: t: {
		contact: "#t", groups: ["*"], namespaces: ["*"]
		kinds: "widgets.example.com": {
			group: "example.com"
			names: {kind: "Widget", plural: "widgets"}
			storageVersion: "v1"
			versions: v1: #schema: {spec?: {size?: int}}
		}
		kinds: "plains.example.com": {
			group: "example.com"
			names: {kind: "Plain", plural: "plains"}
			scope: "Cluster"
			storageVersion: "v1"
			versions: v1: #schema: {spec?: {size?: int}}
		}
		//more
	}
}
`

// testPlane is a control plane with a client from outside, which is an administrator.
type testPlane struct {
	dynamic.Interface
	*planetest.Plane
}

// newPlane starts one.
func newPlane(t testing.TB) *testPlane {
	t.Helper()
	p := &testPlane{Plane: planetest.Start(t, planetest.Options{Bundle: bundle})}
	server := httptest.NewServer(p)
	t.Cleanup(func() { p.Drain(); server.Close() })
	var err error
	if p.Interface, err = dynamic.NewForConfig(&rest.Config{Host: server.URL, BearerToken: "admin-token", QPS: -1}); err != nil {
		t.Fatal(err)
	}
	return p
}

// run runs controllers until the test ends, or stop is called.
func (p *testPlane) run(t testing.TB, list ...string) (stop func()) {
	t.Helper()
	selected, err := controllers.Select(list)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		controllers.Run(ctx, selected, p, issuer, p.Committer, slog.New(slog.NewTextHandler(t.Output(), nil)))
	})
	stop = func() { cancel(); running.Wait() }
	t.Cleanup(stop)
	return stop
}

var (
	namespaces = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
	accounts   = schema.GroupVersionResource{Version: "v1", Resource: "serviceaccounts"}
	secrets    = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
	configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	events     = schema.GroupVersionResource{Version: "v1", Resource: "events"}
	widgets    = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}
	plains     = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "plains"}
)

var typeOf = map[schema.GroupVersionResource]metav1.TypeMeta{
	namespaces: {APIVersion: "v1", Kind: "Namespace"},
	accounts:   {APIVersion: "v1", Kind: "ServiceAccount"},
	secrets:    {APIVersion: "v1", Kind: "Secret"},
	configMaps: {APIVersion: "v1", Kind: "ConfigMap"},
	widgets:    {APIVersion: "example.com/v1", Kind: "Widget"},
	plains:     {APIVersion: "example.com/v1", Kind: "Plain"},
}

// in are the objects of a resource, in a namespace or of the cluster.
func (p *testPlane) in(r schema.GroupVersionResource, namespace string) dynamic.ResourceInterface {
	if namespace == "" {
		return p.Resource(r)
	}
	return p.Resource(r).Namespace(namespace)
}

// create creates an object; with changes it what it would else be.
func (p *testPlane) create(t testing.TB, r schema.GroupVersionResource, namespace, name string, with ...func(*unstructured.Unstructured)) *unstructured.Unstructured {
	t.Helper()
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": typeOf[r].APIVersion, "kind": typeOf[r].Kind}}
	o.SetName(name)
	for _, change := range with {
		change(o)
	}
	o, err := p.in(r, namespace).Create(t.Context(), o, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func finalizers(list ...string) func(*unstructured.Unstructured) {
	return func(o *unstructured.Unstructured) { o.SetFinalizers(list) }
}

func (p *testPlane) delete(t testing.TB, r schema.GroupVersionResource, namespace, name string) {
	t.Helper()
	if err := p.in(r, namespace).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

func (p *testPlane) patch(t testing.TB, r schema.GroupVersionResource, namespace, name, patch string) *unstructured.Unstructured {
	t.Helper()
	o, err := p.in(r, namespace).Patch(t.Context(), name, "application/merge-patch+json", []byte(patch), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// patience is how long tests wait for what must come.
const patience = 30 * time.Second

// await waits until an object is such that is holds; of one that is not there, is is asked
// with nil.
func (p *testPlane) await(t testing.TB, r schema.GroupVersionResource, namespace, name, what string, is func(*unstructured.Unstructured) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	options := metav1.ListOptions{FieldSelector: "metadata.name=" + name}
	list, err := p.in(r, namespace).List(ctx, options)
	if err != nil {
		t.Fatal(err)
	}
	var last *unstructured.Unstructured
	if len(list.Items) > 0 {
		last = &list.Items[0]
	}
	if is(last) {
		return
	}
	options.ResourceVersion = list.GetResourceVersion()
	w, err := p.in(r, namespace).Watch(ctx, options)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	for e := range w.ResultChan() {
		last, _ = e.Object.(*unstructured.Unstructured)
		if e.Type == watch.Deleted {
			last = nil
		}
		if is(last) {
			return
		}
	}
	t.Fatalf("%s %s/%s: not %s, but %v", r.Resource, namespace, name, what, last)
}

func (p *testPlane) awaitGone(t testing.TB, r schema.GroupVersionResource, namespace, name string) {
	t.Helper()
	p.await(t, r, namespace, name, "gone", func(o *unstructured.Unstructured) bool { return o == nil })
}

func (p *testPlane) awaitThere(t testing.TB, r schema.GroupVersionResource, namespace, name string) {
	t.Helper()
	p.await(t, r, namespace, name, "there", func(o *unstructured.Unstructured) bool { return o != nil })
}
