package plane_test

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/dynamic"
	"stele.dev/stele/core/auth/authn"
	"stele.dev/stele/core/keep/checkpoints"
	"stele.dev/stele/core/run/plane"
	"stele.dev/stele/core/run/plane/planetest"
	"stele.dev/stele/core/status"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/backup/stores"
	"stele.dev/stele/eventlog/bucket"
	"stele.dev/stele/eventlog/memlog"
	"stele.dev/stele/eventlog/segment"
)

const plain = `package test
import "stele.dev/policy"
bundle: policy.#Bundle & {cluster: "test"}
`

// site is a log with a bucket, and what its replicas have in common.
type site struct {
	t      *testing.T
	store  memlog.Store
	folder string // of the bucket
	window time.Duration
	retain time.Duration
	alone  bool // every replica leads
	keys   string
}

func newSite(t *testing.T) *site {
	dir := t.TempDir()
	s := &site{t: t, folder: filepath.Join(dir, "bucket"), window: time.Nanosecond, keys: filepath.Join(dir, "sa.key")}
	if _, err := planetest.WriteKeys(s.keys); err != nil {
		t.Fatal(err)
	}
	return s
}

// options returns the options of a replica with a folder.
func (s *site) options(dir string, schedule memlog.Schedule) planetest.Options {
	return planetest.Options{Dir: dir, KeyFile: s.keys, Backend: s.store.Open(schedule), Config: plane.Config{
		Segments:    plane.Segments{Revisions: 8, Window: s.window},
		Checkpoints: checkpoints.Options{Events: 10},
		Bucket:      plane.Bucket{Store: stores.NewFolder(s.folder), Place: s.folder, Every: 20 * time.Millisecond},
		Retention:   plane.Retention{Every: 200 * time.Millisecond, Longest: s.retain},
		Replicas:    plane.Replicas{Every: 200 * time.Millisecond, Alone: s.alone},
	}}
}

// start starts a replica with an empty folder.
func (s *site) start(bundle string) *replica {
	s.t.Helper()
	return s.open(s.t.TempDir(), nil, bundle)
}

func (s *site) open(dir string, schedule memlog.Schedule, bundle string) *replica {
	s.t.Helper()
	o := s.options(dir, schedule)
	o.Bundle = bundle
	return replicaOf(s.t, planetest.Start(s.t, o))
}

// refused returns the error with which a replica does not start.
func (s *site) refused(o planetest.Options) error {
	s.t.Helper()
	p, err := planetest.Open(s.t.Context(), o)
	if err == nil {
		p.Stop()
		s.t.Fatal("it started")
	}
	return err
}

// oldest returns the oldest revision in the log's store behind the first batch.
func (s *site) oldest() uint64 { return s.store.Batches()[1].First }

type replica struct {
	t *testing.T
	*planetest.Plane
	configMaps dynamic.ResourceInterface
}

// write creates an object, or writes it again, and returns its revision.
func (r *replica) write(name, value string) uint64 {
	r.t.Helper()
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": name}, "data": map[string]any{"v": value}}}
	written, err := r.configMaps.Apply(r.t.Context(), name, o, metav1.ApplyOptions{FieldManager: "test", Force: true})
	if err != nil {
		r.t.Fatal(err)
	}
	revision, _ := strconv.ParseUint(written.GetResourceVersion(), 10, 64)
	return revision
}

// fill writes until the log's store has lost what was written up to now.
func (r *replica) fill(s *site) (until uint64) {
	r.t.Helper()
	until = r.Committer.Tip().Revision()
	for i := 0; s.oldest() <= until; i++ {
		r.write(fmt.Sprint("filler-", i%3), fmt.Sprint(until, "-", i))
		if i == 5_000 {
			r.t.Fatalf("nothing has left the log's store: it begins at %d; %v", s.oldest(), r.Log.Archive().Tip())
		}
		time.Sleep(10 * time.Millisecond)
	}
	return until
}

func (r *replica) get(name string, at uint64) (string, error) {
	r.t.Helper()
	o, err := r.configMaps.Get(r.t.Context(), name, metav1.GetOptions{})
	if at > 0 {
		list, listErr := r.configMaps.List(r.t.Context(), metav1.ListOptions{ResourceVersion: fmt.Sprint(at), ResourceVersionMatch: metav1.ResourceVersionMatchExact, FieldSelector: "metadata.name=" + name})
		if listErr != nil || len(list.Items) != 1 {
			return "", fmt.Errorf("%v: %w", list, listErr)
		}
		o, err = &list.Items[0], nil
	}
	if err != nil {
		return "", err
	}
	value, _, _ := unstructured.NestedString(o.Object, "data", "v")
	return value, nil
}

