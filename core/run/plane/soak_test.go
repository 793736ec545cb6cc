package plane_test

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"flag"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"stele.dev/stele/core/run/plane"
	"stele.dev/stele/core/run/plane/datadir"
	"stele.dev/stele/policy/bundles"
)

var (
	soakFolder = flag.String("soak.folder", "", "folder on the disk to use; in memory if empty")
	soakQuota  = flag.Int64("soak.quota", 96<<20, "quota of etcd, in bytes")
	soakTimes  = flag.Int64("soak.times", 3, "how many times the quota is written")
	soakSize   = flag.Int64("soak.size", 40_000, "bytes of an object")
)

// soak is a control plane in a folder, with a small quota.
type soak struct {
	t      *testing.T
	folder string
	*plane.Plane
	config     *rest.Config
	configMaps dynamic.ResourceInterface
	close      func()

	largest atomic.Int64 // size of etcd's file
	mu      sync.Mutex
	written map[uint64]version
}

// version is what an object had at a revision.
type version struct{ name, data string }

func (s *soak) open() {
	s.t.Helper()
	data, err := datadir.Open(s.folder, datadir.Options{EtcdQuota: *soakQuota})
	if err != nil {
		s.t.Fatal(err)
	}
	source, err := bundles.ReadFS(bundle, ".")
	if err != nil {
		s.t.Fatal(err)
	}
	s.Plane, err = plane.New(s.t.Context(), plane.Config{
		Dir: data.Path(), OpenLog: data.OpenLog, Policy: source, WatchBytes: 1 << 20, Segments: plane.Segments{Bytes: *soakQuota / 12}})
	if err != nil {
		s.t.Fatal(err)
	}
	stop, err := s.Start(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	s.close = sync.OnceFunc(func() {
		if err := stop(); err != nil {
			s.t.Error(err)
		}
		if err := data.Close(); err != nil {
			s.t.Error(err)
		}
	})
	s.t.Cleanup(s.close)
	s.config = s.Client("admin", "system:masters")
	s.config.QPS = -1
	client, err := dynamic.NewForConfig(s.config)
	if err != nil {
		s.t.Fatal(err)
	}
	s.configMaps = client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}).Namespace("default")
}

// write changes objects of one writer until it has written so many bytes.
func (s *soak) write(ctx context.Context, writer int, total int64) error {
	noise := make([]byte, *soakSize/4*3)
	objects := map[string]*unstructured.Unstructured{}
	for i := 0; total > 0; i++ {
		rand.Read(noise)
		name, data := fmt.Sprintf("w%d-%d", writer, i%5), base64.StdEncoding.EncodeToString(noise)
		o, err := objects[name], error(nil)
		if o == nil {
			o = &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": name}, "data": map[string]any{"noise": data}}}
			o, err = s.configMaps.Create(ctx, o, metav1.CreateOptions{})
		} else {
			o.Object["data"] = map[string]any{"noise": data}
			o, err = s.configMaps.Update(ctx, o, metav1.UpdateOptions{})
		}
		if err != nil {
			return fmt.Errorf("with %d bytes to go: %w; %+v", total, err, s.Log.Usage())
		}
		objects[name] = o
		total -= int64(len(data))
		if size := s.Log.Usage().Allocated; size > s.largest.Load() {
			s.largest.Store(size)
		}
		s.mu.Lock()
		s.written[revisionOf(o)] = version{name, data[:20]}
		s.mu.Unlock()
	}
	return nil
}

func revisionOf(o *unstructured.Unstructured) uint64 {
	n, _ := strconv.ParseUint(o.GetResourceVersion(), 10, 64)
	return n
}

// follow watches from a revision until it has seen the revision that last returns. Each is seen once, in order.
func (s *soak) follow(ctx context.Context, from string, upto func() uint64) (seen map[uint64]version, err error) {
	seen = map[uint64]version{}
	w, err := s.configMaps.Watch(ctx, metav1.ListOptions{ResourceVersion: from, AllowWatchBookmarks: true})
	if err != nil {
		return nil, err
	}
	defer w.Stop()
	at := uint64(0)
	for e := range w.ResultChan() {
		o, ok := e.Object.(*unstructured.Unstructured)
		if !ok || e.Type == watch.Error {
			return nil, fmt.Errorf("after revision %d: %v", at, e.Object)
		}
		if e.Type != watch.Bookmark {
			if revisionOf(o) <= at {
				return nil, fmt.Errorf("revision %d after %d", revisionOf(o), at)
			}
			at = revisionOf(o)
			data, _, _ := unstructured.NestedString(o.Object, "data", "noise")
			seen[at] = version{o.GetName(), data[:min(len(data), 20)]}
		}
		if last := upto(); last > 0 && at >= last {
			return seen, nil
		}
	}
	return nil, fmt.Errorf("the watch ended after revision %d: %v", at, ctx.Err())
}

