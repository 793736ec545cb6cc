package read_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic/dynamicinformer"
	clientfeatures "k8s.io/client-go/features"
	clientfeaturestesting "k8s.io/client-go/features/testing"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/tools/pager"
	"k8s.io/client-go/tools/record"
	toolswatch "k8s.io/client-go/tools/watch"
	"k8s.io/client-go/util/consistencydetector"
	"k8s.io/client-go/util/retry"
	"stele.dev/stele/core/run/plane/planetest"
	"stele.dev/stele/eventlog/memlog"
)

// restart is another process on the same log. In between, meanwhile happens in a process
// that no client reaches.
func restart(s *planetest.Site, meanwhile func()) {
	s.T.Helper()
	s.Crash()
	s.Boot()
	if meanwhile != nil {
		meanwhile()
	}
	s.Listen()
}

// asked tells whether a client sent a request with all of these parts.
func asked(s *planetest.Site, parts ...string) bool {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	return slices.ContainsFunc(s.Seen, func(request string) bool {
		return !slices.ContainsFunc(parts, func(p string) bool { return !strings.Contains(request, p) })
	})
}

// Informers of all three clients have what the server has: at first, after changes, after
// a restart, and after one that left them behind all that is remembered. It makes no
// difference whether they begin by a list or by a watch that begins with the state.
func TestInformersOutliveRestartsAndExpiry(t *testing.T) {
	for _, watchList := range []bool{true, false} {
		t.Run(fmt.Sprintf("WatchList=%v", watchList), func(t *testing.T) {
			clientfeaturestesting.SetFeatureDuringTest(t, clientfeatures.WatchListClient, watchList)
			s := planetest.NewSite(t, 8<<10)
			planetest.Fill(t, s.Replica, 3)
			s.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("churn", 1))
			s.Must(t, 201, "POST", "/api/v1/namespaces/default/configmaps", `{"metadata":{"name":"first"}}`)

			typed := informers.NewSharedInformerFactory(s.Typed(), 0)
			dynamics := dynamicinformer.NewDynamicSharedInformerFactory(s.Dynamic(), 0)
			metadatas := metadatainformer.NewSharedInformerFactory(s.Metadata(), 0)
			const widgets, configMaps = "/apis/example.com/v1/widgets", "/api/v1/configmaps"
			all := map[string]struct {
				informer cache.SharedIndexInformer
				path     string
			}{
				"typed ConfigMaps":       {typed.Core().V1().ConfigMaps().Informer(), configMaps},
				"dynamic Widgets":        {dynamics.ForResource(planetest.WidgetsGVR).Informer(), widgets},
				"metadata of Widgets":    {metadatas.ForResource(planetest.WidgetsGVR).Informer(), widgets},
				"metadata of ConfigMaps": {metadatas.ForResource(planetest.ConfigMapsGVR).Informer(), configMaps},
			}
			stop := make(chan struct{})
			typed.Start(stop)
			dynamics.Start(stop)
			metadatas.Start(stop)
			defer func() {
				close(stop)
				typed.Shutdown()
				dynamics.Shutdown()
				metadatas.Shutdown()
			}()
			agree := func(when string) {
				t.Helper()
				for name, i := range all {
					want := s.Listed(i.path)
					deadline := time.Now().Add(time.Minute)
					for !maps.Equal(planetest.Contents(t, i.informer.GetStore()), want) && time.Now().Before(deadline) {
						time.Sleep(5 * time.Millisecond)
					}
					if diff := cmp.Diff(want, planetest.Contents(t, i.informer.GetStore())); diff != "" {
						t.Fatalf("%s, %s (-server +informer):\n%s", when, name, diff)
					}
				}
			}
			agree("at first")
			if asked(s, "GET "+widgets, "sendInitialEvents=true") != watchList || asked(s, "GET "+widgets, "limit=500") == watchList {
				t.Errorf("asked for %q", s.Seen)
			}
			s.Must(t, 200, "DELETE", planetest.WidgetsPath+"/w01", "")
			s.Must(t, 201, "POST", "/api/v1/namespaces/default/configmaps", `{"metadata":{"name":"second"}}`)
			agree("after changes")
			restart(s, func() { s.Patch("w00", "merge", `{"spec":{"size":77}}`) })
			agree("after a restart")
			restart(s, func() {
				s.Must(t, 200, "DELETE", planetest.WidgetsPath+"/w02", "")
				s.Forget()
			})
			agree("after what was missed is forgotten")
		})
	}
}

