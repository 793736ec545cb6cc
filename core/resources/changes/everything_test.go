package changes_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/pager"
	"stele.dev/stele/core/run/plane/planetest"
)

// takeAll does what Argo CD's cluster cache does, and metadata informers: it lists all that discovery says can be
// listed and watched, page by page, and returns how many objects there are of each resource.
func takeAll(t *testing.T, s *planetest.Site, verbs ...string) map[string]int {
	t.Helper()
	preferred := planetest.Must[[]*metav1.APIResourceList](t)(discovery.ServerPreferredResources(s.Typed().Discovery()))
	client, held := s.Metadata(), map[string]int{}
	for _, group := range discovery.FilteredBy(discovery.SupportsAllVerbs{Verbs: verbs}, preferred) {
		gv := planetest.Must[schema.GroupVersion](t)(schema.ParseGroupVersion(group.GroupVersion))
		for _, r := range group.APIResources {
			gvr := gv.WithResource(r.Name)
			pages := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				return client.Resource(gvr).List(ctx, o)
			})
			if err := pages.EachListItem(s.Context(), metav1.ListOptions{}, func(runtime.Object) error { held[gvr.String()]++; return nil }); err != nil {
				t.Errorf("%s: %v", gvr, err)
			}
		}
	}
	return held
}

// A client that takes all there is holds what there is, and not all that has ever happened to it.
func TestWhoTakesAllDoesNotTakeTheLog(t *testing.T) {
	s := planetest.NewSite(t, 0)
	s.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("busy", 1))
	for _, verbs := range [][]string{{"list", "watch"}, {"list"}, {"watch"}} {
		before := takeAll(t, s, verbs...)
		if len(before) < 5 || before["example.com/v1, Resource=widgets"] != 1 {
			t.Fatalf("%q: %v", verbs, before)
		}
		for size := range 20 {
			s.Patch("busy", "merge", fmt.Sprintf(`{"spec":{"size":%d}}`, 2+size))
		}
		if after := takeAll(t, s, verbs...); fmt.Sprint(after) != fmt.Sprint(before) {
			t.Errorf("%q: 20 writes of one object made of %v\n%v", verbs, before, after)
		}
	}
}

// Who names the changes can list and watch them, by what discovery says of them: as kubectl does.
func TestChangesAreListedByName(t *testing.T) {
	s := planetest.NewSite(t, 0)
	cached := memory.NewMemCacheClient(s.Typed().Discovery())
	mapper := restmapper.NewShortcutExpander(restmapper.NewDeferredDiscoveryRESTMapper(cached), cached, nil)
	gvr := planetest.Must[schema.GroupVersionResource](t)(mapper.ResourceFor(schema.GroupVersionResource{Resource: "changes"}))
	client, last := s.Dynamic().Resource(gvr), s.Committer.Tip().Revision()
	list, err := client.List(s.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != int(last) {
		t.Fatalf("%d of %d changes: %v", len(list.Items), last, err)
	}
	w, err := client.Watch(s.Context(), metav1.ListOptions{ResourceVersion: list.GetResourceVersion()})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	s.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("a", 1))
	if e := planetest.NextOf(t, w); fmt.Sprint(e.Object.(interface{ GetName() string }).GetName()) != fmt.Sprint(last+1) {
		t.Errorf("%v", e)
	}
}

// A list of changes that selects nothing covers the newest, however it is paged, and says so.
func TestAListOfChangesBeginsSomewhere(t *testing.T) {
	p := planetest.NewPlane(t)
	p.Must(t, 201, "POST", "/apis/example.com/v1/plains", `{"metadata":{"name":"p"}}`)
	if a := p.Must(t, 200, "GET", planetest.ChangesPath, ""); a.Header.Get("Warning") != "" {
		t.Errorf("of a short log: %v", a.Header)
	}
	const window = 1000
	for p.Committer.Tip().Revision() < window+200 {
		p.Must(t, 201, "POST", "/apis/example.com/v1/plains", `{"metadata":{"generateName":"p-"}}`)
	}
	last := p.Committer.Tip().Revision()
	for query, want := range map[string]uint64{
		"": window, "?limit=300": window, "?limit=5000": window,
		"?fieldSelector=since%3D1": last, "?fieldSelector=type!%3DNone": last,
		fmt.Sprintf("?limit=300&fieldSelector=since%%3D%d", last-50): 51,
	} {
		var names []string
		a := p.Must(t, 200, "GET", planetest.ChangesPath+query, "")
		if warned := strings.Contains(a.Header.Get("Warning"), fmt.Sprintf("the list begins at revision %d", last-window+1)); warned != (want == window) {
			t.Errorf("%s: warning %q", query, a.Header.Get("Warning"))
		}
		for {
			names = append(names, a.Revisions()...)
			token, _ := a.Field("metadata", "continue").(string)
			if token == "" {
				break
			}
			next := "?continue=" + token
			if _, rest, found := strings.Cut(query, "?"); found {
				next += "&" + rest
			}
			a = p.Must(t, 200, "GET", planetest.ChangesPath+next, "")
			if a.Header.Get("Warning") != "" {
				t.Errorf("%s: a further page: %v", query, a.Header)
			}
		}
		if uint64(len(names)) != want || len(slices.Compact(names)) != len(names) {
			t.Errorf("%s: %d changes, want %d", query, len(names), want)
		}
	}
}
