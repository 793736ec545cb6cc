package controllers_test

import (
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// condition is "Status Reason: message" of a condition, "" if there is none.
func condition(o *unstructured.Unstructured, name string) string {
	if o == nil {
		return ""
	}
	conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	for _, c := range conditions {
		if c := c.(map[string]any); c["type"] == name {
			return c["status"].(string) + " " + c["reason"].(string) + ": " + c["message"].(string)
		}
	}
	return ""
}

func TestANamespaceIsDeletedWithAllThatIsInIt(t *testing.T) {
	p := newPlane(t)
	p.run(t, "namespace-controller")
	p.create(t, namespaces, "", "shop")
	for _, name := range []string{"a", "b", "c"} {
		p.create(t, widgets, "shop", name)
		p.create(t, configMaps, "shop", name)
	}
	p.create(t, widgets, "default", "a")
	p.delete(t, namespaces, "", "shop")
	p.awaitGone(t, namespaces, "", "shop")
	p.awaitThere(t, widgets, "default", "a")
	if list, err := p.Resource(widgets).List(t.Context(), metav1.ListOptions{}); err != nil || len(list.Items) != 1 {
		t.Errorf("there are %v, %v", list, err)
	}
	// The name is free again.
	p.create(t, namespaces, "", "shop")
	p.create(t, widgets, "shop", "a")
}

// What the policy shows in a namespace is not its content, even if clients may delete it.
func TestWhatThePolicyShowsIsNotDeletedWithANamespace(t *testing.T) {
	p := newPlane(t)
	p.Activate(t, bundle+`
bundle: dynamic: rbac: "Match"
bundle: teams: t: rbac: bindings: shown: {clusterRole: "view", subjects: [{group: "x"}], namespaces: ["shop"]}
`)
	p.run(t, "namespace-controller", collector)
	p.create(t, namespaces, "", "shop")
	bindings := schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "rolebindings"}
	if _, err := p.in(bindings, "shop").Patch(t.Context(), "t:shown", types.MergePatchType, []byte(`{"metadata": {"labels": {"a": "b"}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	written := p.Committer.Tip().Revision()
	p.delete(t, namespaces, "", "shop")
	p.awaitGone(t, namespaces, "", "shop")
	if o := p.Committer.Tip().Objects.Get(bindings.GroupResource(), "shop", "t:shown"); o == nil || o.Revision != written {
		t.Errorf("what was kept of the binding at revision %d was written again: %v", written, o)
	}
}

func TestANamespaceStaysUntilItsContentMayGo(t *testing.T) {
	p := newPlane(t)
	p.run(t, "namespace-controller")
	p.create(t, namespaces, "", "shop")
	p.create(t, widgets, "shop", "held", finalizers("example.com/hold"))
	p.create(t, widgets, "shop", "free")
	p.delete(t, namespaces, "", "shop")
	want := map[string]string{
		"NamespaceDeletionDiscoveryFailure":           "False ResourcesDiscovered: All resources successfully discovered",
		"NamespaceDeletionGroupVersionParsingFailure": "False ParsedGroupVersions: All legacy kube types successfully parsed",
		"NamespaceDeletionContentFailure":             "False ContentDeleted: All content successfully deleted, may be waiting on finalization",
		"NamespaceContentRemaining":                   "True SomeResourcesRemain: Some resources are remaining: widgets.example.com has 1 resource instances",
		"NamespaceFinalizersRemaining":                "True SomeFinalizersRemain: Some content in the namespace has finalizers remaining: example.com/hold in 1 resource instances",
	}
	p.await(t, namespaces, "", "shop", "waiting", func(o *unstructured.Unstructured) bool {
		for name, is := range want {
			if condition(o, name) != is {
				return false
			}
		}
		return true
	})
	p.awaitGone(t, widgets, "shop", "free")
	_, err := p.in(widgets, "shop").Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1", "kind": "Widget", "metadata": map[string]any{"name": "late"}}}, metav1.CreateOptions{})
	if !apierrors.IsForbidden(err) || !apierrors.HasStatusCause(err, "NamespaceTerminating") {
		t.Errorf("something new: %v", err)
	}
	p.patch(t, widgets, "shop", "held", `{"metadata":{"finalizers":null}}`)
	p.awaitGone(t, namespaces, "", "shop")
}

func TestANamespaceWaitsForItsOtherFinalizers(t *testing.T) {
	p := newPlane(t)
	p.run(t, "namespace-controller")
	p.create(t, namespaces, "", "shop", finalizers("example.com/hold"), func(o *unstructured.Unstructured) {
		_ = unstructured.SetNestedStringSlice(o.Object, []string{"example.com/other"}, "spec", "finalizers")
	})
	p.create(t, widgets, "shop", "a")
	p.delete(t, namespaces, "", "shop")
	p.await(t, namespaces, "", "shop", "finalized by the controller", func(o *unstructured.Unstructured) bool {
		left, _, _ := unstructured.NestedStringSlice(o.Object, "spec", "finalizers")
		return slices.Equal(left, []string{"example.com/other"})
	})
	p.awaitGone(t, widgets, "shop", "a")
	ns, err := p.Resource(namespaces).Get(t.Context(), "shop", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	unstructured.RemoveNestedField(ns.Object, "spec", "finalizers")
	if _, err := p.Resource(namespaces).Update(t.Context(), ns, metav1.UpdateOptions{}, "finalize"); err != nil {
		t.Fatal(err)
	}
	p.patch(t, namespaces, "", "shop", `{"metadata":{"finalizers":null}}`)
	p.awaitGone(t, namespaces, "", "shop")
}

// What somebody finalized by hand is emptied all the same.
func TestANamespaceFinalizedTooEarlyIsEmptiedBeforeItGoes(t *testing.T) {
	p := newPlane(t)
	p.create(t, namespaces, "", "shop", finalizers("example.com/hold"))
	p.create(t, widgets, "shop", "a", finalizers("example.com/hold"))
	p.delete(t, namespaces, "", "shop")
	ns, err := p.Resource(namespaces).Get(t.Context(), "shop", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	unstructured.RemoveNestedField(ns.Object, "spec", "finalizers")
	if _, err := p.Resource(namespaces).Update(t.Context(), ns, metav1.UpdateOptions{}, "finalize"); err != nil {
		t.Fatal(err)
	}
	p.run(t, "namespace-controller")
	p.await(t, namespaces, "", "shop", "waiting", func(o *unstructured.Unstructured) bool {
		return strings.HasPrefix(condition(o, "NamespaceContentRemaining"), "True")
	})
	p.patch(t, widgets, "shop", "a", `{"metadata":{"finalizers":null}}`)
	p.awaitGone(t, widgets, "shop", "a")
	p.await(t, namespaces, "", "shop", "empty", func(o *unstructured.Unstructured) bool {
		return strings.HasPrefix(condition(o, "NamespaceContentRemaining"), "False")
	})
	p.patch(t, namespaces, "", "shop", `{"metadata":{"finalizers":null}}`)
	p.awaitGone(t, namespaces, "", "shop")
}

func TestADeletionGoesOnWhereAnotherControllerLeftIt(t *testing.T) {
	p := newPlane(t)
	stop := p.run(t, "namespace-controller")
	p.create(t, namespaces, "", "shop")
	p.create(t, widgets, "shop", "held", finalizers("example.com/hold"))
	p.delete(t, namespaces, "", "shop")
	p.await(t, widgets, "shop", "held", "being deleted", func(o *unstructured.Unstructured) bool { return o.GetDeletionTimestamp() != nil })
	stop()
	p.patch(t, widgets, "shop", "held", `{"metadata":{"finalizers":null}}`)
	p.awaitThere(t, namespaces, "", "shop")
	p.run(t, "namespace-controller")
	p.awaitGone(t, namespaces, "", "shop")
}

func TestTwoControllersDoNoHarm(t *testing.T) {
	p := newPlane(t)
	p.run(t, "*")
	p.run(t, "*")
	p.create(t, namespaces, "", "shop")
	p.awaitThere(t, accounts, "shop", "default")
	p.create(t, widgets, "shop", "a")
	p.delete(t, namespaces, "", "shop")
	p.awaitGone(t, namespaces, "", "shop")
}

// What a policy denies to everybody it denies to the controller: it says so.
func TestAPolicyCanKeepContent(t *testing.T) {
	p := newPlane(t)
	const deny = `rbac: denies: keep: {
			subjects: [{group: "system:authenticated"}]
			rules: r: {apiGroups: ["example.com"], resources: ["widgets"], verbs: ["delete", "deletecollection"]}
			reason: "widgets stay"
		}`
	p.create(t, namespaces, "", "shop")
	p.create(t, widgets, "shop", "a")
	p.create(t, configMaps, "shop", "a")
	p.Activate(t, strings.Replace(bundle, "//more", deny, 1))
	p.run(t, "namespace-controller")
	p.delete(t, namespaces, "", "shop")
	p.await(t, namespaces, "", "shop", "kept", func(o *unstructured.Unstructured) bool {
		return strings.Contains(condition(o, "NamespaceDeletionContentFailure"), "widgets stay")
	})
	p.awaitGone(t, configMaps, "shop", "a")
	p.Activate(t, bundle)
	p.awaitGone(t, namespaces, "", "shop")
}

func TestEveryNamespaceHasADefaultServiceAccount(t *testing.T) {
	p := newPlane(t)
	p.create(t, namespaces, "", "before")
	p.run(t, "serviceaccount-controller")
	for _, namespace := range []string{"default", "kube-system", "before"} {
		p.awaitThere(t, accounts, namespace, "default")
	}
	p.create(t, namespaces, "", "after")
	p.awaitThere(t, accounts, "after", "default")
	first, err := p.in(accounts, "after").Get(t.Context(), "default", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	p.delete(t, accounts, "after", "default")
	p.await(t, accounts, "after", "default", "there again", func(o *unstructured.Unstructured) bool { return o != nil && o.GetUID() != first.GetUID() })
}

func TestANamespaceThatGoesGetsNoServiceAccount(t *testing.T) {
	p := newPlane(t)
	p.run(t, "*")
	p.create(t, namespaces, "", "shop")
	p.awaitThere(t, accounts, "shop", "default")
	p.create(t, widgets, "shop", "held", finalizers("example.com/hold"))
	p.delete(t, namespaces, "", "shop")
	p.awaitGone(t, accounts, "shop", "default")
	p.patch(t, widgets, "shop", "held", `{"metadata":{"finalizers":null}}`)
	p.awaitGone(t, namespaces, "", "shop")
}