// client-go's own detector, which panics where a list at the revision that ends the initial
// events has anything else than those brought.
func TestInitialEventsAreTheListOfTheirRevision(t *testing.T) {
	defer consistencydetector.SetDataConsistencyDetectionForWatchListEnabledForTest(true)()
	s := planetest.NewSite(t, 0)
	planetest.Fill(t, s.Replica, 5)
	s.Must(t, 201, "POST", "/api/v1/namespaces/default/secrets", `{"metadata":{"name":"a","labels":{"x":"y"}},"stringData":{"k":"v"}}`)
	typed := informers.NewSharedInformerFactory(s.Typed(), 0)
	dynamics := dynamicinformer.NewDynamicSharedInformerFactory(s.Dynamic(), 0)
	metadatas := metadatainformer.NewSharedInformerFactory(s.Metadata(), 0)
	paths := map[string]cache.InformerSynced{
		"/api/v1/secrets":    typed.Core().V1().Secrets().Informer().HasSynced,
		"/api/v1/namespaces": typed.Core().V1().Namespaces().Informer().HasSynced,
		"/apis/rbac.authorization.k8s.io/v1/clusterroles": typed.Rbac().V1().ClusterRoles().Informer().HasSynced,
		"/apis/example.com/v1/widgets":                    dynamics.ForResource(planetest.WidgetsGVR).Informer().HasSynced,
		"/api/v1/configmaps":                              metadatas.ForResource(planetest.ConfigMapsGVR).Informer().HasSynced,
	}
	stop := make(chan struct{})
	typed.Start(stop)
	dynamics.Start(stop)
	metadatas.Start(stop)
	defer func() { close(stop); typed.Shutdown(); dynamics.Shutdown(); metadatas.Shutdown() }()
	for path, synced := range paths {
		if !cache.WaitForCacheSync(s.Context().Done(), synced) {
			t.Fatalf("%s is never in sync; asked for %q", path, s.Seen)
		}
		planetest.WaitFor(t, func() bool { return asked(s, "GET "+path+"?", "resourceVersionMatch=Exact") })
	}
}

// Informers that have seen what is now the future, as when an older copy of the log took
// its place, take up what there is.
func TestInformersFollowALogThatWentBack(t *testing.T) {
	s := planetest.NewSite(t, 0)
	planetest.Fill(t, s.Replica, 3)
	factory := dynamicinformer.NewDynamicSharedInformerFactory(s.Dynamic(), 0)
	informer := factory.ForResource(planetest.WidgetsGVR).Informer()
	stop := make(chan struct{})
	factory.Start(stop)
	defer func() { close(stop); factory.Shutdown() }()
	planetest.WaitFor(t, func() bool { return len(informer.GetStore().List()) == 3 })
	s.Crash()
	s.Store = memlog.Store{}
	s.Boot()
	s.Bootstrap(t, planetest.Bundle)
	s.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("only", 1))
	s.Listen()
	want := s.Listed(planetest.WidgetsPath)
	planetest.WaitFor(t, func() bool { return maps.Equal(planetest.Contents(t, informer.GetStore()), want) })
}

// Where a watch cannot begin with the state, the same informer lists.
func TestInformersFallBackToLists(t *testing.T) {
	s := planetest.NewSite(t, 0)
	planetest.Fill(t, s.Replica, 2)
	gvr := schema.GroupVersionResource{Group: "log.stele.dev", Version: "v1", Resource: "changes"}
	factory := dynamicinformer.NewDynamicSharedInformerFactory(s.Dynamic(), 0)
	informer := factory.ForResource(gvr).Informer()
	stop := make(chan struct{})
	factory.Start(stop)
	defer func() { close(stop); factory.Shutdown() }()
	if !cache.WaitForCacheSync(s.Context().Done(), informer.HasSynced) {
		t.Fatalf("never in sync; asked for %q", s.Seen)
	}
	last := fmt.Sprint(s.Committer.Tip().Revision())
	if _, found, _ := informer.GetStore().GetByKey("default/" + last); !found {
		t.Errorf("change %s is not there, but %v", last, informer.GetStore().ListKeys())
	}
	s.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("live", 1))
	planetest.WaitFor(t, func() bool {
		_, found, _ := informer.GetStore().GetByKey("default/" + fmt.Sprint(s.Committer.Tip().Revision()))
		return found
	})
	if !asked(s, "changes", "sendInitialEvents=true") || !asked(s, "changes", "limit=500") {
		t.Errorf("asked for %q", s.Seen)
	}
}

