package core_test

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// counted is a shared informer of widgets, and what it asked for.
type counted struct {
	cache.SharedIndexInformer
	asked *requests
	added chan string
}

// informer starts one below a path of the server.
func (s *site) informer(below string) *counted {
	s.t.Helper()
	ctx, stop := context.WithCancel(s.t.Context())
	c := &counted{asked: &requests{}, added: make(chan string, 100)}
	config := rest.CopyConfig(s.config)
	config.Host += below
	config.WrapTransport = func(rt http.RoundTripper) http.RoundTripper {
		c.asked.RoundTripper = rt
		return c.asked
	}
	factory := dynamicinformer.NewDynamicSharedInformerFactory(dynamic.NewForConfigOrDie(config), 0)
	c.SharedIndexInformer = factory.ForResource(widgetsGVR).Informer()
	if _, err := c.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(o any) { c.added <- o.(metav1.Object).GetName() }}); err != nil {
		s.t.Fatal(err)
	}
	factory.Start(ctx.Done())
	s.t.Cleanup(func() { stop(); factory.Shutdown() })
	if !cache.WaitForCacheSync(ctx.Done(), c.HasSynced) {
		s.t.Fatal("not synced")
	}
	return c
}

// Informers go on where they were when the server comes back as a process that remembers nothing:
// that of the present, and one below /at, which hears of nothing that came later. None lists again.
func TestInformersResumeAfterARestartWithoutAList(t *testing.T) {
	s := newSite(t, 1)
	fill(t, s.replica, 3)
	then := s.committer.Tip().Revision()
	was := s.listed(widgetsPath)
	s.must(t, 201, "POST", widgetsPath, widget("later", 1))
	present, past := s.informer(""), s.informer(fmt.Sprintf("/at/%d", then))
	s.must(t, 201, "POST", widgetsPath, widget("first", 1)) // a watch that ends with nothing makes it list
	for name := ""; name != "first"; {
		name = <-present.added
	}
	type count struct{ lists, watches int64 }
	before := map[*counted]count{}
	for _, c := range []*counted{present, past} {
		before[c] = count{c.asked.lists.Load(), c.asked.watches.Load()}
		if before[c].lists == 0 {
			t.Fatal("it has listed nothing")
		}
	}
	s.restart(func() {
		s.must(t, 200, "DELETE", widgetsPath+"/w01", "")
		s.must(t, 201, "POST", widgetsPath, widget("meanwhile", 1))
		s.forget()
		s.must(t, 201, "POST", widgetsPath, widget("last", 1))
	})
	for name := ""; name != "last"; {
		name = <-present.added
	}
	waitFor(t, func() bool { return past.asked.watches.Load() > before[past].watches })
	want := s.listed(widgetsPath)
	waitFor(t, func() bool { return maps.Equal(contents(t, present.GetStore()), want) })
	if diff := cmp.Diff(was, contents(t, past.GetStore())); diff != "" {
		t.Errorf("below /at (-then +informer):\n%s", diff)
	}
	for c, name := range map[*counted]string{present: "that of the present", past: "that below /at"} {
		if n := c.asked.lists.Load() - before[c].lists; n != 0 || c.asked.watches.Load() == before[c].watches {
			t.Errorf("%s has listed %d times more, and begun %d watches", name, n, c.asked.watches.Load()-before[c].watches)
		}
	}
}

// An informer on a view lists again when the server comes back, because the rows are computed anew, and then has what the view has.
func TestAnInformerOnAViewSurvivesRestarts(t *testing.T) {
	s := newSite(t, 1)
	s.push(t, policyBody(t, largeWidgets(50), nil))
	s.must(t, 201, "POST", widgetsPath, widget("big", 90))
	rows := schema.GroupVersionResource{Group: "views.stele.dev", Version: "v1", Resource: "large-widgets"}
	ctx, stop := context.WithCancel(t.Context())
	factory := dynamicinformer.NewDynamicSharedInformerFactory(dynamic.NewForConfigOrDie(s.config), 0)
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
		waitFor(t, func() bool { return names() == want })
	}
	s.must(t, 201, "POST", widgetsPath, widget("huge", 95))
	becomes("default/big default/huge")
	s.restart(func() {
		s.must(t, 200, "DELETE", widgetsPath+"/big", "") // while the informer hears of nothing
		s.must(t, 201, "POST", widgetsPath, widget("large", 60))
		s.must(t, 201, "POST", widgetsPath, widget("small", 1))
		s.forget()
	})
	becomes("default/huge default/large")
	s.must(t, 200, "PATCH", widgetsPath+"/small", `{"spec":{"size":70}}`, "Content-Type", "application/merge-patch+json")
	s.must(t, 200, "PATCH", widgetsPath+"/large", `{"spec":{"size":2}}`, "Content-Type", "application/merge-patch+json")
	becomes("default/huge default/small")
	s.restart(func() {})
	s.must(t, 201, "POST", widgetsPath, widget("last", 99))
	becomes("default/huge default/last default/small")
	if got := strings.Join(s.must(t, 200, "GET", "/apis/views.stele.dev/v1/large-widgets", "").names(), " "); got != "huge last small" {
		t.Errorf("the view has %s", got)
	}
}
