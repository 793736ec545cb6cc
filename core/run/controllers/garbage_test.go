package controllers_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/logpb"
)

const collector = "garbage-collector-controller"

func reference(o *unstructured.Unstructured) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: o.GetAPIVersion(), Kind: o.GetKind(), Name: o.GetName(), UID: o.GetUID()}
}

func ownedBy(owners ...metav1.OwnerReference) func(*unstructured.Unstructured) {
	return func(o *unstructured.Unstructured) { o.SetOwnerReferences(owners) }
}

func blocking(r metav1.OwnerReference) metav1.OwnerReference {
	yes := true
	r.BlockOwnerDeletion = &yes
	return r
}

// missing is a reference to what never was.
func missing() metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "missing", UID: "never"}
}

// settle waits until the collector has done what it had to do when it was called: garbage that
// is made now is gone, of each resource.
func (p *testPlane) settle(t *testing.T) {
	t.Helper()
	for _, r := range []schema.GroupVersionResource{configMaps, widgets} {
		o := p.create(t, r, "default", "garbage", ownedBy(missing()))
		p.awaitGone(t, r, "default", o.GetName())
	}
}

func (p *testPlane) there(t *testing.T, r schema.GroupVersionResource, namespace, name string) bool {
	t.Helper()
	_, err := p.in(r, namespace).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	return err == nil
}

func TestDependentsGoWithTheirLastOwner(t *testing.T) {
	p := newPlane(t)
	p.run(t, collector)
	a, b := p.create(t, widgets, "default", "a"), p.create(t, widgets, "default", "b")
	cluster := p.create(t, plains, "", "cluster")
	p.create(t, configMaps, "default", "of-a", ownedBy(reference(a)))
	p.create(t, configMaps, "default", "of-both", ownedBy(reference(a), reference(b)))
	middle := p.create(t, widgets, "default", "of-cluster", ownedBy(reference(cluster)))
	p.create(t, configMaps, "default", "of-of-cluster", ownedBy(reference(middle)))
	p.delete(t, widgets, "default", "a")
	p.awaitGone(t, configMaps, "default", "of-a")
	p.await(t, configMaps, "default", "of-both", "of b alone", func(o *unstructured.Unstructured) bool {
		return o != nil && len(o.GetOwnerReferences()) == 1 && o.GetOwnerReferences()[0].Name == "b"
	})
	p.delete(t, widgets, "default", "b")
	p.awaitGone(t, configMaps, "default", "of-both")
	p.delete(t, plains, "", "cluster")
	p.awaitGone(t, configMaps, "default", "of-of-cluster")
}

func TestWhatIsOwnedByWhatNeverWasGoes(t *testing.T) {
	p := newPlane(t)
	owner := p.create(t, widgets, "default", "owner")
	another := reference(owner)
	another.UID = "another"
	renamed := reference(owner)
	renamed.Name = "renamed"
	p.create(t, configMaps, "default", "missing", ownedBy(missing()))
	p.create(t, configMaps, "default", "another-uid", ownedBy(another))
	p.create(t, configMaps, "default", "another-name", ownedBy(renamed))
	p.create(t, configMaps, "default", "kept", ownedBy(reference(owner)))
	p.run(t, collector)
	for _, name := range []string{"missing", "another-uid", "another-name"} {
		p.awaitGone(t, configMaps, "default", name)
	}
	p.settle(t)
	if !p.there(t, configMaps, "default", "kept") {
		t.Error("what has an owner is gone")
	}
}

func TestAnOwnerInAnotherNamespaceIsNone(t *testing.T) {
	p := newPlane(t)
	p.create(t, namespaces, "", "other")
	owner := p.create(t, widgets, "default", "owner")
	p.run(t, collector)
	p.settle(t) // so that the owner is known
	o := p.create(t, configMaps, "other", "a", ownedBy(reference(owner)))
	p.awaitGone(t, configMaps, "other", "a")
	p.awaitEvent(t, "other", o, fmt.Sprintf("ownerRef [example.com/v1/Widget, namespace: other, name: owner, uid: %s] does not exist in namespace \"other\"", owner.GetUID()))
}

