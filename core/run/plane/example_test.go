package plane_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"testing/fstest"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"stele.dev/stele/core/run/plane"
	"stele.dev/stele/core/run/plane/datadir"
	"stele.dev/stele/policy/bundles"
)

// A program runs a control plane in its own process, and uses it through client-go.
func Example() {
	if err := embed(context.Background()); err != nil {
		log.Fatal(err)
	}
	// Output: orders has 3 replicas, on postgres
}

// bundle is a policy with one kind.
var bundle = fstest.MapFS{
	"cue.mod/module.cue": {Data: []byte("module: \"shop.example\"\nlanguage: version: \"v0.17.0\"\n")},
	"bundle.cue": {Data: []byte(`
package shop

import "stele.dev/policy"

bundle: policy.#Bundle & {
	cluster: "shop"
	teams: data: {
		contact: "#data", groups: ["shop.example"], namespaces: ["default"]
		kinds: "databases.shop.example": {
			group: "shop.example"
			names: {kind: "Database", plural: "databases"}
			storageVersion: "v1"
			versions: v1: #schema: spec!: {
				replicas!: int & >0
				engine:    *"postgres" | "mysql"
			}
		}
	}
}
`)},
}

func embed(ctx context.Context) error {
	folder, err := os.MkdirTemp("", "stele")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	data, err := datadir.Open(folder, datadir.Options{})
	if err != nil {
		return err
	}
	defer data.Close()
	source, err := bundles.ReadFS(bundle, ".")
	if err != nil {
		return err
	}
	p, err := plane.New(ctx, plane.Config{Dir: data.Path(), OpenLog: data.OpenLog, Policy: source})
	if err != nil {
		return err
	}
	stop, err := p.Start(ctx)
	if err != nil {
		return err
	}
	defer stop()

	client, err := dynamic.NewForConfig(p.Client("alice", "system:masters"))
	if err != nil {
		return err
	}
	databases := client.Resource(schema.GroupVersionResource{Group: "shop.example", Version: "v1", Resource: "databases"}).Namespace("default")
	created := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "shop.example/v1", "kind": "Database",
		"metadata": map[string]any{"name": "orders"}, "spec": map[string]any{"replicas": int64(3)},
	}}
	if _, err := databases.Create(ctx, created, metav1.CreateOptions{}); err != nil {
		return err
	}
	orders, err := databases.Get(ctx, "orders", metav1.GetOptions{})
	if err != nil {
		return err
	}
	replicas, _, _ := unstructured.NestedInt64(orders.Object, "spec", "replicas")
	engine, _, _ := unstructured.NestedString(orders.Object, "spec", "engine")
	fmt.Printf("%s has %d replicas, on %s\n", orders.GetName(), replicas, engine)
	return nil
}
