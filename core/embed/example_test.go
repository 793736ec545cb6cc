package embed_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"strings"
	"testing"
	"testing/fstest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"stele.dev/stele/core/embed"
)

// A controller runs against a control plane in the same process.
func Example() {
	if err := label(context.Background()); err != nil {
		log.Fatal(err)
	}
	// Output: settings is seen
}

var policy = fstest.MapFS{
	"cue.mod/module.cue": {Data: []byte(`
module: "shop.example"
language: version: "v0.17.0"
`)},
	"bundle.cue": {Data: []byte(`
package shop

import "stele.dev/policy"

bundle: policy.#Bundle & {
	cluster: "shop"
	teams: shop: {
		contact: "#shop", groups: [], namespaces: ["default"]
		rbac: {
			clusterRoles: labeler: rules: maps: {apiGroups: [""], resources: ["configmaps"], verbs: ["get", "list", "watch", "patch"]}
			bindings: labelers: {clusterRole: "labeler", subjects: [{user: "labeler"}], namespaces: ["default"]}
		}
	}
}
`)},
}

func label(ctx context.Context) error {
	cp, err := embed.Start(ctx, embed.Options{Bundle: policy})
	if err != nil {
		return err
	}
	defer cp.Stop()

	// The controller has the access that the policy grants it.
	manager, err := ctrl.NewManager(cp.ConfigFor("labeler"), ctrl.Options{
		Metrics: server.Options{BindAddress: "0"},
		Cache:   cache.Options{DefaultNamespaces: map[string]cache.Config{"default": {}}},
	})
	if err != nil {
		return err
	}
	seen := make(chan string, 1)
	reconciler := reconcile.Func(func(ctx context.Context, q ctrl.Request) (ctrl.Result, error) {
		m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: q.Namespace, Name: q.Name}}
		err := manager.GetClient().Patch(ctx, m, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"seen":"true"}}}`)))
		if err == nil && q.Name == "settings" {
			select {
			case seen <- q.Name:
			default:
			}
		}
		return ctrl.Result{}, client.IgnoreNotFound(err)
	})
	if err := ctrl.NewControllerManagedBy(manager).For(&corev1.ConfigMap{}).Complete(reconciler); err != nil {
		return err
	}
	running, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- manager.Start(running) }()

	// The administrator creates an object.
	admin, err := client.New(cp.Config(), client.Options{})
	if err != nil {
		return err
	}
	if err := admin.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "settings"}}); err != nil {
		return err
	}
	select {
	case name := <-seen:
		fmt.Println(name, "is seen")
	case err = <-ended:
		return err
	}
	stop()
	return <-ended
}

// The page shows the example as it runs.
func TestThePageHasTheExample(t *testing.T) {
	page, err := os.ReadFile("../../docs/EMBEDDING.md")
	if err != nil {
		t.Fatal(err)
	}
	runs, err := os.ReadFile("example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	_, block, _ := strings.Cut(string(page), "```go\nfunc label(")
	block, _, found := strings.Cut(block, "```\n")
	if !found || !strings.Contains(string(runs), "func label("+block) {
		t.Error("the function label of docs/EMBEDDING.md is not that of core/embed/example_test.go")
	}
}