func TestWhatIsInNoNamespaceIsNeverOwnedByWhatIsInOne(t *testing.T) {
	p := newPlane(t)
	p.run(t, collector)
	owner := p.create(t, widgets, "default", "owner")
	o := p.create(t, plains, "", "a", ownedBy(reference(owner)))
	p.awaitEvent(t, "default", o, fmt.Sprintf("ownerRef [example.com/v1/Widget, namespace: , name: owner, uid: %s] does not exist in namespace \"\"", owner.GetUID()))
	p.delete(t, widgets, "default", "owner")
	p.settle(t)
	if !p.there(t, plains, "", "a") {
		t.Error("it is gone")
	}
}

func (p *testPlane) awaitEvent(t *testing.T, namespace string, about *unstructured.Unstructured, message string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	list, err := p.in(events, namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w, err := p.in(events, namespace).Watch(ctx, metav1.ListOptions{ResourceVersion: list.GetResourceVersion()})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	found := func(o *unstructured.Unstructured) bool {
		uid, _, _ := unstructured.NestedString(o.Object, "involvedObject", "uid")
		return uid == string(about.GetUID()) && o.Object["reason"] == "OwnerRefInvalidNamespace" && o.Object["message"] == message
	}
	if slices.ContainsFunc(list.Items, func(o unstructured.Unstructured) bool { return found(&o) }) {
		return
	}
	for e := range w.ResultChan() {
		if o, ok := e.Object.(*unstructured.Unstructured); ok && found(o) {
			return
		}
	}
	t.Fatal("no event says so")
}

func TestWhatHasAnOwnerOfAnUnknownKindStays(t *testing.T) {
	p := newPlane(t)
	p.run(t, collector)
	p.create(t, configMaps, "default", "a", ownedBy(metav1.OwnerReference{APIVersion: "example.com/v1", Kind: "Gadget", Name: "g", UID: "g"}))
	p.create(t, configMaps, "default", "b", ownedBy(metav1.OwnerReference{APIVersion: "example.com/v1", Kind: "Gadget", Name: "g", UID: "g"}, missing()))
	p.settle(t)
	for _, name := range []string{"a", "b"} {
		if !p.there(t, configMaps, "default", name) {
			t.Errorf("%s is gone", name)
		}
	}
	// Once there is the kind, it is known that there is no such object.
	p.Activate(t, strings.Replace(bundle, "//more", `kinds: "gadgets.example.com": {
			group: "example.com"
			names: {kind: "Gadget", plural: "gadgets"}
			storageVersion: "v1"
			versions: v1: #schema: {spec?: {size?: int}}
		}`, 1))
	p.awaitGone(t, configMaps, "default", "a")
	p.awaitGone(t, configMaps, "default", "b")
}

func TestObjectsOfNewKindsAreCollected(t *testing.T) {
	p := newPlane(t)
	p.run(t, collector)
	p.settle(t)
	gadgets := schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "gadgets"}
	p.Activate(t, strings.Replace(bundle, "//more", `kinds: "gadgets.example.com": {
			group: "example.com"
			names: {kind: "Gadget", plural: "gadgets"}
			storageVersion: "v1"
			versions: v1: #schema: {spec?: {size?: int}}
		}`, 1))
	owner := p.create(t, widgets, "default", "owner")
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v1", "kind": "Gadget"}}
	o.SetName("a")
	o.SetOwnerReferences([]metav1.OwnerReference{reference(owner)})
	o, err := p.in(gadgets, "default").Create(t.Context(), o, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	p.create(t, configMaps, "default", "of-a", ownedBy(reference(o)))
	p.delete(t, widgets, "default", "owner")
	p.awaitGone(t, gadgets, "default", "a")
	p.awaitGone(t, configMaps, "default", "of-a")
}

// The server puts these finalizers on as a delete asks for it.
func TestOrphansLoseTheirOwnerAndStay(t *testing.T) {
	p := newPlane(t)
	p.run(t, collector)
	owner := p.create(t, widgets, "default", "owner", finalizers("orphan"))
	other := p.create(t, widgets, "default", "other")
	p.create(t, configMaps, "default", "a", ownedBy(reference(owner)))
	p.create(t, configMaps, "default", "b", ownedBy(reference(owner), reference(other)))
	p.settle(t)
	p.delete(t, widgets, "default", "owner")
	p.awaitGone(t, widgets, "default", "owner")
	p.settle(t)
	for name, left := range map[string]int{"a": 0, "b": 1} {
		o, err := p.in(configMaps, "default").Get(t.Context(), name, metav1.GetOptions{})
		if err != nil || len(o.GetOwnerReferences()) != left {
			t.Errorf("%s: %v, %v", name, o, err)
		}
	}
}

func TestAnOwnerWaitsForDependentsThatBlockIt(t *testing.T) {
	p := newPlane(t)
	p.run(t, collector)
	owner := p.create(t, widgets, "default", "owner", finalizers("foregroundDeletion"))
	p.create(t, configMaps, "default", "blocks", ownedBy(blocking(reference(owner))), finalizers("example.com/hold"))
	p.create(t, configMaps, "default", "free", ownedBy(reference(owner)))
	p.settle(t)
	p.delete(t, widgets, "default", "owner")
	p.await(t, configMaps, "default", "blocks", "being deleted", func(o *unstructured.Unstructured) bool { return o.GetDeletionTimestamp() != nil })
	p.awaitGone(t, configMaps, "default", "free")
	p.settle(t)
	if !p.there(t, widgets, "default", "owner") {
		t.Fatal("the owner did not wait")
	}
	p.patch(t, configMaps, "default", "blocks", `{"metadata":{"finalizers":null}}`)
	p.awaitGone(t, widgets, "default", "owner")
}

func TestAnOwnerDoesNotWaitForDependentsThatOthersOwn(t *testing.T) {
	p := newPlane(t)
	p.run(t, collector)
	owner := p.create(t, widgets, "default", "owner", finalizers("foregroundDeletion"))
	other := p.create(t, widgets, "default", "other")
	p.create(t, configMaps, "default", "shared", ownedBy(blocking(reference(owner)), blocking(reference(other))))
	p.settle(t)
	p.delete(t, widgets, "default", "owner")
	p.awaitGone(t, widgets, "default", "owner")
	o, err := p.in(configMaps, "default").Get(t.Context(), "shared", metav1.GetOptions{})
	if err != nil || len(o.GetOwnerReferences()) != 1 || o.GetOwnerReferences()[0].Name != "other" {
		t.Errorf("what others own: %v, %v", o, err)
	}
}

func TestObjectsThatOwnEachOtherStayUntilOneIsDeleted(t *testing.T) {
	p := newPlane(t)
	p.run(t, collector)
	a := p.create(t, widgets, "default", "a")
	b := p.create(t, widgets, "default", "b", ownedBy(reference(a)))
	own, err := json.Marshal(reference(b))
	if err != nil {
		t.Fatal(err)
	}
	p.patch(t, widgets, "default", "a", `{"metadata":{"ownerReferences":[`+string(own)+`]}}`)
	p.settle(t)
	if !p.there(t, widgets, "default", "a") || !p.there(t, widgets, "default", "b") {
		t.Fatal("they are gone")
	}
	p.delete(t, widgets, "default", "a")
	p.awaitGone(t, widgets, "default", "b")
}

func TestWhatWasLeftUndoneIsDoneByTheNextCollector(t *testing.T) {
	p := newPlane(t)
	stop := p.run(t, collector)
	owner := p.create(t, widgets, "default", "owner")
	orphaning := p.create(t, widgets, "default", "orphaning", finalizers("orphan"))
	waiting := p.create(t, widgets, "default", "waiting", finalizers("foregroundDeletion"))
	p.create(t, configMaps, "default", "of-owner", ownedBy(reference(owner)))
	p.create(t, configMaps, "default", "of-orphaning", ownedBy(reference(orphaning)))
	p.create(t, configMaps, "default", "of-waiting", ownedBy(blocking(reference(waiting))))
	stop()
	for _, name := range []string{"owner", "orphaning", "waiting"} {
		p.delete(t, widgets, "default", name)
	}
	p.run(t, collector)
	p.awaitGone(t, widgets, "default", "orphaning")
	p.awaitGone(t, widgets, "default", "waiting")
	p.awaitGone(t, configMaps, "default", "of-owner")
	p.awaitGone(t, configMaps, "default", "of-waiting")
	if !p.there(t, configMaps, "default", "of-orphaning") {
		t.Error("an orphan is gone")
	}
}

func TestTheLogTellsWhoCollected(t *testing.T) {
	p := newPlane(t)
	p.run(t, collector)
	p.create(t, configMaps, "default", "a", ownedBy(missing()))
	p.awaitGone(t, configMaps, "default", "a")
	for e := range p.history(t) {
		if e.Meta.GetType() == logpb.Type_TYPE_DELETED && e.Meta.GetActor().GetUser() != "system:serviceaccount:kube-system:generic-garbage-collector" {
			t.Errorf("deleted by %v", e.Meta.GetActor())
		}
	}
}

// history are the events of the log, the oldest first.
func (p *testPlane) history(t *testing.T) func(func(*eventlog.Event) bool) {
	t.Helper()
	return func(yield func(*eventlog.Event) bool) {
		at := p.Log.Start()
		for {
			batches, err := p.Log.CatchUp(t.Context(), at)
			if err != nil {
				t.Fatal(err)
			}
			if len(batches) == 0 {
				return
			}
			for _, b := range batches {
				for _, e := range b.Events {
					if !yield(e) {
						return
					}
				}
				at = b.Head()
			}
		}
	}
}

// TestNothingIsCollectedThatHasAnOwner makes objects that own each other at random, deletes
// some, and holds what becomes of them against the rules, and every deletion against what
// there was at its revision.
func TestNothingIsCollectedThatHasAnOwner(t *testing.T) {
	for seed := range graphs() {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			collectAtRandom(t, rand.New(rand.NewPCG(seed, 0)), metav1.DeletePropagationBackground)
		})
	}
}

