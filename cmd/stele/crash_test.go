package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

var databases = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "databases"}

func database(name string, gib int64) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1", "kind": "Database", "metadata": map[string]any{"name": name},
		"spec": map[string]any{"engine": "mysql-8", "owner": "a@example.com", "storageGiB": gib},
	}}
}

// startServer runs the real program in a folder until the test ends.
func startServer(t *testing.T, dir string, args ...string) *process {
	t.Helper()
	program, err := exec.LookPath("stele")
	if err != nil {
		t.Fatal(err)
	}
	p, err := serveProcess(program, dir, os.Environ(), args...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.end(syscall.SIGKILL) })
	if err := p.await(); err != nil {
		t.Fatal(err)
	}
	return p
}

func clientConfig(t *testing.T, dir string) *rest.Config {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(dir, "stele-data", "admin.kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	return config
}

func dynamicClient(t *testing.T, config *rest.Config) dynamic.ResourceInterface {
	t.Helper()
	c, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return c.Resource(databases).Namespace("default")
}

// TestNothingAcknowledgedIsLost kills the server at random moments under load, and
// looks for everything that clients were told.
func TestNothingAcknowledgedIsLost(t *testing.T) {
	const rounds, writers = 8, 8
	dir := t.TempDir()
	rng := rand.New(rand.NewPCG(1, 2))
	type told struct {
		version string
		gib     int64
	}
	acknowledged := map[string]told{} // name -> as it was last acknowledged
	attempted := map[string][]int64{} // name -> what was sent since, its outcome unknown
	versions := map[string]bool{}     // every resourceVersion that was ever told
	total := 0
	for round := range rounds {
		server := startServer(t, dir)
		dbs := dynamicClient(t, clientConfig(t, dir))

		list, err := dbs.List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		found := map[string]*unstructured.Unstructured{}
		for i := range list.Items {
			found[list.Items[i].GetName()] = &list.Items[i]
		}
		for name, want := range acknowledged {
			got := found[name]
			if got == nil {
				t.Fatalf("round %d: %s, acknowledged at revision %s, is lost", round, name, want.version)
			}
			gib, _, _ := unstructured.NestedInt64(got.Object, "spec", "storageGiB")
			if got.GetResourceVersion() == want.version && gib == want.gib {
				continue
			}
			if !slices.Contains(attempted[name], gib) {
				t.Fatalf("round %d: %s is %d GiB at %s; acknowledged was %d at %s, attempted since %v",
					round, name, gib, got.GetResourceVersion(), want.gib, want.version, attempted[name])
			}
			acknowledged[name] = told{got.GetResourceVersion(), gib}
		}
		clear(attempted)

		var mu sync.Mutex
		var wg sync.WaitGroup
		ctx, cancel := context.WithCancel(t.Context())
		for w := range writers {
			wg.Go(func() {
				for i := 0; ctx.Err() == nil; i++ {
					name := fmt.Sprintf("db-%d-%d", w, i%5)
					mu.Lock()
					old, exists := acknowledged[name]
					gib := 1 + (old.gib+int64(round)+7)%4000
					attempted[name] = append(attempted[name], gib)
					mu.Unlock()
					var got *unstructured.Unstructured
					var err error
					if exists {
						patch := fmt.Appendf(nil, `{"spec":{"storageGiB":%d}}`, gib)
						got, err = dbs.Patch(ctx, name, "application/merge-patch+json", patch, metav1.PatchOptions{})
					} else {
						got, err = dbs.Create(ctx, database(name, gib), metav1.CreateOptions{})
					}
					if err != nil {
						return // the server is gone
					}
					mu.Lock()
					if versions[got.GetResourceVersion()] {
						t.Errorf("revision %s was told twice", got.GetResourceVersion())
					}
					versions[got.GetResourceVersion()] = true
					acknowledged[name] = told{got.GetResourceVersion(), gib}
					attempted[name] = nil
					total++
					mu.Unlock()
				}
			})
		}
		time.Sleep(time.Duration(20+rng.IntN(300)) * time.Millisecond)
		_ = server.end(syscall.SIGKILL)
		cancel()
		wg.Wait()
	}
	if total < rounds*10 {
		t.Errorf("only %d writes were acknowledged in %d rounds", total, rounds)
	}

	// What the log has, the audit log has, once.
	server := startServer(t, dir)
	if err := server.end(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	audited := auditedRevisions(t, dir)
	for v := range versions {
		if audited[v] != 1 {
			t.Errorf("revision %s is in the audit log %d times", v, audited[v])
		}
	}
	for v, n := range audited {
		if n != 1 {
			t.Errorf("revision %s is in the audit log %d times", v, n)
		}
	}
}

func auditedRevisions(t *testing.T, dir string) map[string]int {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, "stele-data", "audit", "audit.log"))
	if err != nil {
		t.Fatal(err)
	}
	revisions := map[string]int{}
	lines := bufio.NewScanner(bytes.NewReader(data))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var event struct {
			Annotations map[string]string `json:"annotations"`
		}
		if err := json.Unmarshal(lines.Bytes(), &event); err != nil {
			t.Fatalf("audit line %q: %v", lines.Text(), err)
		}
		key := event.Annotations["stele.dev/revision"]
		if decision := event.Annotations["stele.dev/decision-revision"]; decision != "" {
			key = "decision " + decision
		}
		revisions[key]++
	}
	return revisions
}