// widgetsLW lists and watches as client-go's tools want it.
func widgetsLW(s *planetest.Site) *cache.ListWatch {
	client := s.Dynamic().Resource(planetest.WidgetsGVR).Namespace("default")
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return client.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return client.Watch(ctx, o)
		},
	}
}

// A RetryWatcher misses nothing and hears nothing twice through restarts, also of what memory
// does not hold any more.
func TestRetryWatcher(t *testing.T) {
	s := planetest.NewSite(t, 8<<10)
	s.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("churn", 1))
	w := planetest.Must[*toolswatch.RetryWatcher](t)(toolswatch.NewRetryWatcherWithContext(s.Context(), fmt.Sprint(s.Committer.Tip().Revision()), widgetsLW(s)))
	defer w.Stop()
	expect := func(name string) {
		t.Helper()
		e := planetest.NextOf(t, w)
		if got := e.Object.(*unstructured.Unstructured).GetName(); e.Type != watch.Added || got != name {
			t.Fatalf("%s %s, want ADDED %s", e.Type, got, name)
		}
	}
	s.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("a", 1))
	expect("a")
	restart(s, func() { s.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("b", 1)) })
	s.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("c", 1))
	expect("b")
	expect("c")
	s.Drain() // as before a stop: the watch ends in peace
	restart(s, nil)
	s.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("d", 1))
	expect("d")
	restart(s, s.Forget)
	s.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("e", 1))
	for n := int64(1); ; n++ {
		e := planetest.NextOf(t, w)
		o := e.Object.(*unstructured.Unstructured)
		if o.GetName() == "e" {
			break
		}
		if size, _, _ := unstructured.NestedInt64(o.Object, "spec", "size"); e.Type != watch.Modified || o.GetName() != "churn" || size != n+1 {
			t.Fatalf("%s %v, want change %d of what was forgotten", e.Type, o, n)
		}
	}
}

