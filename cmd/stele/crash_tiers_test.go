package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

var (
	killSeed   = flag.Uint64("kill-seed", 0, "seed of TestKilledWhileTheLogIsMoved; 0 for another one each time")
	killRounds = flag.Int("kill-rounds", 6, "how often TestKilledWhileTheLogIsMoved kills a server under load")
)

var configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}

// forgetful adds to the quickstart that past ConfigMaps are erased as soon as possible, and their records with them.
const forgetful = `package quickstart

bundle: history: retention: kinds: "configmaps": {history: "none", records: "0h"}
`

// TestKilledWhileTheLogIsMoved kills the server at random instants, some of them before it is ready, while clients write
// and the server seals segments, trims and compacts etcd, makes checkpoints, and erases past ConfigMaps. After each kill
// the files of the log are whole; after each start everything acknowledged is there (P1), projections are those of the
// log (P2), and what was at a past revision is what was acknowledged, or gone for ever (P4).
func TestKilledWhileTheLogIsMoved(t *testing.T) {
	seed := cmp.Or(*killSeed, uint64(time.Now().UnixNano()))
	t.Logf("seed %d; go test ./cmd/stele -run %s -kill-seed %d", seed, t.Name(), seed)
	dir := t.TempDir()
	policy := filepath.Join(dir, "policy")
	require.NoError(t, os.CopyFS(policy, os.DirFS(filepath.Join("..", "..", "examples", "quickstart"))))
	require.NoError(t, os.WriteFile(filepath.Join(policy, "forgetful.cue"), []byte(forgetful), 0o600))
	m := &moved{
		t: t, dir: dir, rng: rand.New(rand.NewPCG(seed, 1)), forms: map[movedKey][]form{}, doubts: map[movedKey]doubt{}, lists: map[movedList]*unstructured.UnstructuredList{}, gone: map[schema.GroupVersionResource]uint64{},
		args: []string{"--policy", policy, "--segment-revisions", "30", "--log-window", "1ms", "--erase-every", "50ms", "--checkpoint-events", "60", "--etcd-quota", "256Mi", "--log-level", "info"},
	}
	for range *killRounds {
		m.killStarting()
		begun := time.Now()
		server := startServer(t, dir, m.args...)
		m.took = time.Since(begun)
		m.check()
		m.writeAndKill(server)
		m.note(server)
		verified, _ := run(t, dir, 0, "log", "verify", "--data-dir", "stele-data")
		require.NotContains(t, verified, "differ")
	}
	server := startServer(t, dir, m.args...)
	m.check()
	require.NoError(t, server.end(syscall.SIGTERM))
	m.note(server)
	run(t, dir, 0, "log", "verify", "--data-dir", "stele-data")
	m.checkEventful()
}

// moved is one run.
type moved struct {
	t    *testing.T
	dir  string
	args []string
	rng  *rand.Rand
	took time.Duration // a start

	mu     sync.Mutex
	seen   uint64 // the newest revision that any client was told
	begun  uint64 // the revision from which on the past is asked for
	tip    uint64 // the newest revision of the last check
	forms  map[movedKey][]form
	doubts map[movedKey]doubt
	lists  map[movedList]*unstructured.UnstructuredList // what was answered before
	gone   map[schema.GroupVersionResource]uint64       // the newest revision that was answered with 410

	trimmed                                         uint64 // up to which revision etcd was seen to be trimmed
	writes, restored, checkpoints, erased, starting int
}

type movedKey struct {
	schema.GroupVersionResource
	name string
}

type movedList struct {
	schema.GroupVersionResource
	revision uint64
}

// form is what an object was from a revision on: nil if it was deleted. The revision of a deletion is not told to
// clients, but it is between from and until; until is 0 as long as no later revision is known.
type form struct {
	from, until uint64
	object      *unstructured.Unstructured
}

// doubt is a write whose answer was lost: it was to make the object's number n, or to delete it if n is 0, at revision
// from or later.
type doubt struct {
	from uint64
	n    int64
}

// killStarting starts the server now and then, and kills it before it is ready.
func (m *moved) killStarting() {
	if m.took == 0 || m.rng.IntN(2) == 0 {
		return
	}
	program, err := exec.LookPath("stele")
	require.NoError(m.t, err)
	p, err := serveProcess(program, m.dir, os.Environ(), m.args...)
	require.NoError(m.t, err)
	time.Sleep(time.Duration(m.rng.Int64N(int64(m.took))))
	require.NoError(m.t, p.end(syscall.SIGKILL))
	m.starting++
}