// countingTransport counts the requests that fetch whole lists.
type countingTransport struct {
	http.RoundTripper
	lists, watches *atomic.Int64
}

func (c countingTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	q := r.URL.Query()
	switch {
	case q.Get("watch") == "" || q.Get("sendInitialEvents") == "true":
		c.lists.Add(1)
	default:
		c.watches.Add(1)
	}
	return c.RoundTripper.RoundTrip(r)
}

// TestInformersSurviveARestartWithoutARelist: a shared informer, unmodified, goes on from
// the revision that it has seen.
func TestInformersSurviveARestartWithoutARelist(t *testing.T) {
	for _, signal := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM} {
		t.Run(signal.String(), func(t *testing.T) {
			dir := t.TempDir()
			server := startServer(t, dir)
			config := clientConfig(t, dir)
			address := strings.TrimPrefix(config.Host, "https://")
			dbs := dynamicClient(t, config)
			for i := range 3 {
				if _, err := dbs.Create(t.Context(), database(fmt.Sprintf("before-%d", i), 1), metav1.CreateOptions{}); err != nil {
					t.Fatal(err)
				}
			}

			var lists, watches atomic.Int64
			watching := rest.CopyConfig(config)
			watching.WrapTransport = func(rt http.RoundTripper) http.RoundTripper { return countingTransport{rt, &lists, &watches} }
			c, err := dynamic.NewForConfig(watching)
			if err != nil {
				t.Fatal(err)
			}
			informer := dynamicinformer.NewDynamicSharedInformerFactory(c, 0).ForResource(databases).Informer()
			events := make(chan string, 1000)
			record := func(verb string) func(any) {
				return func(o any) {
					if u, ok := o.(*unstructured.Unstructured); ok {
						events <- verb + " " + u.GetName()
					} else {
						events <- fmt.Sprintf("%s of a %T: the informer has listed again", verb, o)
					}
				}
			}
			added, deleted := record("add"), record("delete")
			if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: added, DeleteFunc: deleted}); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			var running sync.WaitGroup
			running.Go(func() { informer.RunWithContext(ctx) })
			defer running.Wait()
			defer cancel()
			if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
				t.Fatal("not synced")
			}
			// client-go takes a watch for broken that ends within a second and without an
			// event; this one is to be in use.
			if _, err := dbs.Create(t.Context(), database("live", 1), metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			for e := ""; e != "add live"; {
				e = <-events
			}
			began := lists.Load()

			if err := server.end(signal); err != nil {
				t.Fatal(err)
			}
			startServer(t, dir, "--listen", address)
			if _, err := dbs.Create(t.Context(), database("after", 1), metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			if err := dbs.Delete(t.Context(), "before-1", metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			want := map[string]bool{"add after": true, "delete before-1": true}
			for deadline := time.After(time.Minute); len(want) > 0; {
				select {
				case e := <-events:
					if !want[e] {
						t.Errorf("event %q is unexpected, or came twice", e)
					}
					delete(want, e)
				case <-deadline:
					t.Fatalf("after a minute the informer has not seen %v", slices.Collect(maps.Keys(want)))
				}
			}
			if n := lists.Load() - began; n != 0 {
				t.Errorf("the informer listed %d times again", n)
			}
			if watches.Load() < 1 {
				t.Error("the informer has not watched again")
			}
		})
	}
}