// UntilWithSync goes on after anything.
func TestUntilWithSync(t *testing.T) {
	s := planetest.NewSite(t, 8<<10)
	s.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("churn", 1))
	began, done := make(chan struct{}), make(chan error, 1)
	var once sync.Once
	go func() {
		_, err := toolswatch.UntilWithSync(s.Context(), widgetsLW(s), &unstructured.Unstructured{}, nil, func(e watch.Event) (bool, error) {
			once.Do(func() { close(began) })
			o, ok := e.Object.(*unstructured.Unstructured)
			return ok && o.GetName() == "wanted", nil
		})
		done <- err
	}()
	<-began
	restart(s, s.Forget)
	s.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("wanted", 1))
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// A pager takes a list in pages; if that expires on the way, List begins again with all
// at once, and EachListItem says so.
func TestPager(t *testing.T) {
	s := planetest.NewSite(t, 4<<10)
	planetest.Fill(t, s.Replica, 5)
	s.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("churn", 1))
	client := s.Dynamic().Resource(planetest.WidgetsGVR).Namespace("default")
	pages, expire := 0, false
	p := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		if pages++; pages == 2 && expire {
			s.Forget()
		}
		return client.List(ctx, o)
	})
	p.PageSize = 2
	list := func() []string {
		found, _, err := p.List(s.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		if err := meta.EachListItem(found, func(o runtime.Object) error {
			names = append(names, o.(*unstructured.Unstructured).GetName())
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		return names
	}
	want := []string{"churn", "w00", "w01", "w02", "w03", "w04"}
	if got := list(); !slices.Equal(got, want) || pages != 3 {
		t.Errorf("%v in %d pages", got, pages)
	}
	pages, expire = 0, true
	if got := list(); !slices.Equal(got, want) || pages != 3 { // what left memory goes on from history
		t.Errorf("%v in %d pages", got, pages)
	}
}

// A lease has one holder; when that falls silent another takes over, and when that lets go
// the next does at once.
func TestLeaderElection(t *testing.T) {
	s := planetest.NewSite(t, 0)
	client := s.Typed()
	leads := make(chan string, 10)
	candidate := func(name string, release bool) (context.CancelFunc, <-chan struct{}) {
		ctx, cancel := context.WithCancel(s.Context())
		elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
			Lock: &resourcelock.LeaseLock{
				LeaseMeta: metav1.ObjectMeta{Namespace: "default", Name: "leader"}, Client: client.CoordinationV1(),
				LockConfig: resourcelock.ResourceLockConfig{Identity: name},
			},
			LeaseDuration: 3 * time.Second, RenewDeadline: 2 * time.Second, RetryPeriod: 100 * time.Millisecond, ReleaseOnCancel: release, Name: name,
			Callbacks: leaderelection.LeaderCallbacks{OnStartedLeading: func(context.Context) { leads <- name }, OnStoppedLeading: func() {}},
		})
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() { defer close(ended); elector.Run(ctx) }()
		return cancel, ended
	}
	expect := func(name string) *coordinationv1.Lease {
		t.Helper()
		select {
		case got := <-leads:
			if got != name {
				t.Fatalf("%s leads, not %s", got, name)
			}
		case <-time.After(time.Minute):
			t.Fatalf("%s never leads", name)
		}
		lease := planetest.Must[*coordinationv1.Lease](t)(client.CoordinationV1().Leases("default").Get(s.Context(), "leader", metav1.GetOptions{}))
		if lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity != name {
			t.Fatalf("lease %+v, want that of %s", lease.Spec, name)
		}
		return lease
	}
	kill, killed := candidate("a", false)
	first := expect("a")
	stop, stopped := candidate("b", true)
	kill() // it does not let go
	<-killed
	second := expect("b")
	if *second.Spec.LeaseTransitions != *first.Spec.LeaseTransitions+1 || second.Spec.AcquireTime.Sub(first.Spec.AcquireTime.Time) < 3*time.Second {
		t.Errorf("from %+v to %+v", first.Spec, second.Spec)
	}
	end, ended := candidate("c", true)
	stop()
	<-stopped
	expect("c")
	end()
	<-ended
}

