package embed_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"stele.dev/stele/core/embed"
	"stele.dev/stele/core/run/plane"
)

// bundleOf returns a bundle with a kind whose size has a bound, and a reader.
func bundleOf(bound string) fstest.MapFS {
	return fstest.MapFS{
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
			versions: v1: #schema: spec!: replicas!: ` + bound + `
		}
		rbac: {
			clusterRoles: reader: rules: readers: {apiGroups: ["shop.example"], resources: ["databases"], verbs: ["get", "list"]}
			bindings: readers: {clusterRole: "reader", subjects: [{user: "alice"}], namespaces: ["default"]}
		}
	}
}
`)},
	}
}

// crds are files as controller-gen writes them, with another object.
var crds = fstest.MapFS{
	"bases/shop.example_databases.yaml": {Data: []byte(`---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  annotations: {controller-gen.kubebuilder.io/version: v0.19.0}
  name: databases.shop.example
spec:
  group: shop.example
  names: {kind: Database, listKind: DatabaseList, plural: databases, singular: database}
  scope: Namespaced
  versions:
  - name: v1
    schema:
      openAPIV3Schema:
        properties:
          apiVersion: {type: string}
          kind: {type: string}
          metadata: {type: object}
          spec:
            properties:
              replicas: {type: integer, minimum: 1}
            required: [replicas]
            type: object
        type: object
    served: true
    storage: true
    subresources: {status: {}}