// past checks what some objects had at revisions of the past.
func (s *soak) past(n int) {
	s.t.Helper()
	for revision, want := range s.written { // in random order
		if n--; n < 0 {
			return
		}
		client, err := rest.HTTPClientFor(s.config)
		if err != nil {
			s.t.Fatal(err)
		}
		r, err := client.Get(fmt.Sprintf("%s/at/%d/api/v1/namespaces/default/configmaps/%s", s.config.Host, revision, want.name))
		if err != nil {
			s.t.Fatal(err)
		}
		body := new(strings.Builder)
		_ = r.Write(body)
		r.Body.Close()
		if r.StatusCode != http.StatusOK || !strings.Contains(body.String(), want.data) {
			s.t.Errorf("at revision %d: %.300s", revision, body)
		}
	}
}

// Many times the quota of etcd is written: etcd stays below it, nothing is refused, and all of the past can be read,
// whether it is in memory, in etcd or in segments, also after a restart. Makefile has a longer run. The smallest quota
// that `stele serve` accepts is 256 MiB: far below that, the pages that etcd is about to free, about 15 MiB at the speed of
// this test, are more than what the limit leaves free.
func TestManyTimesTheQuotaIsWritten(t *testing.T) {
	if testing.Short() {
		*soakTimes = min(*soakTimes, 2)
	}
	memory := *soakFolder
	if info, err := os.Stat("/dev/shm"); memory == "" && err == nil && info.IsDir() {
		memory = "/dev/shm" // no machine crashes here, and other tests use the disk
	}
	folder, err := os.MkdirTemp(memory, "soak")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(folder) })
	s := &soak{t: t, folder: folder, written: map[uint64]version{}}
	s.open()
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	began := strconv.FormatUint(s.Committer.Tip().Revision(), 10)
	var last atomic.Uint64
	all := make(chan followed, 1)
	go func() {
		seen, err := s.follow(ctx, began, last.Load)
		all <- followed{seen, err}
	}()
	const writers = 4
	start := time.Now()
	var writing sync.WaitGroup
	for i := range writers {
		writing.Go(func() {
			if err := s.write(ctx, i, *soakTimes**soakQuota/writers); err != nil {
				t.Error(err)
			}
		})
	}
	writing.Wait()
	if t.Failed() {
		return
	}
	for r := range s.written {
		last.Store(max(last.Load(), r))
	}
	t.Logf("%d MiB in %v; etcd's file had at most %.1f of %.1f MiB; %d segments", *soakTimes**soakQuota>>20, time.Since(start).Round(time.Millisecond),
		float64(s.largest.Load())/(1<<20), float64(*soakQuota)/(1<<20), len(s.Archive.Segments()))
	if s.largest.Load() > *soakQuota {
		t.Errorf("etcd's file had %d bytes, its quota is %d", s.largest.Load(), *soakQuota)
	}
	if u := s.Log.Usage(); u.Refused > 0 {
		t.Errorf("%d appends were refused", u.Refused)
	}
	s.same(<-all)
	s.past(50)
	items := s.list()

	s.close()
	s.open()
	if again := s.list(); again != items {
		t.Error("after a restart a list is another one")
	}
	s.past(50)
	again, err := s.follow(ctx, began, last.Load) // from segments, etcd and memory
	s.same(followed{again, err})
}

// followed is what a watch has seen.
type followed struct {
	seen map[uint64]version
	err  error
}

// same compares the events of a watch with the writes.
func (s *soak) same(f followed) {
	s.t.Helper()
	if f.err != nil {
		s.t.Error(f.err)
		return
	}
	for revision, want := range s.written {
		if f.seen[revision] != want {
			s.t.Errorf("a watch has seen %v at revision %d, not %v", f.seen[revision], revision, want)
		}
	}
	if len(f.seen) != len(s.written) {
		s.t.Errorf("a watch has seen %d revisions of %d", len(f.seen), len(s.written))
	}
}

func (s *soak) list() string {
	s.t.Helper()
	list, err := s.configMaps.List(s.t.Context(), metav1.ListOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	text := new(strings.Builder)
	for i := range list.Items {
		fmt.Fprintln(text, list.Items[i].Object)
	}
	return text.String()
}