func (r *replica) want(name string, at uint64, want string) {
	r.t.Helper()
	if got, err := r.get(name, at); err != nil || got != want {
		r.t.Errorf("%s at %d: %q (%v), want %q", name, at, got, err, want)
	}
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(3 * time.Minute); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within three minutes: %s", what)
		}
	}
}

// files returns the contents of a folder's files by name. Files may come and go meanwhile.
func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	contents := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			var text []byte
			if text, err = os.ReadFile(path); err == nil {
				contents[strings.TrimPrefix(path, dir)] = string(text)
			}
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return contents
}

func TestANewReplicaHasTheWholeLogAlthoughItsStoreWasTrimmed(t *testing.T) {
	s := newSite(t)
	a := s.start(plain)
	old := a.write("note", "old")
	a.fill(s)
	a.write("note", "new")

	b := s.start("")
	b.want("note", 0, "new")
	b.want("note", old, "old")
	watched, err := b.configMaps.Watch(t.Context(), metav1.ListOptions{ResourceVersion: fmt.Sprint(old - 1), FieldSelector: "metadata.name=note"})
	if err != nil {
		t.Fatal(err)
	}
	defer watched.Stop()
	for _, want := range []string{"old", "new"} {
		e := <-watched.ResultChan()
		if got, _, _ := unstructured.NestedString(e.Object.(*unstructured.Unstructured).Object, "data", "v"); got != want {
			t.Errorf("%v %s, want %s", e.Type, got, want)
		}
	}
	b.write("note", "newest")
	eventually(t, "a has b's write", func() bool { got, _ := a.get("note", 0); return got == "newest" })
}

func TestALogWithoutABucketIsNotTrimmed(t *testing.T) {
	s := newSite(t)
	o := s.options(t.TempDir(), nil)
	o.Config.Bucket, o.Bundle = plane.Bucket{}, plain
	s.store.Room.Store(256 << 10)
	p := planetest.Start(t, o)
	config := p.Client("admin", "system:masters")
	client, _ := dynamic.NewForConfig(config)
	r := &replica{t, p, client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}).Namespace("default")}
	for i := 0; p.Log.Usage().Used < 129<<10; i++ {
		r.write("note", strings.Repeat(fmt.Sprint(i), 1000))
	}
	eventually(t, "segments are sealed", func() bool { return p.Archive.Tip().Revision > 8 })
	if s.oldest() > 2 {
		t.Errorf("the store begins at revision %d", s.oldest())
	}
	// /readyz/segments says what to do.
	w, q := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/readyz/segments", nil)
	p.ServeHTTP(w, q.WithContext(authn.WithUser(t.Context(), &user.DefaultInfo{Name: "admin", Groups: []string{"system:masters"}})))
	if w.Code == http.StatusOK || !strings.Contains(w.Body.String(), "--bucket") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

func TestAReplicaIsRefusedWithoutTheBucketOfItsLog(t *testing.T) {
	s := newSite(t)
	first := s.start(plain)
	first.Stop()

	without := s.options(t.TempDir(), nil)
	without.Config.Bucket = plane.Bucket{}
	if err, needed := s.refused(without), (*bucket.NeededError)(nil); !errors.As(err, &needed) || needed.Recorded != s.folder {
		t.Errorf("without a bucket: %v", err)
	}
	empty := filepath.Join(t.TempDir(), "empty")
	other := s.options(t.TempDir(), nil)
	other.Config.Bucket = plane.Bucket{Store: stores.NewFolder(empty), Place: empty}
	if err := s.refused(other); !errors.As(err, new(*bucket.OtherError)) {
		t.Errorf("with another bucket: %v", err)
	}
	if got := files(t, empty); len(got) > 0 {
		t.Errorf("the other bucket was written: %v", got)
	}
	foreign := newSite(t)
	foreign.folder = s.folder
	before := files(t, s.folder)
	if err := foreign.refused(foreign.options(t.TempDir(), nil)); !errors.As(err, new(*bucket.ForeignError)) {
		t.Errorf("another log: %v", err)
	}
	if diff := cmp.Diff(before, files(t, s.folder)); diff != "" {
		t.Errorf("the bucket was changed: %s", diff)
	}

	moved := filepath.Join(t.TempDir(), "moved") // a complete copy is the same bucket
	if err := os.CopyFS(moved, os.DirFS(s.folder)); err != nil {
		t.Fatal(err)
	}
	s.folder = moved
	s.start("").Stop()
	other.Backend = s.store.Open(nil)
	other.Config.Bucket.Replace = true
	other.Dir = first.Dir // the first segment may have left the log's store
	planetest.Start(t, other).Stop()
	if err := s.refused(s.options(t.TempDir(), nil)); !errors.As(err, new(*bucket.OtherError)) {
		t.Errorf("with the bucket that was replaced: %v", err)
	}
}

