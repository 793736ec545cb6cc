package plane_test

import (
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"stele.dev/stele/core/run/plane"
	"stele.dev/stele/core/run/plane/datadir"
	"stele.dev/stele/policy/bundles"
)

// The embedded etcd reads all that it holds when it starts. What is in segments leaves it when it holds more than 64 MiB, however young it is, so
// that writes of the last hour do not make a start longer.
func TestWhatTheEmbeddedStoreHoldsAtAStartIsBounded(t *testing.T) {
	const bound = 64<<20 + 8<<20 // and the segment that is not complete, with the overhead of pages
	folder := t.TempDir()
	start := func() (p *plane.Plane, end func()) {
		data, err := datadir.Open(folder, datadir.Options{})
		if err != nil {
			t.Fatal(err)
		}
		source, err := bundles.ReadFS(bundle, ".")
		if err != nil {
			t.Fatal(err)
		}
		p, err = plane.New(t.Context(), plane.Config{Dir: data.Path(), OpenLog: data.OpenLog, Policy: source, Segments: plane.Segments{Bytes: 2 << 20}})
		if err != nil {
			t.Fatal(err)
		}
		stop, err := p.Start(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return p, func() {
			if err := stop(); err != nil {
				t.Error(err)
			}
			if err := data.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	p, end := start()
	client, err := dynamic.NewForConfig(p.Client("admin", "system:masters"))
	if err != nil {
		t.Fatal(err)
	}
	configMaps := client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}).Namespace("default")
	noise, random := make([]byte, 600<<10), rand.NewChaCha8([32]byte{})
	for i := range 110 { // 800 kB each
		_, _ = random.Read(noise)
		data := map[string]any{"noise": base64.StdEncoding.EncodeToString(noise)}
		o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "c"}, "data": data}}
		if i == 0 {
			_, err = configMaps.Create(t.Context(), o, metav1.CreateOptions{})
		} else {
			_, err = configMaps.Update(t.Context(), o, metav1.UpdateOptions{})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "older batches leave the store", func() bool { return p.Log.Usage().Used <= bound })
	end()
	p, end = start()
	defer end()
	if is := p.StartWork(); is.StoreBytes > bound || is.StoreBytes == 0 {
		t.Errorf("%s were in the store at the start", fmt.Sprint(is.StoreBytes))
	}
}