// graphs returns how many random graphs of owners are tried: a few by default, because the race detector watches.
func graphs() uint64 {
	if testing.Short() {
		return 5
	}
	return *graphsTried
}

var graphsTried = flag.Uint64("controllers.graphs", 8, "how many random graphs of owners the garbage collector is tried on")

// In the foreground everything comes to the same.
func TestNothingIsCollectedInTheForegroundThatHasAnOwner(t *testing.T) {
	for seed := range graphs() {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			collectAtRandom(t, rand.New(rand.NewPCG(seed, 0)), metav1.DeletePropagationBackground, metav1.DeletePropagationForeground)
		})
	}
}

// thing is an object of the model.
type thing struct {
	resource        schema.GroupVersionResource
	namespace, name string
	object          *unstructured.Unstructured
	owners          []metav1.OwnerReference
	orphans         bool // its dependents
}

func collectAtRandom(t *testing.T, rng *rand.Rand, policies ...metav1.DeletionPropagation) {
	p := newPlane(t)
	p.create(t, namespaces, "", "other")
	stop := p.run(t, collector)
	if rng.IntN(2) == 0 {
		p.run(t, collector) // as well
	}
	var things []*thing
	for i := range 40 {
		x := &thing{resource: widgets, namespace: "default", name: fmt.Sprint("x", i)}
		switch rng.IntN(5) {
		case 0:
			x.resource, x.namespace = plains, ""
		case 1:
			x.namespace = "other"
		case 2:
			x.resource = configMaps
		}
		for range rng.IntN(3) {
			r := missing()
			if len(things) > 0 && rng.IntN(10) > 0 {
				r = reference(things[rng.IntN(len(things))].object)
			}
			if rng.IntN(2) == 0 {
				r = blocking(r)
			}
			if !slices.ContainsFunc(x.owners, func(o metav1.OwnerReference) bool { return o.UID == r.UID }) {
				x.owners = append(x.owners, r)
			}
		}
		if unjudged(x) { // and so would block its owners for ever, as in Kubernetes
			for i := range x.owners {
				x.owners[i].BlockOwnerDeletion = nil
			}
		}
		var held []string
		if x.orphans = len(x.owners) == 0 && rng.IntN(3) == 0; x.orphans {
			held = []string{"orphan"}
		}
		x.object = p.create(t, x.resource, x.namespace, x.name, ownedBy(x.owners...), finalizers(held...))
		things = append(things, x)
	}
	p.settle(t)
	there := things
	// By now those are gone whose owners never were where they should be.
	there = survivors(there)
	p.is(t, there)
	for range 6 {
		if len(there) == 0 {
			break
		}
		x := there[rng.IntN(len(there))]
		if x.orphans {
			p.delete(t, x.resource, x.namespace, x.name)
		} else {
			p.deleteAs(t, policies[rng.IntN(len(policies))], x.resource, x.namespace, x.name)
		}
		there = slices.DeleteFunc(there, func(y *thing) bool { return y == x })
		if x.orphans {
			for _, y := range there {
				y.owners = slices.DeleteFunc(y.owners, func(r metav1.OwnerReference) bool { return r.UID == x.object.GetUID() })
			}
		}
		there = survivors(there)
		p.is(t, there)
	}
	stop()
	p.holdDeletions(t)
}