func TestLostAndDamagedSegmentsComeFromTheBucket(t *testing.T) {
	s := newSite(t)
	a := s.start(plain)
	old := a.write("note", "old")
	a.fill(s)
	a.Stop()
	segments := filepath.Join(a.Dir, "segments")
	want := files(t, segments)
	lost, _ := filepath.Glob(filepath.Join(segments, "*.log"))
	for i, name := range lost {
		switch {
		case i == len(lost)-1 || i == 1: // also the newest
			os.Remove(name)
		case i == 2:
			os.Truncate(name, 100)
		}
	}
	b := s.open(a.Dir, nil, "")
	eventually(t, "all segments are there", func() bool { return len(b.Archive.Damaged()) == 0 }) // also one that a has sealed and not stored
	b.want("note", old, "old")
	got := files(t, segments)
	for name, content := range want {
		if strings.HasSuffix(name, ".log") && got[name] != content {
			t.Errorf("%s is not as it was", name)
		}
	}
	// The bytes of a file change while the server runs. Reading all files finds it.
	payloads := strings.TrimSuffix(lost[0], ".log") + ".payloads"
	text, _ := os.ReadFile(payloads)
	text[len(text)/2] ^= 1
	if err := os.WriteFile(payloads, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := b.Archive.Scrub(t.Context(), func() error { return nil }); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the file is fetched", func() bool { return len(b.Archive.Damaged()) == 0 })
	b.want("note", old, "old")
}

func TestAReplicaThatWasAwayFetchesWhatHasLeftTheStore(t *testing.T) {
	s := newSite(t)
	a := s.start(plain)
	var away atomic.Bool
	b := s.open(t.TempDir(), func(memlog.Op) memlog.Fault {
		if away.Load() {
			return memlog.Fault{Refuse: eventlog.ErrUnavailable}
		}
		return memlog.Fault{}
	}, "")
	away.Store(true)
	old := a.write("note", "old")
	a.fill(s)
	a.write("note", "new")
	away.Store(false)
	eventually(t, "b has caught up", func() bool { got, err := b.get("note", 0); return err == nil && got == "new" })
	b.want("note", old, "old")
	if damaged := b.Archive.Damaged(); len(damaged) > 0 {
		t.Error(damaged)
	}
}

// What a replica has not applied can be erased when the others do not see it live. It must not go on then: it would keep
// what was deleted meanwhile.
func TestAReplicaThatWasAwayForLongerThanThePastIsKeptStops(t *testing.T) {
	s := newSite(t)
	s.alone, s.retain = true, time.Nanosecond // no leases, so that the replicas do not know each other
	a := s.start(plain)
	a.write("note", "deleted later")
	s.retain = 0
	var away atomic.Bool
	b := s.open(t.TempDir(), func(memlog.Op) memlog.Fault {
		if away.Load() {
			return memlog.Fault{Refuse: eventlog.ErrUnavailable}
		}
		return memlog.Fault{}
	}, "")
	b.want("note", 0, "deleted later")
	away.Store(true)
	if err := a.configMaps.Delete(t.Context(), "note", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	deleted := a.Committer.Tip().Revision()
	for i := range 10 {
		a.write(fmt.Sprint("created-", i), "")
	}
	eventually(t, "the deletion is erased, and has left the log's store", func() bool {
		a.write(fmt.Sprint("created-", time.Now().UnixNano()), "")
		time.Sleep(20 * time.Millisecond)
		g := generations(t, filepath.Join(s.folder, "segments"), deleted)
		return s.oldest() > deleted && len(g) == 1 && g[0] > 0
	})
	away.Store(false)
	eventually(t, "it has stopped", func() bool {
		tip, err := b.Committer.Confirm(t.Context())
		if err == nil && tip.Revision() >= deleted {
			got, err := b.get("note", 0)
			t.Fatalf("it has gone on up to revision %d; what was deleted at %d: %q, %v", tip.Revision(), deleted, got, err)
		}
		return errors.Is(err, status.ErrStopped) // by the committer, or by another part that met it first
	})
	b.Stop()
	if !errors.Is(b.Err, eventlog.ErrOvertaken) {
		t.Errorf("it has stopped: %v", b.Err)
	}
	b = s.open(b.Dir, nil, "")
	if got, err := b.get("note", 0); !apierrors.IsNotFound(err) {
		t.Errorf("started again: %q, %v", got, err)
	}
	if got, err := b.get("note", a.Committer.Tip().Revision()); err == nil {
		t.Errorf("started again, in its history: %q", got)
	}
}

// generations returns the generations of the segment with a revision that a folder has.
func generations(t *testing.T, dir string, revision uint64) (found []uint32) {
	t.Helper()
	for name := range files(t, dir) {
		name, _, _ = strings.Cut(strings.TrimPrefix(name, "/"), ".")
		if first, last, generation, ok := segment.ParseName(name); ok && first <= revision && revision <= last && !slices.Contains(found, generation) {
			found = append(found, generation)
		}
	}
	return found
}

func TestWhatIsErasedDoesNotComeBackFromTheBucket(t *testing.T) {
	s := newSite(t)
	s.retain = time.Nanosecond // of each that may lead
	a := s.start(plain)
	old := a.write("note", "a secret that is forgotten")
	b := s.start("")
	a.write("note", "new")
	eventually(t, "all is forgotten", func() bool {
		a.write("filler", fmt.Sprint(time.Now())) // so that there are checkpoints
		time.Sleep(50 * time.Millisecond)
		for _, dir := range []string{filepath.Join(s.folder, "segments"), filepath.Join(b.Dir, "segments")} {
			if g := generations(t, dir, old); len(g) != 1 || g[0] == 0 {
				return false
			}
		}
		return true
	})
	b.Stop() // it has the newest past in memory
	s.retain = 0
	for _, r := range []*replica{s.open(b.Dir, nil, ""), s.start("")} {
		if got, err := r.get("note", old); err == nil {
			t.Errorf("a replica shows %q", got)
		}
		r.want("note", 0, "new")
	}
}

func TestSeveralLeadersAtOnceDoNoHarm(t *testing.T) {
	s := newSite(t)
	s.alone, s.retain = true, time.Nanosecond
	a := s.start(plain)
	b := s.start("")
	old := a.write("note", "old")
	for i := range 100 {
		a.write("note", fmt.Sprint(i))
		b.write("other", fmt.Sprint(i))
	}
	a.fill(s)
	b.fill(s)
	eventually(t, "the past is erased", func() bool {
		a.write("filler", fmt.Sprint(time.Now())) // so that there are checkpoints
		time.Sleep(50 * time.Millisecond)
		g := generations(t, filepath.Join(s.folder, "segments"), old)
		return len(g) == 1 && g[0] > 0
	})
	for _, r := range []*replica{a, b, s.start("")} {
		r.want("note", 0, "99")
		r.want("other", 0, "99")
		if damaged := r.Archive.Damaged(); len(damaged) > 0 {
			t.Error(damaged)
		}
		if errs := r.Archive.Verify(t.Context()); errors.Join(errs...) != nil {
			t.Error(errs)
		}
	}
}

func TestADamagedFileInTheBucketIsNotUsed(t *testing.T) {
	s := newSite(t)
	s.window = time.Hour
	a := s.start(plain)
	for i := range 40 {
		a.write("note", fmt.Sprint(i))
	}
	stored := func() []string {
		names, _ := filepath.Glob(filepath.Join(s.folder, "segments", "*.log"))
		return names
	}
	eventually(t, "segments are in the bucket", func() bool { return len(stored()) > 3 })
	a.Stop()
	was := files(t, s.folder)
	damaged := stored()[1]
	if err := os.WriteFile(damaged, []byte("something else"), 0o600); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := s.refused(s.options(dir, nil)); !strings.Contains(err.Error(), "is damaged") || !strings.Contains(err.Error(), filepath.Base(damaged)) {
		t.Error(err)
	}
	s.open(a.Dir, nil, "") // its store still has what this file has, so a wants to rely on it
	eventually(t, "the file is stored again", func() bool {
		return files(t, s.folder)[strings.TrimPrefix(damaged, s.folder)] == was[strings.TrimPrefix(damaged, s.folder)]
	})
	s.open(dir, nil, "").want("note", 0, "39")
}

func TestABucketOfAnotherPastIsRefused(t *testing.T) {
	s := newSite(t)
	s.window = time.Hour
	a := s.start(plain)
	head, err := a.Log.Tip(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for range 40 {
		a.write("note", fmt.Sprint(time.Now()))
	}
	eventually(t, "segments are in the bucket", func() bool {
		found, _ := filepath.Glob(filepath.Join(s.folder, "segments", "*.log"))
		return len(found) > 3
	})
	a.Stop()
	s.store.Tamper(func(_ []byte, batches []eventlog.Stored) ([]byte, []eventlog.Stored) { // as if restored from a backup
		n := 0
		for n < len(batches) && batches[n].First <= head.Revision {
			n++
		}
		return head.Encode(), batches[:n]
	})
	if err := s.refused(s.options(t.TempDir(), nil)); !strings.Contains(err.Error(), "restored from a backup") {
		t.Error(err)
	}
}
