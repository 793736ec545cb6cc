package read_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
	"stele.dev/stele/core/run/plane/planetest"
)

// Informers go on where they were when the server comes back as a process that remembers nothing:
// that of the present, and one below /at, which hears of nothing that came later. None lists again.
func TestInformersResumeAfterARestartWithoutAList(t *testing.T) {
	s := planetest.NewSite(t, 1)
	planetest.Fill(t, s.Replica, 3)
	then := s.Committer.Tip().Revision()
	was := s.Listed(planetest.WidgetsPath)
	s.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("later", 1))
	present, past := s.Informer(""), s.Informer(fmt.Sprintf("/at/%d", then))
	s.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("first", 1)) // a watch that ends with nothing makes it list
	for name := ""; name != "first"; {
		name = <-present.Added
	}
	type count struct{ lists, watches int64 }
	before := map[*planetest.Counted]count{}
	for _, c := range []*planetest.Counted{present, past} {
		before[c] = count{c.Asked.Lists.Load(), c.Asked.Watches.Load()}
		if before[c].lists == 0 {
			t.Fatal("it has listed nothing")
		}
	}
	restart(s, func() {
		s.Must(t, 200, "DELETE", planetest.WidgetsPath+"/w01", "")
		s.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("meanwhile", 1))
		s.Forget()
		s.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("last", 1))
	})
	for name := ""; name != "last"; {
		name = <-present.Added
	}
	planetest.WaitFor(t, func() bool { return past.Asked.Watches.Load() > before[past].watches })
	want := s.Listed(planetest.WidgetsPath)
	planetest.WaitFor(t, func() bool { return maps.Equal(planetest.Contents(t, present.GetStore()), want) })
	if diff := cmp.Diff(was, planetest.Contents(t, past.GetStore())); diff != "" {
		t.Errorf("below /at (-then +informer):\n%s", diff)
	}
	for c, name := range map[*planetest.Counted]string{present: "that of the present", past: "that below /at"} {
		if n := c.Asked.Lists.Load() - before[c].lists; n != 0 || c.Asked.Watches.Load() == before[c].watches {
			t.Errorf("%s has listed %d times more, and begun %d watches", name, n, c.Asked.Watches.Load()-before[c].watches)
		}
	}
}

// An informer on a view lists again when the server comes back, because the rows are computed anew, and then has what the view has.
func TestAnInformerOnAViewSurvivesRestarts(t *testing.T) {
	s := planetest.NewSite(t, 1)
	s.Push(t, planetest.PolicyBody(t, planetest.LargeWidgets(50), nil))
	s.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("big", 90))
	rows := schema.GroupVersionResource{Group: "views.stele.dev", Version: "v1", Resource: "large-widgets"}
	ctx, stop := context.WithCancel(t.Context())
	factory := dynamicinformer.NewDynamicSharedInformerFactory(dynamic.NewForConfigOrDie(s.Config), 0)
	informer := factory.ForResource(rows).Informer()
	factory.Start(ctx.Done())
	t.Cleanup(func() { stop(); factory.Shutdown() })
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		t.Fatal("not synced")
	}
	names := func() string {
		keys := informer.GetStore().ListKeys()
		slices.Sort(keys)
		return strings.Join(keys, " ")
	}
	becomes := func(want string) {
		t.Helper()
		planetest.WaitFor(t, func() bool { return names() == want })
	}
	s.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("huge", 95))
	becomes("default/big default/huge")
	restart(s, func() {
		s.Must(t, 200, "DELETE", planetest.WidgetsPath+"/big", "") // while the informer hears of nothing
		s.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("large", 60))
		s.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("small", 1))
		s.Forget()
	})
	becomes("default/huge default/large")
	s.Must(t, 200, "PATCH", planetest.WidgetsPath+"/small", `{"spec":{"size":70}}`, "Content-Type", "application/merge-patch+json")
	s.Must(t, 200, "PATCH", planetest.WidgetsPath+"/large", `{"spec":{"size":2}}`, "Content-Type", "application/merge-patch+json")
	becomes("default/huge default/small")
	restart(s, func() {})
	s.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("last", 99))
	becomes("default/huge default/last default/small")
	if got := strings.Join(s.Must(t, 200, "GET", "/apis/views.stele.dev/v1/large-widgets", "").Names(), " "); got != "huge last small" {
		t.Errorf("the view has %s", got)
	}
}