// What has not been yet is said so that clients know it, of lists and of watches.
func TestClientsHearOfTheFuture(t *testing.T) {
	s := planetest.NewSite(t, 0)
	future := func() *rest.Request { // it would be asked for ten times
		return s.Typed().CoreV1().RESTClient().Get().Resource("configmaps").Param("resourceVersion", "999999999").MaxRetries(0)
	}
	_, watched := future().Param("watch", "true").Watch(s.Context())
	for what, err := range map[string]error{"list": future().Do(s.Context()).Error(), "watch": watched} {
		if !apierrors.IsTimeout(err) || !apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// The dynamic client's verbs on a custom kind.
func TestDynamicClient(t *testing.T) {
	s := planetest.NewSite(t, 0)
	ctx, client := s.Context(), s.Dynamic().Resource(planetest.WidgetsGVR).Namespace("default")
	one := planetest.Must[*unstructured.Unstructured](t)
	w := planetest.Must[watch.Interface](t)(client.Watch(ctx, metav1.ListOptions{ResourceVersion: fmt.Sprint(s.Committer.Tip().Revision())}))
	defer w.Stop()
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v1", "kind": "Widget", "metadata": map[string]any{"name": "a"}, "spec": map[string]any{"size": int64(1)}}}
	created := one(client.Create(ctx, o, metav1.CreateOptions{FieldManager: "test"}))
	if diff := cmp.Diff(created.Object, one(client.Get(ctx, "a", metav1.GetOptions{})).Object); diff != "" {
		t.Errorf("(-created +got):\n%s", diff)
	}
	if _, err := client.Create(ctx, o, metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
		t.Errorf("created twice: %v", err)
	}
	_ = unstructured.SetNestedField(created.Object, int64(2), "spec", "size")
	updated := one(client.Update(ctx, created, metav1.UpdateOptions{}))
	if _, err := client.Update(ctx, created, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("updated twice: %v", err)
	}
	_ = unstructured.SetNestedField(updated.Object, true, "status", "ready")
	if ready, _, _ := unstructured.NestedBool(one(client.UpdateStatus(ctx, updated, metav1.UpdateOptions{})).Object, "status", "ready"); !ready {
		t.Error("the status is as it was")
	}
	one(client.Patch(ctx, "a", types.MergePatchType, []byte(`{"spec":{"size":3}}`), metav1.PatchOptions{}))
	last := one(client.Patch(ctx, "a", types.JSONPatchType, []byte(`[{"op":"replace","path":"/status/note","value":"x"}]`), metav1.PatchOptions{}, "status"))
	if list := planetest.Must[*unstructured.UnstructuredList](t)(client.List(ctx, metav1.ListOptions{})); len(list.Items) != 1 || !cmp.Equal(list.Items[0].Object, last.Object) || list.GetKind() != "WidgetList" {
		t.Errorf("%v", list)
	}
	if err := client.Delete(ctx, "a", metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions("other")}); !apierrors.IsConflict(err) {
		t.Errorf("deleted as another: %v", err)
	}
	if err := client.Delete(ctx, "a", metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
	if _, err := client.Get(ctx, "a", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("got what is deleted: %v", err)
	}
	for _, want := range []watch.EventType{watch.Added, watch.Modified, watch.Modified, watch.Modified, watch.Modified, watch.Deleted} {
		if e := planetest.NextOf(t, w); e.Type != want {
			t.Errorf("%s, want %s", e.Type, want)
		}
	}
}

func TestMetadataClient(t *testing.T) {
	s := planetest.NewSite(t, 0)
	planetest.Fill(t, s.Replica, 3)
	ctx, client := s.Context(), s.Metadata().Resource(planetest.WidgetsGVR).Namespace("default")
	list := planetest.Must[*metav1.PartialObjectMetadataList](t)(client.List(ctx, metav1.ListOptions{LabelSelector: "mod=0", Limit: 1}))
	if len(list.Items) != 1 || list.Items[0].Name != "w00" || list.Continue == "" {
		t.Errorf("%+v", list)
	}
	w := planetest.Must[watch.Interface](t)(client.Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion}))
	defer w.Stop()
	patched := planetest.Must[*metav1.PartialObjectMetadata](t)(client.Patch(ctx, "w01", types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`), metav1.PatchOptions{}))
	if got := planetest.Must[*metav1.PartialObjectMetadata](t)(client.Get(ctx, "w01", metav1.GetOptions{})); !cmp.Equal(got, patched) || got.Labels["a"] != "b" {
		t.Errorf("%+v, patched %+v", got, patched)
	}
	if e := planetest.NextOf(t, w); e.Type != watch.Modified || e.Object.(*metav1.PartialObjectMetadata).Labels["a"] != "b" {
		t.Errorf("%v", e)
	}
	if err := client.Delete(ctx, "w01", metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
	if e := planetest.NextOf(t, w); e.Type != watch.Deleted {
		t.Errorf("%v", e)
	}
}

// What kubectl and controllers find out about a server: aggregated, cached, by short name.
func TestDiscoveryClient(t *testing.T) {
	s := planetest.NewSite(t, 0)
	client := memory.NewMemCacheClient(s.Typed().Discovery())
	mapper := restmapper.NewShortcutExpander(restmapper.NewDeferredDiscoveryRESTMapper(client), client, nil)
	for short, want := range map[string]schema.GroupVersionResource{
		"wd": planetest.WidgetsGVR, "widget": planetest.WidgetsGVR, "widgets": planetest.WidgetsGVR, "cm": planetest.ConfigMapsGVR, "configmap": planetest.ConfigMapsGVR,
		"lease": {Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}, "crd": {Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"},
	} {
		if got, err := mapper.ResourceFor(schema.GroupVersionResource{Resource: short}); err != nil || got != want {
			t.Errorf("%s is %v, want %v: %v", short, got, want, err)
		}
	}
	mapping, err := mapper.RESTMapping(schema.GroupKind{Group: "example.com", Kind: "Plain"})
	if err != nil || mapping.Resource.Resource != "plains" || mapping.Scope.Name() != meta.RESTScopeNameRoot {
		t.Errorf("%+v: %v", mapping, err)
	}
	if _, err := mapper.RESTMapping(schema.GroupKind{Group: "example.com", Kind: "Gadget"}); !meta.IsNoMatchError(err) {
		t.Errorf("%v", err)
	}
	if !asked(s, "GET /apis?") || asked(s, "GET /apis/example.com/v1?") {
		t.Errorf("the aggregated document would do, but: %q", s.Seen)
	}
	if version, err := client.ServerVersion(); err != nil || version.Major != "1" || version.Minor != "37" {
		t.Errorf("%v: %v", version, err)
	}
	lists, err := client.ServerPreferredResources()
	if err != nil {
		t.Error(err)
	}
	found := map[string]bool{}
	for _, l := range lists {
		for _, r := range l.APIResources {
			found[l.GroupVersion+"/"+r.Name] = len(r.Verbs) > 0
		}
	}
	for _, want := range []string{"v1/configmaps", "v1/namespaces", "example.com/v1/widgets", "rbac.authorization.k8s.io/v1/clusterroles"} {
		if !found[want] {
			t.Errorf("%s is not among %v", want, found)
		}
	}
}

// The typed clients of the built-in kinds, as most controllers configure them.
func TestTypedClientsThatPreferProtobuf(t *testing.T) {
	s := planetest.NewSite(t, 0)
	s.Config.ContentType = runtime.ContentTypeProtobuf
	s.Config.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	client, ctx := s.Typed(), s.Context()

	configMaps := client.CoreV1().ConfigMaps("default")
	cm := planetest.Must[*corev1.ConfigMap](t)(configMaps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Data: map[string]string{"k": "v"}, BinaryData: map[string][]byte{"b": {0, 255}}}, metav1.CreateOptions{}))
	cm.Data["k"] = "w"
	planetest.Must[*corev1.ConfigMap](t)(configMaps.Update(ctx, cm, metav1.UpdateOptions{}))
	cm = planetest.Must[*corev1.ConfigMap](t)(configMaps.Patch(ctx, "a", types.StrategicMergePatchType, []byte(`{"data":{"l":"x"}}`), metav1.PatchOptions{}))
	if got := planetest.Must[*corev1.ConfigMap](t)(configMaps.Get(ctx, "a", metav1.GetOptions{})); !cmp.Equal(got, cm) || got.Data["k"] != "w" || got.Data["l"] != "x" || !cmp.Equal(got.BinaryData["b"], []byte{0, 255}) {
		t.Errorf("%+v", got)
	}
	if list := planetest.Must[*corev1.ConfigMapList](t)(configMaps.List(ctx, metav1.ListOptions{Limit: 1})); len(list.Items) != 1 || list.Items[0].Name != "a" {
		t.Errorf("%+v", list)
	}
	w := planetest.Must[watch.Interface](t)(configMaps.Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=a", ResourceVersion: cm.ResourceVersion}))
	defer w.Stop()
	if err := configMaps.Delete(ctx, "a", metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
	if e := planetest.NextOf(t, w); e.Type != watch.Deleted || e.Object.(*corev1.ConfigMap).Data["l"] != "x" {
		t.Errorf("%v", e)
	}
	if _, err := configMaps.Get(ctx, "a", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("%v", err)
	}

	secret := planetest.Must[*corev1.Secret](t)(client.CoreV1().Secrets("default").Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "a"}, StringData: map[string]string{"k": "v"}}, metav1.CreateOptions{}))
	if string(secret.Data["k"]) != "v" || secret.Type != corev1.SecretTypeOpaque {
		t.Errorf("%+v", secret)
	}
	if list := planetest.Must[*corev1.SecretList](t)(client.CoreV1().Secrets("").List(ctx, metav1.ListOptions{FieldSelector: "type=Opaque"})); len(list.Items) != 1 {
		t.Errorf("%+v", list)
	}
	namespace := planetest.Must[*corev1.Namespace](t)(client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "n-"}}, metav1.CreateOptions{}))
	if namespace.Status.Phase != corev1.NamespaceActive {
		t.Errorf("%+v", namespace)
	}
	planetest.Must[*corev1.ServiceAccount](t)(client.CoreV1().ServiceAccounts(namespace.Name).Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "robot"}}, metav1.CreateOptions{}))
	now, seconds, holder := metav1.NowMicro(), int32(15), "me"
	lease := planetest.Must[*coordinationv1.Lease](t)(client.CoordinationV1().Leases("default").Create(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "a"},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &seconds, RenewTime: &now}}, metav1.CreateOptions{}))
	if !lease.Spec.RenewTime.Time.Equal(now.Truncate(time.Microsecond)) || *lease.Spec.HolderIdentity != holder {
		t.Errorf("%+v", lease.Spec)
	}
}

// Events are recorded, and counted up when they come again.
func TestEventRecorder(t *testing.T) {
	s := planetest.NewSite(t, 0)
	client := s.Typed()
	broadcaster := record.NewBroadcaster()
	defer broadcaster.Shutdown()
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: client.CoreV1().Events("")})
	recorder := broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "controller"})
	cm := planetest.Must[*corev1.ConfigMap](t)(client.CoreV1().ConfigMaps("default").Create(s.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, metav1.CreateOptions{}))
	for range 3 {
		recorder.Event(cm, corev1.EventTypeWarning, "Failed", "it did not work")
	}
	events := untilEvent(t, s, client, func(e *corev1.Event) bool { return e.Count == 3 })
	if e := events; e.InvolvedObject.Name != "a" || e.InvolvedObject.UID != cm.UID || e.Reason != "Failed" || e.Source.Component != "controller" || e.FirstTimestamp.IsZero() {
		t.Errorf("%+v", e)
	}
	list := planetest.Must[*corev1.EventList](t)(client.CoreV1().Events("default").SearchWithContext(s.Context(), scheme.Scheme, cm))
	if len(list.Items) != 1 || list.Items[0].Count != 3 {
		t.Errorf("found %+v", list.Items)
	}
}

// untilEvent waits for an event that is so.
func untilEvent(t testing.TB, s *planetest.Site, client kubernetes.Interface, so func(*corev1.Event) bool) *corev1.Event {
	t.Helper()
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return client.CoreV1().Events("default").List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return client.CoreV1().Events("default").Watch(ctx, o)
		},
	}
	last, err := toolswatch.UntilWithSync(s.Context(), lw, &corev1.Event{}, nil, func(e watch.Event) (bool, error) {
		event, ok := e.Object.(*corev1.Event)
		if !ok {
			return false, errors.New("no event")
		}
		return so(event), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return last.Object.(*corev1.Event)
}

// Who writes what others write too reads again and tries again; nothing is lost.
func TestRetryOnConflict(t *testing.T) {
	s := planetest.NewSite(t, 0)
	client, ctx := s.Typed().CoreV1().ConfigMaps("default"), s.Context()
	planetest.Must[*corev1.ConfigMap](t)(client.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "all"}, Data: map[string]string{}}, metav1.CreateOptions{}))
	backoff := retry.DefaultBackoff
	backoff.Steps, backoff.Duration = 1000, time.Millisecond
	backoff.Factor = 1
	var group sync.WaitGroup
	for i := range 10 {
		group.Go(func() {
			if err := retry.RetryOnConflict(backoff, func() error {
				cm, err := client.Get(ctx, "all", metav1.GetOptions{})
				if err != nil {
					return err
				}
				if cm.Data == nil {
					cm.Data = map[string]string{}
				}
				cm.Data[fmt.Sprint(i)] = "was here"
				_, err = client.Update(ctx, cm, metav1.UpdateOptions{})
				return err
			}); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if cm := planetest.Must[*corev1.ConfigMap](t)(client.Get(ctx, "all", metav1.GetOptions{})); len(cm.Data) != 10 {
		t.Errorf("%v", cm.Data)
	}
}
