package controllers_test

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"stele.dev/stele/core/run/controllers"
)

func TestControllersAreSelectedAsByKubeControllerManager(t *testing.T) {
	const crd, gc, ns, rq, sa, tokens = "customresourcedefinition-controller", "garbage-collector-controller", "namespace-controller", "resourcequota-controller", "serviceaccount-controller", "serviceaccount-token-controller"
	for list, want := range map[string]string{
		"*":                         crd + " " + gc + " " + ns + " " + rq + " " + sa + " " + tokens,
		"namespace":                 ns,
		"namespace-controller":      ns,
		"-namespace":                "",
		"*,-garbage-collector":      crd + " " + ns + " " + rq + " " + sa + " " + tokens,
		"-garbagecollector,*":       crd + " " + ns + " " + rq + " " + sa + " " + tokens,
		"*,-namespace,namespace":    crd + " " + gc + " " + rq + " " + sa + " " + tokens,
		"*,namespace,-namespace":    crd + " " + gc + " " + ns + " " + rq + " " + sa + " " + tokens,
		"serviceaccount,-namespace": sa,
		"serviceaccount-token":      tokens,
	} {
		selected, err := controllers.Select(strings.Split(list, ","))
		if err != nil {
			t.Errorf("%q: %v", list, err)
		}
		var names []string
		for _, c := range selected {
			names = append(names, c.Name)
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("%q selects %q, want %q", list, got, want)
		}
	}
	for _, name := range []string{"nothing", "-nothing", ""} {
		if _, err := controllers.Select([]string{"*", name}); err == nil || !strings.Contains(err.Error(), "is not in the list of known controllers") {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// An API that is away, or answers nonsense, is asked again.
func TestControllersOutlastAnAPIThatIsAway(t *testing.T) {
	p := newPlane(t)
	selected, err := controllers.Select([]string{"*"})
	if err != nil {
		t.Fatal(err)
	}
	var asked atomic.Int32
	away := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch n := asked.Add(1); {
		case n > 9:
			p.ServeHTTP(w, r)
		case n%3 == 0:
			panic(http.ErrAbortHandler)
		case n%3 == 1:
			w.Write([]byte("nonsense"))
		default:
			http.Error(w, "away", http.StatusServiceUnavailable)
		}
	})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { controllers.Run(ctx, selected, away, nil, nil, slog.New(slog.DiscardHandler)) })
	t.Cleanup(func() { cancel(); running.Wait() })
	p.create(t, namespaces, "", "shop")
	p.awaitThere(t, accounts, "shop", "default")
	p.create(t, configMaps, "shop", "a", ownedBy(missing()))
	p.awaitGone(t, configMaps, "shop", "a")
	p.create(t, widgets, "shop", "b")
	p.delete(t, namespaces, "", "shop")
	p.awaitGone(t, namespaces, "", "shop")
}

// Whatever some answers are: nothing is done that should not be.
func TestNothingIsCollectedForWrongAnswers(t *testing.T) {
	p := newPlane(t)
	owner := p.create(t, widgets, "default", "owner")
	p.create(t, configMaps, "default", "owned", ownedBy(reference(owner)))
	p.create(t, configMaps, "default", "garbage", ownedBy(missing()))
	selected, err := controllers.Select([]string{collector})
	if err != nil {
		t.Fatal(err)
	}
	var asked atomic.Int32
	heard := make(chan struct{})
	// Widgets cannot be listed, and the owner is not served when it is asked for.
	wrong := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/apis/example.com/v1/widgets") {
			if asked.Add(1) == 3 {
				close(heard)
			}
			http.Error(w, "away", http.StatusInternalServerError)
			return
		}
		p.ServeHTTP(w, r)
	})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { controllers.Run(ctx, selected, wrong, nil, nil, slog.New(slog.DiscardHandler)) })
	<-heard
	cancel()
	running.Wait()
	for _, name := range []string{"owned", "garbage"} {
		if !p.there(t, configMaps, "default", name) {
			t.Errorf("%s is gone, while not all objects were known", name)
		}
	}
	// Not to be served is not to be absent.
	asked.Store(0)
	heard = make(chan struct{})
	notServed := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/widgets/owner") {
			if asked.Add(1) == 1 {
				close(heard)
			}
			r.URL.Path = strings.Replace(r.URL.Path, "/widgets/", "/gizmos/", 1)
		}
		if r.URL.Path == "/apis/example.com/v1/widgets" {
			r.URL.Path = "/apis/example.com/v1/plains" // of which there are none
		}
		p.ServeHTTP(w, r)
	})
	ctx, cancel = context.WithCancel(context.Background())
	running.Go(func() { controllers.Run(ctx, selected, notServed, nil, nil, slog.New(slog.DiscardHandler)) })
	p.awaitGone(t, configMaps, "default", "garbage")
	<-heard
	cancel()
	running.Wait()
	if !p.there(t, configMaps, "default", "owned") {
		t.Error("what is owned was collected")
	}
}
