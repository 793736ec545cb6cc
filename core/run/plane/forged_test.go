package plane_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"stele.dev/stele/core/commit"
	"stele.dev/stele/core/keep/checkpoints"
	"stele.dev/stele/core/keep/retention"
	"stele.dev/stele/core/run/plane/planetest"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/logtest"
	"stele.dev/stele/eventlog/memlog"
	"stele.dev/stele/eventlog/segment"
	"stele.dev/stele/projections/checkpoint"
	"stele.dev/stele/projections/objects"
	"stele.dev/stele/projections/policies"
)

// forge makes a checkpoint file with other records, whose checksums and hash are right.
func forge(t *testing.T, file string, revision uint64, change func([]byte) []byte) []byte {
	t.Helper()
	from, err := checkpoint.Open(t.TempDir(), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err == nil {
		err = os.WriteFile(from.Path(revision), text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	to, err := checkpoint.Open(t.TempDir(), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	made, err := to.Write(t.Context(), revision, 0, func(w checkpoint.Sink) error {
		return from.Read(revision, func(r *checkpoint.Reader) error {
			for _, section := range []struct {
				name    string
				version uint32
			}{{"tip", 1}, {"policies", policies.FoldVersion}, {"kinds", objects.FoldVersion}, {"objects", objects.FoldVersion}} {
				if err := errors.Join(r.Section(section.name, section.version), w.Begin(section.name, section.version)); err != nil {
					return err
				}
				if err := checkpoint.Records(t.Context(), r, func(b []byte) ([]byte, error) { return change(bytes.Clone(b)), nil }, w.Put); err != nil {
					return err
				}
			}
			return nil
		})
	})
	if err == nil {
		text, err = os.ReadFile(made.File)
	}
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// evil replaces what is stored by something as long.
func evil(b []byte) []byte { return bytes.ReplaceAll(b, []byte("GOOD"), []byte("EVIL")) }

// putCheckpoint writes a checkpoint into the folder of a bucket, as whoever can write there does.
func (s *site) putCheckpoint(revision uint64, text []byte) {
	s.t.Helper()
	name := fmt.Sprintf("%020d.%x.ckpt", revision, sha256.Sum256(text))
	dir := filepath.Join(s.folder, "checkpoints")
	if err := errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(filepath.Join(dir, name), text, 0o600)); err != nil {
		s.t.Fatal(err)
	}
}

// put writes a file of the segments in the folder of a bucket.
func (s *site) put(name, text string) {
	s.t.Helper()
	if err := os.WriteFile(filepath.Join(s.folder, "segments", name), []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// checkpoints returns the paths and revisions of the bucket's checkpoints.
func (s *site) checkpoints() map[string]uint64 {
	s.t.Helper()
	found, err := filepath.Glob(filepath.Join(s.folder, "checkpoints", "*.ckpt"))
	if err != nil {
		s.t.Fatal(err)
	}
	revisions := map[string]uint64{}
	for _, file := range found {
		var revision uint64
		if _, err := fmt.Sscanf(filepath.Base(file), "%d.", &revision); err != nil {
			s.t.Fatal(err)
		}
		revisions[file] = revision
	}
	return revisions
}

// starting starts a replica with a folder, and returns what it has logged.
func (s *site) starting(dir string, change func(*planetest.Options)) (*planetest.Plane, string) {
	s.t.Helper()
	var said heard // it goes on to log
	o := s.options(dir, nil)
	o.Logger = slog.New(slog.NewTextHandler(&said, nil))
	if change != nil {
		change(&o)
	}
	p, err := planetest.Open(s.t.Context(), o)
	if err != nil {
		s.t.Fatal(err)
	}
	text := said.String()
	s.t.Cleanup(p.Stop)
	return p, text
}

// heard is what a running server has logged. It is safe for concurrent use.
type heard struct {
	mu   sync.Mutex
	text strings.Builder
}

func (h *heard) Write(b []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.text.Write(b)
}

func (h *heard) String() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.text.String()
}

// replicaOf returns a plane with a client.
func replicaOf(t *testing.T, p *planetest.Plane) *replica {
	t.Helper()
	config := p.Client("admin", "system:masters")
	config.QPS = -1
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return &replica{t, p, client.Resource(configMaps.WithVersion("v1")).Namespace("default")}
}

// value returns what a plane has stored in the ConfigMap note.
func value(p *planetest.Plane) string {
	o := p.Committer.Tip().Objects.Get(configMaps, "default", "note")
	if o == nil {
		return ""
	}
	return string(o.JSON)
}

var configMaps = schema.GroupResource{Resource: "configmaps"}

// Whoever writes the bucket changes all its checkpoints, with checksums and hashes that are right.
func TestACheckpointOfTheBucketIsNotBelievedByItsOwnChecksum(t *testing.T) {
	s := newSite(t)
	a := s.start(plain)
	a.write("note", "GOOD")
	for i := range 30 {
		a.write("other", fmt.Sprint(i))
	}
	eventually(t, "two checkpoints are in the bucket", func() bool {
		a.write("other", fmt.Sprint(len(s.checkpoints()), a.Committer.Tip().Revision()))
		return len(s.checkpoints()) == 2
	})
	a.Stop()

	p, said := s.starting(t.TempDir(), nil)
	if p.Committer.Restored().Revision == 0 {
		t.Errorf("a recorded checkpoint is not used: %s", said)
	}
	p.Stop()
	for file, revision := range s.checkpoints() {
		text := forge(t, file, revision, evil)
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
		s.putCheckpoint(revision, text)
	}
	for _, accept := range []bool{false, true} { // a record is there, so that nobody can accept another fold
		p, said := s.starting(t.TempDir(), func(o *planetest.Options) { o.Bucket.AcceptUnrecorded = accept })
		if from := p.Committer.Restored().Revision; from != 0 || strings.Count(said, "it was changed after it was made") != 2 {
			t.Errorf("accept %v: the start goes on from %d: %s", accept, from, said)
		}
		if got := value(p); !strings.Contains(got, "GOOD") {
			t.Errorf("accept %v: it has %s", accept, got)
		}
		p.Stop()
	}
}

// The checkpoints of a former version have no record in the log.
func TestACheckpointWithoutARecord(t *testing.T) {
	s := newSite(t)
	dir := t.TempDir()
	o := s.options(dir, nil)
	o.Bundle, o.Checkpoints.Unrecorded = plain, true
	former := planetest.Start(t, o)
	writer := replicaOf(t, former)
	writer.write("note", "GOOD")
	for i := range 40 {
		writer.write("other", fmt.Sprint(i))
	}
	eventually(t, "it has a checkpoint", func() bool {
		local, _ := filepath.Glob(filepath.Join(dir, "checkpoints", "*.ckpt"))
		return len(local) > 0
	})
	former.Stop()
	if n := len(s.checkpoints()); n != 0 {
		t.Fatalf("%d checkpoints without a record are in the bucket", n)
	}
	local, _ := filepath.Glob(filepath.Join(dir, "checkpoints", "*.ckpt"))
	file := local[len(local)-1]
	var revision uint64
	if _, err := fmt.Sscanf(filepath.Base(file), "%d.", &revision); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	s.putCheckpoint(revision, text)

	p, said := s.starting(t.TempDir(), func(o *planetest.Options) { o.Checkpoints.Unrecorded = true })
	if from := p.Committer.Restored().Revision; from != 0 || !strings.Contains(said, "--accept-unrecorded-checkpoint") || !strings.Contains(value(p), "GOOD") {
		t.Errorf("of the bucket: the start goes on from %d: %s", from, said)
	}
	p.Stop()
	p, said = s.starting(t.TempDir(), func(o *planetest.Options) { o.Bucket.AcceptUnrecorded, o.Checkpoints.Unrecorded = true, true })
	if from := p.Committer.Restored().Revision; from != revision {
		t.Errorf("accepted by hand: the start goes on from %d: %s", from, said)
	}
	p.Stop()
	// That of the replica itself is used, and recorded.
	p, said = s.starting(dir, nil)
	if from := p.Committer.Restored().Revision; from != revision {
		t.Errorf("its own: the start goes on from %d, not %d: %s", from, revision, said)
	}
	eventually(t, "a checkpoint of it is recorded, and in the bucket", func() bool {
		for file, newer := range s.checkpoints() {
			if newer > revision && isRecorded(t, p.Log, file, newer) {
				return true
			}
		}
		return false
	})
}

// A policy that was never activated is not enforced, whatever the folder of checkpoints says.
func TestThePolicyOfACheckpointIsOneThatTheLogHasActivated(t *testing.T) {
	var store memlog.Store
	dir, keys := t.TempDir(), filepath.Join(t.TempDir(), "sa.key")
	if _, err := planetest.WriteKeys(keys); err != nil {
		t.Fatal(err)
	}
	options := planetest.Options{Dir: dir, KeyFile: keys, Backend: store.Open(nil), Bundle: plain}
	options.Checkpoints = checkpoints.Options{Events: 1, Unrecorded: true}
	p := planetest.Start(t, options)
	form := p.Committer.Tip().Policies.Active.Form.Bytes()
	digest := p.Committer.Tip().Policies.Active.Digest
	var files []string
	eventually(t, "it has a checkpoint", func() bool {
		files, _ = filepath.Glob(filepath.Join(dir, "checkpoints", "*.ckpt"))
		return len(files) > 0
	})
	p.Stop()
	files, _ = filepath.Glob(filepath.Join(dir, "checkpoints", "*.ckpt"))
	changed := func(b []byte) []byte { return bytes.ReplaceAll(b, []byte("Text by key"), []byte("Tent by key")) }
	if bytes.Equal(changed(form), form) {
		t.Fatal("the form has no such text")
	}
	other := policies.DigestOf(changed(form))
	for _, file := range files {
		var revision uint64
		if _, err := fmt.Sscanf(filepath.Base(file), "%d.", &revision); err != nil {
			t.Fatal(err)
		}
		text := forge(t, file, revision, func(b []byte) []byte { return bytes.ReplaceAll(changed(b), digest[:], other[:]) })
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var said heard
	options.Bundle, options.Backend, options.Logger = "", store.Open(nil), slog.New(slog.NewTextHandler(&said, nil))
	p, err := planetest.Open(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Stop()
	if in := p.Committer.Tip().Policies.Active.Digest; in != digest || p.Committer.Restored().Revision != 0 {
		t.Errorf("policy %v is in force, not %v: %s", in, digest, said.String())
	}
	if !strings.Contains(said.String(), "was not activated at revision") {
		t.Errorf("it says %s", said.String())
	}
}

// isRecorded reports whether the log has recorded a checkpoint. Its file may be gone.
func isRecorded(t *testing.T, log eventlog.Reader, file string, revision uint64) bool {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		return false
	}
	info, err := checkpoint.InfoOf(t.Context(), f, nil)
	return err == nil && commit.CheckRecorded(t.Context(), log, revision, info.Fold) == nil
}

// forgeSegment changes an event that is kept before a gap in a segment of the bucket, as whoever can write there does.
func (s *site) forgeSegment() {
	s.t.Helper()
	logs, err := filepath.Glob(filepath.Join(s.folder, "segments", "*"+segment.LogFile))
	if err != nil {
		s.t.Fatal(err)
	}
	for _, log := range logs {
		stored := strings.TrimSuffix(log, segment.LogFile)
		name, _, _ := strings.Cut(filepath.Base(stored), ".")
		dir := s.t.TempDir()
		plain := filepath.Join(dir, name+segment.LogFile)
		for _, extension := range []string{segment.LogFile, segment.PayloadsFile} {
			if err := os.Link(stored+extension, filepath.Join(dir, name+extension)); err != nil {
				s.t.Fatal(err)
			}
		}
		kept := keptBeforeAGap(s.t, plain)
		if kept == "" {
			continue
		}
		text, err := os.ReadFile(log)
		if err = errors.Join(err, os.Remove(plain), os.WriteFile(plain, text, 0o600)); err != nil { // not the link
			s.t.Fatal(err)
		}
		logtest.Forge(s.t, plain, kept, strings.ToUpper(kept))
		sum, err := segment.Sum(plain)
		forged := filepath.Join(filepath.Dir(stored), fmt.Sprintf("%s.%x", name, sum))
		err = errors.Join(err, os.Rename(stored+segment.PayloadsFile, forged+segment.PayloadsFile), os.Rename(stored+".floors", forged+".floors"),
			os.Remove(log), os.Rename(plain, forged+segment.LogFile))
		if err != nil {
			s.t.Fatal(err)
		}
		return
	}
	s.t.Fatal("no segment of the bucket has a kept event before a gap")
}

// keptBeforeAGap returns the name of an object whose only event in a segment is in the last batch before a gap; "" if there is none.
func keptBeforeAGap(t *testing.T, file string) (name string) {
	t.Helper()
	of, err := segment.Open(file, nil)
	if err != nil {
		t.Fatal(err)
	}
	for item, err := range of.Metadata(t.Context(), 0) {
		switch {
		case err != nil:
			t.Fatal(err)
		case item.Gap != nil && strings.HasPrefix(name, "kept-"):
			return name
		case item.Gap == nil:
			name = item.Batch.Events[0].Meta.GetObject().GetName()
		}
	}
	return ""
}

// Whoever writes the bucket can put another past before a gap, which nothing that is kept continues. But the log has recorded what was
// there before it was erased. And a new replica does not begin with floors that no replica can have reached.
func TestANewReplicaDoesNotBeginFromAForgedPast(t *testing.T) {
	s := newSite(t)
	s.alone, s.retain = true, time.Nanosecond
	a := s.start(plain)
	gaps := func() bool { // a rewritten segment lacks a batch
		for _, info := range a.Archive.Segments() {
			if info.KeptBatches < info.Batches {
				found, err := filepath.Glob(filepath.Join(s.folder, "segments", segment.Name(info.First, info.Last, info.Generation)+".*"))
				return err == nil && len(found) > 0
			}
		}
		return false
	}
	written := 0
	eventually(t, "batches are forgotten in the bucket", func() bool {
		if written++; written%3 == 0 && written < 300 {
			a.write(fmt.Sprintf("kept-%03d", written), "") // its present version is never erased
		}
		a.write("note", fmt.Sprint("GOOD", time.Now()))
		time.Sleep(20 * time.Millisecond)
		return gaps() && len(s.checkpoints()) == 2
	})
	a.Stop()

	s.retain = 0
	p, _ := s.starting(t.TempDir(), nil)
	if !strings.Contains(value(p), "GOOD") || p.Committer.Restored().Revision == 0 {
		t.Errorf("with a checkpoint it has %s", value(p))
	}
	p.Stop()
	honest := files(t, filepath.Join(s.folder, "segments"))
	for name := range honest {
		if strings.HasSuffix(name, ".floors") {
			s.put(name, `{"configmaps":{"contents":1000000}}`)
		}
	}
	if err := s.refused(s.options(t.TempDir(), nil)); !strings.Contains(err.Error(), "no replica has written that") {
		t.Errorf("with floors behind the end of the log: %v", err)
	}
	tip := p.Committer.Tip().Revision()
	for name := range honest {
		if strings.HasSuffix(name, ".floors") { // the log goes on
			s.put(name, fmt.Sprintf(`{"configmaps":{"contents":%d}}`, tip))
		}
	}
	if err := s.refused(s.options(t.TempDir(), nil)); !strings.Contains(err.Error(), "no replica of this version has written that") {
		t.Errorf("with floors that the log has not recorded: %v", err)
	}
	for name, text := range honest {
		s.put(name, text)
	}
	floors := filepath.Join(p.Dir, "retention", "floors.json")
	if err := os.WriteFile(floors, fmt.Appendf(nil, `{"configmaps": %d}`, tip), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.refused(s.options(p.Dir, nil)); !strings.Contains(err.Error(), "floors.json and records.json were changed: versions of configmaps are said to be erased") {
		t.Errorf("with files that were changed: %v", err)
	}
	if err := errors.Join(os.Remove(floors), os.Remove(filepath.Join(filepath.Dir(floors), "records.json"))); err != nil {
		t.Fatal(err)
	}
	p, _ = s.starting(p.Dir, nil)
	if !strings.Contains(value(p), "GOOD") {
		t.Errorf("without the files it has %s", value(p))
	}
	p.Stop()
	for file := range s.checkpoints() {
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
	}
	p, _ = s.starting(t.TempDir(), nil)
	if !strings.Contains(value(p), "GOOD") {
		t.Errorf("without a checkpoint it has %s", value(p))
	}
	p.Stop()
	s.forgeSegment()
	dir := t.TempDir()
	for accept := range 3 { // nothing of the first attempt counts for the second
		o := s.options(dir, nil)
		o.Bucket.AcceptUnrecorded = accept == 2
		if err := s.refused(o); !errors.Is(err, retention.ErrOtherPast) {
			t.Errorf("from a forged segment: %v", err)
		}
	}
}
