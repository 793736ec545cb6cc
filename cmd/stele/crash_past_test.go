package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// TestThePastSurvivesCrashes kills the server at random moments under load, and now and then stops it. After each start
// what clients were told before is what they are told of then: every list, every object at the
// revision of its write, and a watch of all that has happened since the first list.
func TestThePastSurvivesCrashes(t *testing.T) {
	const rounds, writers = 5, 4
	dir := t.TempDir()
	rng := rand.New(rand.NewPCG(3, 4))
	var lists []*unstructured.UnstructuredList
	written := map[string]*unstructured.Unstructured{} // revision -> what it was acknowledged with
	for round := range rounds {
		server := startServer(t, dir)
		config := clientConfig(t, dir)
		dbs := dynamicClient(t, config)
		lists = append(lists, listOf(t, dbs, ""))
		for _, was := range lists {
			if diff := cmp.Diff(was, listOf(t, dbs, was.GetResourceVersion())); diff != "" {
				t.Fatalf("the list of revision %s is another one now (-was +is):\n%s", was.GetResourceVersion(), diff)
			}
		}
		for revision, was := range written {
			is, err := dynamicClient(t, at(config, revision)).Get(t.Context(), was.GetName(), metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(was, is); diff != "" {
				t.Fatalf("%s at revision %s is another one now (-was +is):\n%s", was.GetName(), revision, diff)
			}
		}
		watchBetween(t, config, lists[0], lists[len(lists)-1], written)

		var mu sync.Mutex
		var wg sync.WaitGroup
		ctx, cancel := context.WithCancel(t.Context())
		for w := range writers {
			random := rand.New(rand.NewPCG(uint64(w), rng.Uint64()))
			wg.Go(func() {
				for ctx.Err() == nil {
					o, err := writeAny(ctx, dbs, fmt.Sprintf("db-%d-%d", w, random.IntN(5)), random)
					if err != nil {
						return // the server is gone
					}
					if o != nil {
						mu.Lock()
						written[o.GetResourceVersion()] = o
						mu.Unlock()
					}
				}
			})
		}
		for range 1 + rng.IntN(3) {
			time.Sleep(time.Duration(20+rng.IntN(80)) * time.Millisecond)
			lists = append(lists, listOf(t, dbs, ""))
		}
		signal := syscall.SIGKILL
		if round%3 == 0 { // the history is saved, and the next one goes on from there
			signal = syscall.SIGTERM
		}
		_ = server.end(signal)
		cancel()
		wg.Wait()
	}
	if len(written) < rounds*10 {
		t.Errorf("only %d writes were acknowledged in %d rounds", len(written), rounds)
	}
}

// at reaches what was at a revision.
func at(config *rest.Config, revision string) *rest.Config {
	then := rest.CopyConfig(config)
	then.Host += "/at/" + revision
	return then
}

// listOf is the list at a revision, the newest if none is given.
func listOf(t *testing.T, dbs dynamic.ResourceInterface, revision string) *unstructured.UnstructuredList {
	t.Helper()
	o := metav1.ListOptions{ResourceVersion: revision}
	if revision != "" {
		o.ResourceVersionMatch = metav1.ResourceVersionMatchExact
	}
	list, err := dbs.List(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// writeAny changes an object, deletes it, or creates it if it is not there. It returns what that was
// answered with, nil of a deletion.
func writeAny(ctx context.Context, dbs dynamic.ResourceInterface, name string, random *rand.Rand) (o *unstructured.Unstructured, err error) {
	if random.IntN(4) == 0 {
		err = dbs.Delete(ctx, name, metav1.DeleteOptions{})
	} else {
		patch := fmt.Appendf(nil, `{"spec":{"storageGiB":%d}}`, 1+random.IntN(4000))
		o, err = dbs.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
	}
	if apierrors.IsNotFound(err) {
		o, err = dbs.Create(ctx, database(name, 1), metav1.CreateOptions{})
	}
	return o, err
}

// watchBetween watches what history says happened between two lists. That makes the second of the first;
// revisions ascend, and every write that was acknowledged is among it.
func watchBetween(t *testing.T, config *rest.Config, from, to *unstructured.UnstructuredList, written map[string]*unstructured.Unstructured) {
	t.Helper()
	w, err := dynamicClient(t, at(config, to.GetResourceVersion())).Watch(t.Context(), metav1.ListOptions{ResourceVersion: from.GetResourceVersion(), AllowWatchBookmarks: true})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	state := byName(from)
	missing := map[string]bool{}
	for revision := range written {
		missing[revision] = true
	}
	last := 0
	for e := range w.ResultChan() {
		o, ok := e.Object.(*unstructured.Unstructured)
		if !ok {
			t.Fatalf("the watch ended with %v", e.Object)
		}
		var revision int
		if _, err := fmt.Sscan(o.GetResourceVersion(), &revision); err != nil {
			t.Fatal(err)
		}
		if e.Type == watch.Bookmark {
			if o.GetResourceVersion() == to.GetResourceVersion() {
				break
			}
			continue
		}
		if revision <= last {
			t.Fatalf("revision %d came after %d", revision, last)
		}
		last = revision
		delete(missing, o.GetResourceVersion())
		if e.Type == watch.Deleted {
			delete(state, o.GetName())
		} else {
			state[o.GetName()] = o
		}
	}
	if diff := cmp.Diff(byName(to), state); diff != "" {
		t.Errorf("the watch leads to another state (-list +watch):\n%s", diff)
	}
	if len(missing) > 0 {
		t.Errorf("the watch has not told of the writes of revisions %v", missing)
	}
}

func byName(list *unstructured.UnstructuredList) map[string]*unstructured.Unstructured {
	state := map[string]*unstructured.Unstructured{}
	for i := range list.Items {
		state[list.Items[i].GetName()] = &list.Items[i]
	}
	return state
}