// unjudged tells whether it cannot be said of some owner whether it is there.
func unjudged(x *thing) bool {
	return x.namespace == "" && slices.ContainsFunc(x.owners, func(r metav1.OwnerReference) bool { return r.Kind != "Plain" })
}

// survivors are those of which some owner is there, or none is named, or of one of which it
// cannot be said; the owners that are not there are taken from them.
func survivors(there []*thing) []*thing {
	for {
		var left []*thing
		for _, x := range there {
			is := slices.DeleteFunc(slices.Clone(x.owners), func(r metav1.OwnerReference) bool {
				return !slices.ContainsFunc(there, func(y *thing) bool {
					return y.object.GetUID() == r.UID && (y.namespace == "" || y.namespace == x.namespace)
				})
			})
			if unjudged(x) {
				left = append(left, x)
			} else if len(is) > 0 || len(x.owners) == 0 {
				x.owners = is
				left = append(left, x)
			}
		}
		if len(left) == len(there) {
			return left
		}
		there = left
	}
}

// is waits until there is what there should be, with the owners that it should have.
func (p *testPlane) is(t *testing.T, want []*thing) {
	t.Helper()
	should := map[types.UID]*thing{}
	for _, x := range want {
		should[x.object.GetUID()] = x
	}
	for _, r := range []schema.GroupVersionResource{widgets, plains, configMaps} {
		list, err := p.Resource(r).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range list.Items {
			if should[o.GetUID()] == nil {
				p.awaitGone(t, r, o.GetNamespace(), o.GetName())
			}
		}
	}
	for _, x := range want {
		p.await(t, x.resource, x.namespace, x.name, "there, with its owners", func(o *unstructured.Unstructured) bool {
			if o == nil {
				t.Fatalf("%s is gone, and should not be", x.name)
			}
			return slices.EqualFunc(o.GetOwnerReferences(), x.owners, func(a, b metav1.OwnerReference) bool { return a.UID == b.UID })
		})
	}
}

