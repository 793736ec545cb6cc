package proofs

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"stele.dev/stele/cmd/stele/internal/usage"
	"stele.dev/stele/core/commit"
	"stele.dev/stele/core/run/plane/planetest"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/archive"
	"stele.dev/stele/eventlog/backup"
	"stele.dev/stele/eventlog/backup/stores"
	"stele.dev/stele/eventlog/logpb"
	"stele.dev/stele/eventlog/logtest"
	"stele.dev/stele/eventlog/memlog"
	"stele.dev/stele/eventlog/proof"
	"stele.dev/stele/eventlog/segment"
	"stele.dev/stele/eventlog/verify"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/probes"
	"stele.dev/stele/projections/checkpoint"
	"stele.dev/stele/projections/objects"
	"stele.dev/stele/projections/policies"
)

// branch is a control plane on a log of its own, and the log's store.
type branch struct {
	*testing.T
	*planetest.Plane
	store *memlog.Store
}

func newBranch(t *testing.T, store *memlog.Store) *branch {
	o := planetest.Options{Backend: store.Open(nil)}
	o.Segments.Revisions = 40
	if len(store.Batches()) == 0 {
		o.Bundle = bundle
	}
	return &branch{t, planetest.Start(t, o), store}
}

// fork returns a control plane on a copy of the log.
func (b *branch) fork() *branch {
	b.Helper()
	copied := new(memlog.Store)
	b.store.Tamper(func(head []byte, all []eventlog.Stored) ([]byte, []eventlog.Stored) {
		copied.Tamper(func([]byte, []eventlog.Stored) ([]byte, []eventlog.Stored) { return head, all })
		return head, all
	})
	return newBranch(b.T, copied)
}

// write creates a number of ConfigMaps.
func (b *branch) write(name string, n int) {
	b.Helper()
	client, err := kubernetes.NewForConfig(b.Client("admin", "system:masters"))
	if err != nil {
		b.Fatal(err)
	}
	for i := range n {
		object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", name, i), Namespace: "default"}}
		if _, err := client.CoreV1().ConfigMaps("default").Create(b.Context(), object, metav1.CreateOptions{}); err != nil {
			b.Fatal(err)
		}
	}
}

func (b *branch) server() server { return server{b.Client("admin", "system:masters")} }

// head returns the newest head, as `stele proof checkpoint` prints it.
func (b *branch) head() proof.TreeHead {
	b.Helper()
	head, err := b.server().head(b.Context(), 0)
	if err != nil {
		b.Fatal(err)
	}
	return head
}

// forget seals the log, and lets it forget all changes of objects after a revision up to another one.
func (b *branch) forget(after, upto uint64) {
	b.Helper()
	if _, err := b.Archive.Seal(b.Context(), b.Plane.Log, b.Committer.Tip().Head); err != nil {
		b.Fatal(err)
	}
	infos := b.Archive.Segments()
	last := infos[len(infos)-1]
	root := segment.Roots(infos)[last.Ordinal+last.Batches]
	if err := b.Committer.RecordErased(b.Context(), &logpb.PastErased{Batches: last.Ordinal + last.Batches, Root: root[:]}); err != nil {
		b.Fatal(err)
	}
	for _, info := range infos {
		_, err := b.Archive.Rewrite(b.Context(), info.First, func(batch *eventlog.Batch, e *eventlog.Event) segment.Keep {
			if e.Meta.GetObject() == nil || batch.First <= after || batch.Last() > upto {
				return segment.All
			}
			return segment.Nothing
		})
		if err != nil {
			b.Fatal(err)
		}
	}
}