// client reaches the objects of a resource, of now or at a revision.
func (m *moved) client(config *rest.Config, r schema.GroupVersionResource) dynamic.ResourceInterface {
	c, err := dynamic.NewForConfig(config)
	require.NoError(m.t, err)
	return c.Resource(r).Namespace("default")
}

// writeAndKill writes by several clients until the server is killed.
func (m *moved) writeAndKill(server *process) {
	config := clientConfig(m.t, m.dir)
	ctx, cancel := context.WithCancel(m.t.Context())
	var wg sync.WaitGroup
	for w := range 6 {
		rng := rand.New(rand.NewPCG(m.rng.Uint64(), uint64(w)))
		r := []schema.GroupVersionResource{databases, configMaps}[w%2]
		client := m.client(config, r)
		wg.Go(func() {
			for ctx.Err() == nil && m.write(ctx, client, movedKey{r, fmt.Sprintf("o-%d-%d", w, rng.IntN(4))}, rng) {
			}
		})
	}
	time.Sleep(time.Duration(m.rng.Int64N(int64(1300 * time.Millisecond))))
	require.NoError(m.t, server.end(syscall.SIGKILL))
	cancel()
	wg.Wait()
}

// write creates an object, changes it, or deletes it. It returns false if the server is gone.
func (m *moved) write(ctx context.Context, client dynamic.ResourceInterface, key movedKey, rng *rand.Rand) bool {
	m.mu.Lock()
	d := doubt{from: m.seen + 1}
	var last *unstructured.Unstructured
	if forms := m.forms[key]; len(forms) > 0 {
		last = forms[len(forms)-1].object
	}
	m.mu.Unlock()
	var got *unstructured.Unstructured
	var err error
	switch {
	case last == nil:
		d.n = 1 + rng.Int64N(4000)
		got, err = client.Create(ctx, numbered(key, d.n), metav1.CreateOptions{})
	case rng.IntN(5) == 0:
		err = client.Delete(ctx, key.name, metav1.DeleteOptions{})
	default:
		d.n = 1 + numberOf(last)%4000
		got, err = client.Patch(ctx, key.name, types.MergePatchType, fmt.Appendf(nil, numberPatch[key.GroupVersionResource], d.n), metav1.PatchOptions{})
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if err != nil {
		if refused := apierrors.APIStatus(nil); errors.As(err, &refused) {
			m.t.Errorf("a write of %v was refused: %v", key, err)
		}
		m.doubts[key] = d
		return false
	}
	m.writes++
	m.add(key, d.from, got)
	return true
}

// add adds what an object has become at revision from or later; nil if it was deleted.
func (m *moved) add(key movedKey, from uint64, object *unstructured.Unstructured) {
	f := form{from: from, object: object}
	if object != nil {
		f.from = revisionIn(m.t, object.GetResourceVersion())
		f.until = f.from
		if forms := m.forms[key]; len(forms) > 0 && forms[len(forms)-1].until == 0 {
			forms[len(forms)-1].until = f.from - 1
		}
		m.seen = max(m.seen, f.from)
	}
	m.forms[key] = append(m.forms[key], f)
}

// check asks a server that has just started for everything.
func (m *moved) check() {
	config := clientConfig(m.t, m.dir)
	for _, r := range []schema.GroupVersionResource{databases, configMaps} {
		m.checkPresent(r, listOf(m.t, m.client(config, r), ""))
	}
	if m.begun == 0 {
		m.begun = m.tip
	}
	for range 12 {
		revision := m.begun + m.rng.Uint64N(m.tip-m.begun+1)
		for _, r := range []schema.GroupVersionResource{databases, configMaps} {
			m.checkList(config, r, revision)
			m.checkGet(config, r, revision)
		}
	}
	for asked := range m.lists { // what was answered once
		if m.rng.IntN(4) == 0 {
			m.checkList(config, asked.GroupVersionResource, asked.revision)
		}
	}
	m.trimmed = max(m.trimmed, trimmedUpTo(m.t, config))
	var stdout, stderr bytes.Buffer
	verify := func() int {
		stdout.Reset()
		stderr.Reset()
		return execute(m.t.Context(), []string{"projection", "verify", "--kubeconfig", filepath.Join(m.dir, "stele-data", "admin.kubeconfig")}, &stdout, &stderr)
	}
	code := verify()
	// Retention runs meanwhile. What it erases cannot be verified, and the answer says so.
	for tries := 0; tries < 10 && code == 1 && strings.Contains(stdout.String()+stderr.String(), "retention has erased a part of the past meanwhile; try again"); tries++ {
		code = verify()
	}
	if code != 0 || strings.Count(stdout.String(), ": as in the log at revision ") != 2 {
		m.t.Fatalf("P2: projection verify: exit code %d: %s%s", code, &stdout, &stderr)
	}
}

// checkPresent: P1. What there is, is what was acknowledged last, or else what was sent after that. It settles which.
func (m *moved) checkPresent(r schema.GroupVersionResource, list *unstructured.UnstructuredList) {
	m.tip = revisionIn(m.t, list.GetResourceVersion())
	m.seen = max(m.seen, m.tip)
	found := byName(list)
	for key, d := range m.doubts {
		if key.GroupVersionResource != r {
			continue
		}
		var last *unstructured.Unstructured
		if forms := m.forms[key]; len(forms) > 0 {
			last = forms[len(forms)-1].object
		}
		if is := found[key.name]; gocmp.Diff(last, is) != "" && (is == nil && d.n == 0 || is != nil && numberOf(is) == d.n) {
			m.add(key, d.from, is)
		}
		delete(m.doubts, key)
	}
	for key, forms := range m.forms {
		if key.GroupVersionResource != r {
			continue
		}
		last := &forms[len(forms)-1]
		if last.until == 0 {
			last.until = m.tip
		}
		if diff := gocmp.Diff(last.object, found[key.name]); diff != "" {
			m.t.Fatalf("P1: %v is not what was acknowledged at revision %d (-acknowledged +is):\n%s", key, last.from, diff)
		}
		delete(found, key.name)
	}
	delete(found, "kube-root-ca.crt") // the server's own
	if len(found) > 0 {
		m.t.Fatalf("P1: nobody has written %v", found)
	}
}

// may returns what an object may have been at a revision: one form, or two if it was deleted about then.
func (m *moved) may(key movedKey, revision uint64) []*unstructured.Unstructured {
	var before *unstructured.Unstructured
	for _, f := range m.forms[key] {
		if revision < f.from {
			break
		}
		if revision < f.until {
			return []*unstructured.Unstructured{before, f.object}
		}
		before = f.object
	}
	return []*unstructured.Unstructured{before}
}

// checkList: P4. A list at a revision has what was acknowledged, and stays as it was answered first.
func (m *moved) checkList(config *rest.Config, r schema.GroupVersionResource, revision uint64) {
	list, err := m.client(config, r).List(m.t.Context(), metav1.ListOptions{ResourceVersion: fmt.Sprint(revision), ResourceVersionMatch: metav1.ResourceVersionMatchExact})
	if m.isGone(r, revision, err) {
		return
	}
	require.NoError(m.t, err)
	found := byName(list)
	for key := range m.forms {
		if key.GroupVersionResource == r {
			m.checkForm(key, revision, found[key.name])
			delete(found, key.name)
		}
	}
	if delete(found, "kube-root-ca.crt"); len(found) > 0 {
		m.t.Fatalf("P4: at revision %d nobody had written %v", revision, found)
	}
	asked := movedList{r, revision}
	if was := m.lists[asked]; was != nil {
		if diff := gocmp.Diff(was, list); diff != "" {
			m.t.Fatalf("P4: the list of %v at revision %d is another one now (-was +is):\n%s", r, revision, diff)
		}
	}
	m.lists[asked] = list
}

// checkGet: P4. One object at a revision is what was acknowledged.
func (m *moved) checkGet(config *rest.Config, r schema.GroupVersionResource, revision uint64) {
	key := movedKey{r, fmt.Sprintf("o-%d-%d", m.rng.IntN(6), m.rng.IntN(4))}
	is, err := m.client(at(config, fmt.Sprint(revision)), r).Get(m.t.Context(), key.name, metav1.GetOptions{})
	if m.isGone(r, revision, err) {
		return
	}
	if apierrors.IsNotFound(err) {
		is, err = nil, nil
	}
	require.NoError(m.t, err)
	m.checkForm(key, revision, is)
}

func (m *moved) checkForm(key movedKey, revision uint64, is *unstructured.Unstructured) {
	may := m.may(key, revision)
	if !slices.ContainsFunc(may, func(o *unstructured.Unstructured) bool { return gocmp.Equal(o, is) }) {
		m.t.Fatalf("P4: at revision %d %v is not what it was (-was +is):\n%s", revision, key, gocmp.Diff(may[len(may)-1], is))
	}
}

// isGone reports whether a past ConfigMap is gone. Then it, and what is before it, stays gone.
func (m *moved) isGone(r schema.GroupVersionResource, revision uint64, err error) bool {
	gone := apierrors.IsResourceExpired(err) || apierrors.IsGone(err)
	switch {
	case gone && (r != configMaps || revision == m.tip):
		m.t.Fatalf("P4: %v at revision %d of %d: %v", r, revision, m.tip, err)
	case gone:
		m.t.Logf("gone: %d of %d: %v", revision, m.tip, err)
		m.gone[r] = max(m.gone[r], revision)
		delete(m.lists, movedList{r, revision})
	case revision <= m.gone[r]:
		m.t.Fatalf("P4: %v at revision %d of %d are answered, which were gone up to %d: %v", r, revision, m.tip, m.gone[r], err)
	}
	return gone
}

// note counts what a server did, as it says.
func (m *moved) note(server *process) {
	said := server.stderr.String()
	m.checkpoints += strings.Count(said, `msg="a checkpoint was made"`)
	m.erased += strings.Count(said, `msg="erased what retention does not keep"`)
	if strings.Contains(said, "the start goes on from a checkpoint") {
		m.restored++
	}
}

// checkEventful fails the test if nothing was killed that could have been lost.
func (m *moved) checkEventful() {
	segments, err := filepath.Glob(filepath.Join(m.dir, "stele-data", "segments", "*.log"))
	require.NoError(m.t, err)
	m.t.Logf("%d writes up to revision %d, %d segments, %d checkpoints, %d starts from one, %d kills before a start was ready, %d segments erased, ConfigMaps gone up to %d, etcd trimmed up to %d",
		m.writes, m.tip, len(segments), m.checkpoints, m.restored, m.starting, m.erased, m.gone[configMaps], m.trimmed)
	for what, n := range map[string]int{"writes": m.writes, "segments": len(segments), "checkpoints": m.checkpoints, "starts from checkpoints": m.restored, "erasures": m.erased, "trims": int(m.trimmed)} {
		if n == 0 {
			m.t.Errorf("there were no %s", what)
		}
	}
}

// trimmedUpTo returns the revision up to which a server has trimmed etcd.
func trimmedUpTo(t *testing.T, config *rest.Config) (revision uint64) {
	client, err := rest.HTTPClientFor(config)
	require.NoError(t, err)
	answer, err := client.Get(config.Host + "/metrics")
	require.NoError(t, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	_, found, _ := strings.Cut(string(text), "\nstele_log_trimmed_revision ")
	var value float64
	_, err = fmt.Sscan(found, &value)
	require.NoError(t, err)
	return uint64(value)
}

// numbered returns an object with a number.
func numbered(key movedKey, n int64) *unstructured.Unstructured {
	if key.GroupVersionResource == databases {
		return database(key.name, n)
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": key.name}, "data": map[string]any{"n": strconv.FormatInt(n, 10)},
	}}
}

// numberPatch are the formats of patches that set the number.
var numberPatch = map[schema.GroupVersionResource]string{databases: `{"spec":{"storageGiB":%d}}`, configMaps: `{"data":{"n":"%d"}}`}

// numberOf returns the number of an object.
func numberOf(o *unstructured.Unstructured) int64 {
	if n, ok, _ := unstructured.NestedInt64(o.Object, "spec", "storageGiB"); ok {
		return n
	}
	text, _, _ := unstructured.NestedString(o.Object, "data", "n")
	n, _ := strconv.ParseInt(text, 10, 64)
	return n
}

func revisionIn(t *testing.T, resourceVersion string) uint64 {
	revision, err := strconv.ParseUint(resourceVersion, 10, 64)
	require.NoError(t, err)
	return revision
}