// holdDeletions goes through the log: at no revision was something collected that had an
// owner then which did not wait for it.
func (p *testPlane) holdDeletions(t *testing.T) {
	t.Helper()
	there := map[types.UID]*metav1.PartialObjectMetadata{}
	for e := range p.history(t) {
		o := &metav1.PartialObjectMetadata{}
		if e.Meta.GetObject() == nil {
			continue
		}
		if err := json.Unmarshal(e.Content(logpb.Role_ROLE_OBJECT), o); err != nil {
			t.Fatal(err)
		}
		if e.Meta.GetType() != logpb.Type_TYPE_DELETED {
			there[o.UID] = o
			continue
		}
		delete(there, o.UID)
		if !strings.HasSuffix(e.Meta.GetActor().GetUser(), ":generic-garbage-collector") || o.DeletionTimestamp != nil {
			continue
		}
		for _, r := range o.OwnerReferences {
			if owner := there[r.UID]; owner != nil && !slices.Contains(owner.Finalizers, "foregroundDeletion") && (owner.Namespace == "" || owner.Namespace == o.Namespace) {
				t.Errorf("revision %d: %s/%s was collected, and is owned by %s/%s", e.Revision, o.Namespace, o.Name, owner.Namespace, owner.Name)
			}
		}
	}
}