status: {acceptedNames: {kind: "", plural: ""}, conditions: [], storedVersions: []}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: other}
`)},
	"README.md": {Data: []byte("apiVersion: this is no YAML")},
}

func start(t testing.TB, o embed.Options) *embed.ControlPlane {
	t.Helper()
	cp, err := embed.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cp.Stop(); err != nil {
			t.Error(err)
		}
	})
	return cp
}

// databases is a client of databases in the namespace default.
func databases(t testing.TB, config *rest.Config) dynamic.ResourceInterface {
	t.Helper()
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client.Resource(schema.GroupVersionResource{Group: "shop.example", Version: "v1", Resource: "databases"}).Namespace("default")
}

func create(t testing.TB, config *rest.Config, name string, replicas int64) error {
	t.Helper()
	_, err := databases(t, config).Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "shop.example/v1", "kind": "Database", "metadata": map[string]any{"name": name}, "spec": map[string]any{"replicas": replicas},
	}}, metav1.CreateOptions{})
	return err
}

func TestABundleDecides(t *testing.T) {
	cp := start(t, embed.Options{Bundle: bundleOf("int & >0")})
	if err := create(t, cp.Config(), "orders", 1); err != nil {
		t.Fatal(err)
	}
	if err := create(t, cp.Config(), "carts", 0); !apierrors.IsInvalid(err) {
		t.Errorf("a database without replicas is %v", err)
	}
	alice := cp.ConfigFor("alice")
	if _, err := databases(t, alice).Get(t.Context(), "orders", metav1.GetOptions{}); err != nil {
		t.Errorf("alice may not read: %v", err)
	}
	if err := create(t, alice, "carts", 1); !apierrors.IsForbidden(err) {
		t.Errorf("alice may write: %v", err)
	}
}

func TestDefinitionsAreServed(t *testing.T) {
	cp := start(t, embed.Options{CRDs: crds})
	if err := create(t, cp.Config(), "orders", 1); err != nil {
		t.Fatal(err)
	}
	if err := create(t, cp.Config(), "carts", 0); !apierrors.IsInvalid(err) {
		t.Errorf("a database without replicas is %v", err)
	}
	if err := create(t, cp.ConfigFor("alice"), "carts", 1); !apierrors.IsForbidden(err) {
		t.Errorf("alice may write: %v", err)
	}
}

// Controllers run: the garbage collector deletes what an object owned.
func TestControllersRun(t *testing.T) {
	cp := start(t, embed.Options{CRDs: crds})
	client, err := kubernetes.NewForConfig(cp.Config())
	if err != nil {
		t.Fatal(err)
	}
	maps := client.CoreV1().ConfigMaps("default")
	owner, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "owner"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	owned := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "owned", OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "owner", UID: owner.UID}}}}
	if _, err := maps.Create(t.Context(), owned, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	watch, err := maps.Watch(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=owned"})
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Stop()
	if err := maps.Delete(t.Context(), "owner", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	for e := range watch.ResultChan() {
		if e.Type == "DELETED" {
			return
		}
	}
	t.Error("the watch has ended")
}

func TestOtherProcessesReachIt(t *testing.T) {
	cp := start(t, embed.Options{Bundle: bundleOf("int"), Listen: "127.0.0.1:0"})
	text, err := cp.Kubeconfig("alice")
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(text)
	if err != nil {
		t.Fatal(err)
	}
	if config.Host != cp.URL() {
		t.Errorf("the kubeconfig is for %s, want %s", config.Host, cp.URL())
	}
	if _, err := databases(t, config).List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Errorf("alice may not read: %v", err)
	}
	if err := create(t, config, "orders", 1); !apierrors.IsForbidden(err) {
		t.Errorf("alice may write: %v", err)
	}

	if inside := start(t, embed.Options{Bundle: bundleOf("int")}); inside.URL() != "" {
		t.Errorf("without Listen the URL is %s", inside.URL())
	} else if _, err := inside.Kubeconfig("alice"); err == nil || !strings.Contains(err.Error(), "set Options.Listen") {
		t.Errorf("without Listen a kubeconfig is %v", err)
	}
}

func TestAFolderKeepsTheData(t *testing.T) {
	dir := t.TempDir()
	first := start(t, embed.Options{Bundle: bundleOf("int & >0"), Dir: dir})
	if err := create(t, first.Config(), "orders", 1); err != nil {
		t.Fatal(err)
	}
	if _, err := embed.Start(t.Context(), embed.Options{Bundle: bundleOf("int"), Dir: dir}); err == nil || !strings.Contains(err.Error(), "is in use") {
		t.Errorf("a second control plane in the folder: %v", err)
	}
	if err := first.Stop(); err != nil {
		t.Fatal(err)
	}
	second := start(t, embed.Options{Bundle: bundleOf("string"), Dir: dir})
	if _, err := databases(t, second.Config()).Get(t.Context(), "orders", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	if err := create(t, second.Config(), "carts", 0); !apierrors.IsInvalid(err) {
		t.Errorf("the policy in force is another one: %v", err)
	}
}

func TestAStopLeavesNothing(t *testing.T) {
	temporary := t.TempDir()
	t.Setenv("TMPDIR", temporary)
	cp := start(t, embed.Options{Bundle: bundleOf("int"), Listen: "127.0.0.1:0"})
	select {
	case <-cp.Done():
		t.Fatal("it does not run")
	default:
	}
	for range 2 {
		if err := cp.Stop(); err != nil {
			t.Error(err)
		}
	}
	<-cp.Done()
	if left, err := filepath.Glob(filepath.Join(temporary, "*")); err != nil || len(left) > 0 {
		t.Errorf("left are %q, %v", left, err)
	}
	if err := create(t, cp.Config(), "orders", 1); err == nil {
		t.Error("a control plane that has stopped takes writes")
	}
}

func TestAnotherPolicyIsPushed(t *testing.T) {
	cp := start(t, embed.Options{Bundle: bundleOf("int & >0")})
	if err := cp.Push(t.Context(), bundleOf("int & >2")); err != nil {
		t.Fatal(err)
	}
	if err := create(t, cp.Config(), "orders", 2); !apierrors.IsInvalid(err) {
		t.Errorf("the former policy decides: %v", err)
	}
	if err := cp.Push(t.Context(), bundleOf("nonsense")); !apierrors.IsInvalid(errors.Unwrap(err)) || !strings.Contains(err.Error(), "nonsense") {
		t.Errorf("a policy with an error is %v", err)
	}
}

func TestBadOptionsStartNothing(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	expired, cancel := context.WithCancel(t.Context())
	cancel()
	for name, tc := range map[string]struct {
		ctx  context.Context
		o    embed.Options
		want string
	}{
		"no policy":               {t.Context(), embed.Options{}, "give a Bundle or CRDs"},
		"two policies":            {t.Context(), embed.Options{Bundle: bundleOf("int"), CRDs: crds}, "give one of them"},
		"no definitions":          {t.Context(), embed.Options{CRDs: fstest.MapFS{}}, "no CustomResourceDefinition"},
		"broken files":            {t.Context(), embed.Options{CRDs: fstest.MapFS{"a.yaml": {Data: []byte("a: [")}}}, "a.yaml: "},
		"an error of the bundle":  {t.Context(), embed.Options{Bundle: bundleOf("nonsense")}, "bundle.cue:14: "},
		"an unknown controller":   {t.Context(), embed.Options{CRDs: crds, Controllers: []string{"nonsense"}}, "nonsense"},
		"an address that is none": {t.Context(), embed.Options{CRDs: crds, Listen: "nonsense"}, "missing port"},
		"a context that ended":    {expired, embed.Options{CRDs: crds}, "context canceled"},
	} {
		t.Run(name, func(t *testing.T) {
			cp, err := embed.Start(tc.ctx, tc.o)
			if err == nil {
				t.Fatal(cp.Stop(), "it has started")
			}
			if !strings.Contains(err.Error(), tc.want) {
				t.Errorf("the error is %v, want %q", err, tc.want)
			}
			if invalid := (*plane.PolicyError)(nil); errors.As(err, &invalid) != (name == "an error of the bundle") {
				t.Errorf("the error is about the policy: %v", err)
			}
			if left, _ := os.ReadDir(os.TempDir()); len(left) > 0 {
				t.Errorf("%s is left", left[0])
			}
		})
	}
}

// How long a start takes: with the log in memory, and in a folder.
func BenchmarkStart(b *testing.B) {
	for name, options := range map[string]func() embed.Options{
		"memory, bundle": func() embed.Options { return embed.Options{Bundle: bundleOf("int")} },
		"memory, CRDs":   func() embed.Options { return embed.Options{CRDs: crds} },
		"folder":         func() embed.Options { return embed.Options{Bundle: bundleOf("int"), Dir: b.TempDir()} },
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				cp, err := embed.Start(b.Context(), options())
				if err != nil {
					b.Fatal(err)
				}
				b.StopTimer()
				if err := cp.Stop(); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
			}
		})
	}
}