// verdicts returns what each command says that compares the log with a head.
func (b *branch) verdicts(head proof.TreeHead) map[string]error {
	b.Helper()
	kept, newest := namedHead{head.Text(), head}, b.head()
	verdicts := map[string]error{}
	source, err := serverSource(b.Context(), b.server().config, b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	_, verdicts["log verify"] = verify.Log(b.Context(), source, verify.Options{Heads: []proof.TreeHead{head}})
	store := verify.Source{ID: b.Plane.Log.ID(), Name: "the store", Batches: verify.BatchesOf(b.Plane.Log), Confirm: verify.ConfirmBy(b.Plane.Log), Segments: verify.SegmentsOf(b.Archive)}
	_, verdicts["log verify --data-dir"] = verify.Log(b.Context(), store, verify.Options{Heads: []proof.TreeHead{head}})
	_, verdicts["log prove --from"] = b.server().consistency(b.Context(), kept, namedHead{newest.Text(), newest})
	_, verdicts["log prove REVISION --head"] = b.server().inclusion(b.Context(), 2, kept, false)
	file := b.TempDir() + "/head.txt"
	if err := os.WriteFile(file, []byte(head.Text()), 0o600); err != nil {
		b.Fatal(err)
	}
	verdicts["log checkpoint --previous"] = b.server().goesOn(b.Context(), file, nil, newest)
	verdicts["backup verify --head"] = b.backup(head)
	for command, err := range verdicts {
		verdicts[command] = incomparable(err)
	}
	return verdicts
}

// backup makes a backup, and returns what its verification says of a head.
func (b *branch) backup(head proof.TreeHead) error {
	b.Helper()
	place := stores.NewFolder(b.TempDir())
	m, err := backup.Create(b.Context(), backup.CreateOptions{Source: &backup.Local{Log: b.Plane.Log, Archive: b.Archive}, Store: place})
	if err != nil {
		b.Fatal(err)
	}
	v, err := backup.Verify(b.Context(), backup.VerifyOptions{Store: place, Manifest: m, Heads: []proof.TreeHead{head}})
	if err != nil {
		b.Fatal(err)
	}
	if v.Incomparable != nil {
		return v.Incomparable
	}
	return errors.Join(v.Problems...)
}

// Who can write the store forks the log before the head that an auditor has, writes another past, and lets retention forget
// the batches around the end of the head. No command says that the log is the head's.
func TestAForgedLogIsNeverValid(t *testing.T) {
	honest := newBranch(t, new(memlog.Store))
	honest.write("before", 5)
	forged := honest.fork()
	begins := honest.Committer.Tip().Revision()
	honest.write("true", 50)
	early, err := honest.server().head(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	inside := early // a head that a former version has handed out, among changes that are forgotten
	if _, err := honest.server().head(t.Context(), early.Size-10); err == nil || !strings.Contains(err.Error(), "could then not be compared any more") {
		t.Errorf("a head that ends with a change is handed out: %v", err)
	}
	if inside, err = proof.NewTree(proof.NewSource(honest.Plane.Log, honest.Archive), early.Log).Head(t.Context(), early.Size-10); err != nil {
		t.Fatal(err)
	}
	for command, err := range honest.verdicts(inside) {
		if err != nil {
			t.Errorf("%s of the true log: %v", command, err)
		}
	}
	forged.write("false", 150)
	forged.forget(begins, begins+100)
	for name, head := range map[string]proof.TreeHead{"recorded": early, "inside": inside} {
		for command, err := range forged.verdicts(head) {
			if err == nil {
				t.Errorf("%s of the forged log says that it is that of the %s head of size %d", command, name, head.Size)
			} else if name == "inside" && usage.ExitCode(err) != usage.ExitIncomparable {
				t.Errorf("%s: exit code %d: %v", command, usage.ExitCode(err), err)
			}
		}
	}
}

// The heads that a server hands out stay comparable, whatever it forgets.
func TestAHeadStaysComparable(t *testing.T) {
	b := newBranch(t, new(memlog.Store))
	b.write("before", 20)
	begins := b.Committer.Tip().Revision() - 15
	head := b.head()
	if head != b.head() { // nothing was written since
		t.Errorf("another head of the same log")
	}
	b.write("after", 100)
	b.forget(begins, begins+80)
	for command, err := range b.verdicts(head) {
		if err != nil {
			t.Errorf("%s: %v", command, err)
		}
	}
	if _, err := b.server().head(t.Context(), head.Size-2); err == nil || !strings.Contains(err.Error(), "not kept any more") {
		t.Errorf("a head among what is forgotten: %v", err)
	}
}

// Whoever can write to the segments changes an event that is kept before a gap, with all hashes in the file. No command says that the
// log is valid.
func TestAChangedPastIsNeverValid(t *testing.T) {
	b := newBranch(t, new(memlog.Store))
	b.write("early", 5)
	begins := b.Committer.Tip().Revision()
	b.write("later", 100)
	b.forget(begins, begins+50)
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(b.Archive.Dir())); err != nil {
		t.Fatal(err)
	}
	verdicts := func() map[string]error {
		segments, err := archive.Open(archive.Options{Dir: dir, Log: b.Plane.Log.ID()})
		if err != nil {
			t.Fatal(err)
		}
		defer segments.Close()
		files := &backup.Local{Log: b.Plane.Log, Archive: segments}
		verdicts := map[string]error{}
		source, err := sourceOf(t.Context(), files, "the server", t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		_, verdicts["log verify"] = verify.Log(t.Context(), source, verify.Options{})
		source = verify.Source{ID: b.Plane.Log.ID(), Name: "the store", Batches: verify.BatchesOf(b.Plane.Log), Confirm: verify.ConfirmBy(b.Plane.Log), Segments: verify.SegmentsOf(segments)}
		_, verdicts["log verify --data-dir"] = verify.Log(t.Context(), source, verify.Options{})
		place := stores.NewFolder(t.TempDir())
		m, err := backup.Create(t.Context(), backup.CreateOptions{Source: files, Store: place})
		if err != nil {
			t.Fatal(err)
		}
		v, err := backup.Verify(t.Context(), backup.VerifyOptions{Store: place, Manifest: m})
		if err != nil {
			t.Fatal(err)
		}
		verdicts["backup verify"] = errors.Join(v.Problems...)
		return verdicts
	}
	for command, err := range verdicts() {
		if err != nil {
			t.Errorf("%s of the true log: %v", command, err)
		}
	}
	first := b.Archive.Segments()[0]
	logtest.Forge(t, dir+"/"+first.Files[0].Name, "early-4", "EARLY-4")
	if err := os.Remove(dir + "/SHA256SUMS"); err != nil {
		t.Fatal(err)
	}
	for command, err := range verdicts() {
		if err == nil || !strings.Contains(err.Error(), "are not those that the log has recorded") {
			t.Errorf("%s of the changed log: %v", command, err)
		}
	}
}

// A checkpoint that cannot be compared, because the log has lost its beginning, vouches for no later one.
func TestAForgedCheckpointDoesNotVouchForTheNext(t *testing.T) {
	b := newBranch(t, new(memlog.Store))
	b.write("early", 20)
	early := b.Committer.Tip().Objects
	b.write("late", 60)
	forged := *b.Committer.Tip()
	forged.Objects = early // objects are missing in it
	b.write("later", 20)
	newer := b.Committer.Tip().Revision()
	path := t.TempDir()
	folder, err := checkpoint.Open(path, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := folder.Write(t.Context(), forged.Revision(), 0, forged.Save); err != nil {
		t.Fatal(err)
	}
	err = folder.Read(forged.Revision(), func(r *checkpoint.Reader) error {
		options := commit.Options{Log: b.Plane.Log, Objects: objects.New(1), Load: func(p *policies.Proposal) (*policy.Policy, error) { return probes.Load(p.Form.Bytes()) }}
		follows, err := commit.Rebuild(t.Context(), options, r, newer, func() error { return nil })
		if err == nil {
			_, err = folder.Write(t.Context(), newer, 0, follows.Save)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Archive.Seal(t.Context(), b.Plane.Log, b.Committer.Tip().Head); err != nil {
		t.Fatal(err)
	}
	if err := b.Plane.Log.Trim(t.Context(), b.Archive.Tip().Revision); err != nil {
		t.Fatal(err)
	}
	if err := b.Archive.Drop(t.Context(), 40); err != nil {
		t.Fatal(err)
	}
	v := &verified{}
	if err := (&checkpoints{log: b.Plane.Log, tip: newer}).verify(t.Context(), path, v); err != nil {
		t.Fatal(err)
	}
	if v.Checkpoints != 2 || v.Compared != 0 || v.NotCompared == "" {
		t.Errorf("%+v", v)
	}
}