// deleteAs deletes an object with a propagation policy.
func (p *testPlane) deleteAs(t *testing.T, policy metav1.DeletionPropagation, r schema.GroupVersionResource, namespace, name string) {
	t.Helper()
	if err := p.in(r, namespace).Delete(t.Context(), name, metav1.DeleteOptions{PropagationPolicy: &policy}); err != nil {
		t.Fatal(err)
	}
}

func TestTheForegroundGoesDownTheWholeTree(t *testing.T) {
	p := newPlane(t)
	p.run(t, collector)
	root := p.create(t, plains, "", "root")
	branch := p.create(t, widgets, "default", "branch", ownedBy(blocking(reference(root))))
	leaf := p.create(t, configMaps, "default", "leaf", ownedBy(blocking(reference(branch))), finalizers("example.com/hold"))
	p.settle(t)
	p.deleteAs(t, metav1.DeletePropagationForeground, plains, "", "root")
	p.await(t, configMaps, "default", "leaf", "being deleted", func(o *unstructured.Unstructured) bool { return o.GetDeletionTimestamp() != nil })
	p.settle(t)
	for _, o := range []*unstructured.Unstructured{root, branch} {
		r := map[string]schema.GroupVersionResource{"Plain": plains, "Widget": widgets}[o.GetKind()]
		p.await(t, r, o.GetNamespace(), o.GetName(), "waiting", func(o *unstructured.Unstructured) bool {
			return o != nil && o.GetDeletionTimestamp() != nil && slices.Contains(o.GetFinalizers(), "foregroundDeletion")
		})
	}
	p.patch(t, configMaps, leaf.GetNamespace(), leaf.GetName(), `{"metadata":{"finalizers":null}}`)
	p.awaitGone(t, plains, "", "root")
	for _, e := range []string{"branch", "leaf"} {
		if p.there(t, widgets, "default", e) || p.there(t, configMaps, "default", e) {
			t.Errorf("%s outlived the root", e)
		}
	}
}

func TestWhatCannotBeOwnedBlocksNoOwner(t *testing.T) {
	p := newPlane(t)
	p.run(t, collector)
	owner := p.create(t, widgets, "default", "owner", finalizers("foregroundDeletion"))
	p.create(t, plains, "", "cluster", ownedBy(blocking(reference(owner))))
	p.settle(t)
	p.delete(t, widgets, "default", "owner")
	p.awaitGone(t, widgets, "default", "owner")
	if !p.there(t, plains, "", "cluster") {
		t.Error("what cannot be owned is gone")
	}
}

func TestACircleInTheForegroundEnds(t *testing.T) {
	p := newPlane(t)
	p.run(t, collector)
	a := p.create(t, widgets, "default", "a")
	b := p.create(t, widgets, "default", "b", ownedBy(blocking(reference(a))))
	own, err := json.Marshal(blocking(reference(b)))
	if err != nil {
		t.Fatal(err)
	}
	p.patch(t, widgets, "default", "a", `{"metadata":{"ownerReferences":[`+string(own)+`]}}`)
	p.settle(t)
	p.deleteAs(t, metav1.DeletePropagationForeground, widgets, "default", "a")
	p.awaitGone(t, widgets, "default", "a")
	p.awaitGone(t, widgets, "default", "b")
}
