package retention_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/core/commit"
	"stele.dev/stele/core/keep/retention"
	"stele.dev/stele/core/keep/verification"
	"stele.dev/stele/core/run/plane/planetest"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/archive"
	"stele.dev/stele/eventlog/logpb"
	"stele.dev/stele/eventlog/logtest"
	"stele.dev/stele/eventlog/memlog"
	"stele.dev/stele/policy"
	"stele.dev/stele/projections/history"
	"stele.dev/stele/projections/objects"
)

// notes and pulses are two kinds: one is kept for ever, the other one for hours.
var (
	notes  = schema.GroupResource{Resource: "configmaps"}
	pulses = schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}
)

const bundle = `package test
import "stele.dev/policy"
bundle: policy.#Bundle & {cluster: "test", history: retention: kinds: "leases.coordination.k8s.io": {history: "2h", records: "6h"}}
`

// version is a version of an object, as the model of a test remembers it.
type version struct {
	revision, until uint64 // until is the revision at which it was superseded; 0 if it was not
	deleted         bool
	payload         string
}

type object struct {
	schema.GroupResource
	namespace, name string
}

// world is a log with its archive and its history, and a model of all that was ever written.
type world struct {
	t       *testing.T
	dir     string
	policy  *policy.Policy
	clock   time.Time
	begun   time.Time
	store   memlog.Store
	log     *eventlog.Log
	archive *archive.Archive
	history *history.Store
	stop    func()
	tip     *commit.Tip
	model   map[object][]version
	eraser  *retention.Eraser
}

func newWorld(t *testing.T, segmentRevisions uint64) *world {
	t.Helper()
	compiled := planetest.Compile(t, bundle)
	form, _ := compiled.Form.Encode()
	w := &world{t: t, dir: t.TempDir(), clock: begun, begun: begun, model: map[object][]version{}}
	var err error
	if w.policy, err = planetest.Load(form); err != nil {
		t.Fatal(err)
	}
	w.openLog()
	batches, err := w.log.CatchUp(t.Context(), w.log.Start())
	if err != nil {
		t.Fatal(err)
	}
	w.advance(batches[0])
	if w.archive, err = archive.Open(archive.Options{Dir: filepath.Join(w.dir, "segments"), Log: w.log.ID(), SegmentRevisions: segmentRevisions}); err != nil {
		t.Fatal(err)
	}
	w.log.SetArchive(w.archive)
	w.openHistory("history")
	w.eraser = w.newEraser()
	t.Cleanup(func() { w.stop() })
	return w
}

// openLog opens the log, without anything of it in memory.
func (w *world) openLog() {
	w.t.Helper()
	var err error
	if w.log, err = eventlog.Open(w.t.Context(), w.store.Open(nil), eventlog.Options{Clock: func() time.Time { return w.clock }}); err != nil {
		w.t.Fatal(err)
	}
	if w.archive != nil {
		w.log.SetArchive(w.archive)
	}
	if w.tip != nil {
		w.log.Resume(w.tip.Head, w.tip.Time)
	}
}

// restart starts everything again, with the index of the history in a folder.
func (w *world) restart(folder string) {
	w.t.Helper()
	w.openLog()
	w.openHistory(folder)
	w.eraser = w.newEraser()
}

func (w *world) newEraser() *retention.Eraser {
	w.t.Helper()
	e, err := retention.New(retention.Options{
		Tip: func() *commit.Tip { return w.tip }, Log: w.log, Values: w.log, Archive: w.archive, History: w.history, Dir: w.dir, Record: w.record,
		Covered: func() uint64 { return w.tip.Revision() },
		Now:     func() time.Time { return w.clock }, Elapsed: func() time.Duration { return w.clock.Sub(w.begun) },
	})
	if err != nil {
		w.t.Fatal(err)
	}
	if err := e.Restore(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	return e
}

// openHistory opens a history in a folder of the world, which follows the log.
func (w *world) openHistory(folder string) {
	w.t.Helper()
	if w.stop != nil {
		w.stop()
	}
	s, err := history.Open(history.Options{Dir: filepath.Join(w.dir, folder), Log: w.log, Start: w.log.Start()})
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = s.Run(ctx) }()
	w.history = s
	w.stop = func() {
		cancel()
		<-ended
		_ = s.Close()
	}
}

// record appends what the log is to know before a part of the past is erased.
func (w *world) record(ctx context.Context, is *logpb.PastErased) error {
	entry, err := eventlog.Encode(&eventlog.Event{Meta: &logpb.Metadata{Type: logpb.Type_TYPE_PAST_ERASED, Skippable: true, Detail: &logpb.Metadata_PastErased{PastErased: is}}})
	if err != nil {
		return err
	}
	won, _, err := w.log.Append(ctx, w.tip.Head, eventlog.NewDraft([]*eventlog.Entry{entry}))
	if err == nil {
		w.advance(won)
	}
	return err
}

func (w *world) advance(b *eventlog.Batch) {
	w.tip = &commit.Tip{Head: b.Head(), Time: b.Time, Policy: w.policy}
}

// write appends one batch of changes to objects.
func (w *world) write(deleted bool, objects ...object) {
	w.t.Helper()
	var entries []*eventlog.Entry
	revision := w.tip.Revision()
	for _, o := range objects {
		revision++
		versions := w.model[o]
		e := &eventlog.Event{Meta: &logpb.Metadata{Type: logpb.Type_TYPE_CREATED, Object: &logpb.Object{
			Group: o.Group, Resource: o.Resource, Namespace: o.namespace, Name: o.name, Uid: "u", Version: "v1", Kind: "K",
		}}}
		if n := len(versions); n > 0 {
			versions[n-1].until = revision
			if !versions[n-1].deleted {
				e.Meta.Type, e.Meta.PreviousRevision = logpb.Type_TYPE_UPDATED, versions[n-1].revision
			}
		}
		if deleted {
			e.Meta.Type = logpb.Type_TYPE_DELETED
		}
		payload := fmt.Sprintf(`{"metadata":{"name":%q,"namespace":%q,"uid":"u"},"n":%d}`, o.name, o.namespace, revision)
		e.AddContent(&logpb.Payload{Role: logpb.Role_ROLE_OBJECT}, []byte(payload))
		w.model[o] = append(versions, version{revision: revision, deleted: deleted, payload: payload})
		entry, err := eventlog.Encode(e)
		if err != nil {
			w.t.Fatal(err)
		}
		entries = append(entries, entry)
	}
	won, _, err := w.log.Append(w.t.Context(), w.tip.Head, eventlog.NewDraft(entries))
	if err != nil {
		w.t.Fatal(err)
	}
	w.advance(won)
}

// alive reports whether the newest version of an object is not a deletion.
func (w *world) alive(o object) bool {
	versions := w.model[o]
	return len(versions) > 0 && !versions[len(versions)-1].deleted
}

// pass seals what is complete and erases.
func (w *world) pass() {
	w.t.Helper()
	if _, err := w.archive.Seal(w.t.Context(), w.log, w.tip.Head); err != nil {
		w.t.Fatal(err)
	}
	if err := w.eraser.Pass(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
}

// at returns the version that was in force at a revision; nil if there was none.
func (w *world) at(o object, revision uint64) *version {
	for _, v := range slices.Backward(w.model[o]) {
		if v.revision <= revision {
			if v.deleted {
				return nil
			}
			return &v
		}
	}
	return nil
}

// check compares what the history says at a revision with the model, for kinds that keep it.
func (w *world) check(revision uint64) {
	w.t.Helper()
	ctx := w.t.Context()
	if err := w.history.Reach(ctx, w.tip.Revision()); err != nil {
		w.t.Fatal(err)
	}
	want := map[schema.GroupResource][]string{}
	for o := range w.model {
		if revision < w.history.OldestOf(o.GroupResource) {
			continue
		}
		c, err := w.history.Get(ctx, o.GroupResource, o.namespace, o.name, revision)
		if err != nil {
			w.t.Fatalf("get %v at %d: %v", o, revision, err)
		}
		got := ""
		if c != nil && !c.Deleted {
			got = string(c.Payload)
		}
		v := w.at(o, revision)
		if v != nil {
			want[o.GroupResource] = append(want[o.GroupResource], v.payload)
		}
		if v == nil && got != "" || v != nil && got != v.payload {
			w.t.Fatalf("%v at %d is %q, was %v", o, revision, got, v)
		}
	}
	for _, r := range []schema.GroupResource{notes, pulses} {
		if revision < w.history.OldestOf(r) {
			continue
		}
		var got []string
		for c, err := range w.history.List(ctx, r, "", revision) {
			if err != nil {
				w.t.Fatalf("list %v at %d: %v", r, revision, err)
			}
			got = append(got, string(c.Payload))
		}
		slices.Sort(got)
		slices.Sort(want[r])
		if !slices.Equal(got, want[r]) {
			w.t.Fatalf("%v at %d are\n%q, were\n%q", r, revision, got, want[r])
		}
	}
}

// replay folds the log from its beginning, and compares the objects with the model.
func (w *world) replay() {
	w.t.Helper()
	floors, err := retention.ReadFloors(w.dir, w.archive.Segments())
	if err != nil {
		w.t.Fatal(err)
	}
	store := objects.New(0)
	store.MayLack(floors.ByKind())
	w.openLog() // without what it has in memory
	tip, err := commit.Rebuild(w.t.Context(), commit.Options{Log: w.log, Objects: store}, nil, w.tip.Revision(), func() error { return nil })
	if err != nil {
		w.t.Fatal(err)
	}
	alive := 0
	for o := range w.model {
		got, want := tip.Objects.Get(o.GroupResource, o.namespace, o.name), w.at(o, w.tip.Revision())
		if want != nil {
			alive++
		}
		if (got == nil) != (want == nil) || got != nil && (string(got.Payload()) != want.payload || got.Revision != want.revision) {
			w.t.Fatalf("after a replay %v is %+v, was %+v", o, got, want)
		}
	}
	if n := tip.Objects.Len(notes) + tip.Objects.Len(pulses); n != alive {
		w.t.Fatalf("after a replay there are %d objects, were %d", n, alive)
	}
}

// Whatever is written, deleted and created again, and whenever it is erased: what can be read is what was.
func TestWhatIsKeptIsWhatWas(t *testing.T) {
	for seed := range uint64(6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 1))
			w := newWorld(t, 40)
			pick := func() object {
				o := object{notes, fmt.Sprintf("ns-%d", r.IntN(2)), fmt.Sprintf("n-%d", r.IntN(6))}
				if r.IntN(3) > 0 {
					o.GroupResource = pulses
				}
				return o
			}
			for step := range 40 {
				for range 1 + r.IntN(30) {
					w.clock = w.clock.Add(time.Duration(r.IntN(240)) * time.Second)
					a, b := pick(), pick()
					switch {
					case w.alive(a) && r.IntN(8) == 0:
						w.write(true, a)
					case a != b && r.IntN(3) == 0:
						w.write(false, a, b)
					default:
						w.write(false, a)
					}
				}
				w.pass()
				switch r.IntN(8) {
				case 0: // the index is lost
					w.restart(fmt.Sprint("history-", step))
				case 1: // it forgets when it wrote which segment
					w.eraser = w.newEraser()
				}
				if r.IntN(4) == 0 {
					w.replay()
				}
				w.check(w.tip.Revision())
				for range 10 {
					w.check(1 + r.Uint64N(w.tip.Revision()))
				}
			}
			if floor := w.history.OldestOf(pulses); floor == 0 || floor < w.tip.Revision()/4 {
				t.Errorf("the floor of %v is %d of %d", pulses, floor, w.tip.Revision())
			}
			if floor := w.history.OldestOf(notes); floor > 1 {
				t.Errorf("the floor of %v is %d", notes, floor)
			}
			for _, err := range w.archive.Verify(t.Context()) {
				t.Error(err)
			}
			w.openLog() // what it has in memory is older than what was erased
			v := verification.New([]verification.Projection{
				&verification.History{Store: w.history, Log: w.log, Start: w.log.Start(), Dir: filepath.Join(w.dir, "verify")},
			}, prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
			if results, err := v.Verify(t.Context()); err != nil || !results[0].OK() {
				t.Errorf("%+v, %v", results, err)
			}
		})
	}
}

func TestErasedContentsAreGoneFromTheDisk(t *testing.T) {
	w := newWorld(t, 50)
	lease := object{pulses, "kube-node-lease", "a"}
	for range 500 {
		w.clock = w.clock.Add(time.Minute)
		w.write(false, lease)
		w.pass()
	}
	w.pass()
	report := w.eraser.Report(t.Context())
	if len(report.Kinds) != 1 {
		t.Fatalf("%+v", report)
	}
	k := report.Kinds[0]
	// Two hours are 120 versions and six are 360 records; what is not sealed is not counted, and a segment goes as a whole.
	if k.Versions > 120+50 || k.Events > 360+60 || k.Versions < 50 || k.History != "2h0m0s" || k.Rule != "history/retention/kinds/leases.coordination.k8s.io" {
		text, _ := json.Marshal(k)
		t.Errorf("%s", text)
	}
}

// The first segment is written again while an object is present, and not again when its deletion, in a later segment,
// is erased. An index that is made from what is left does not bring it back.
func TestWhatWasDeletedStaysDeletedWhenTheIndexIsLost(t *testing.T) {
	w := newWorld(t, 20)
	gone, other := object{pulses, "a", "gone"}, object{pulses, "a", "other"}
	fill := func(n int) {
		for range n {
			w.clock = w.clock.Add(10 * time.Minute)
			w.write(false, other)
		}
	}
	w.write(false, gone)
	fill(200) // the first segment is far below both floors, and the object is there
	w.pass()
	w.write(true, gone)
	for range 12 { // until the deletion is below both floors
		fill(5)
		w.pass()
	}
	if at := w.archive.Segments()[10]; at.KeptEvents == at.Events {
		t.Fatalf("the segment with the deletion was not erased: %+v", at)
	}
	w.restart("again")
	w.check(w.tip.Revision())
	for revision := w.history.OldestOf(pulses); revision <= w.tip.Revision(); revision++ {
		w.check(revision)
	}
}

// After a start the floors are known at once, and the index of the history may still have to be made again. What it does
// not know yet is not erased.
func TestNothingIsErasedWhileTheIndexIsMadeAgain(t *testing.T) {
	w := newWorld(t, 50)
	lease, still := object{pulses, "kube-node-lease", "a"}, object{pulses, "kube-node-lease", "still"}
	w.write(false, still)
	for range 500 {
		w.clock = w.clock.Add(time.Minute)
		w.write(false, lease)
		w.pass()
	}
	unread, err := history.Open(history.Options{Dir: filepath.Join(w.dir, "unread"), Log: w.log, Start: w.log.Start()})
	if err != nil {
		t.Fatal(err)
	}
	defer unread.Close()
	e, err := retention.New(retention.Options{
		Tip: func() *commit.Tip { return w.tip }, Log: w.log, Archive: w.archive, History: unread, Dir: w.dir, Covered: func() uint64 { return 0 },
		Now: func() time.Time { return w.clock }, Elapsed: func() time.Duration { return w.clock.Sub(w.begun) },
	})
	if err == nil {
		err = e.Restore(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Pass(t.Context()); !errors.Is(err, history.ErrBehind) {
		t.Errorf("a pass: %v", err)
	}
	w.restart("again")
	w.check(w.tip.Revision())
}

// An operator may delete the files of floors, such as damaged ones: what the log has recorded then counts, also in segments of
// which a part was erased.
func TestAStartNeedsNoFilesOfFloors(t *testing.T) {
	w := newWorld(t, 50)
	lease, note := object{pulses, "a", "b"}, object{notes, "a", "b"}
	for range 500 {
		w.clock = w.clock.Add(time.Minute)
		w.write(false, lease)
		w.write(false, note)
		w.pass()
	}
	before := w.eraser.Reached()
	for _, file := range []string{retention.FloorsFile, retention.RecordsFile} {
		if err := os.Remove(filepath.Join(w.dir, file)); err != nil {
			t.Fatal(err)
		}
	}
	raise := map[string]retention.Reached{pulses.String(): {Contents: 1}} // of another replica, before the start
	if err := retention.RaiseFiles(t.Context(), w.dir, w.archive.Segments(), raise, w.log); err != nil {
		t.Fatal(err)
	}
	w.restart("again")
	if got := w.eraser.Reached(); fmt.Sprint(got) != fmt.Sprint(before) {
		t.Errorf("floors are %v, were %v", got, before)
	}
	w.check(w.tip.Revision())
}

// A segment that is damaged stays as it is. The others are erased all the same.
func TestADamagedSegmentDoesNotStopRetention(t *testing.T) {
	w := newWorld(t, 20)
	lease := object{pulses, "a", "b"}
	for range 100 {
		w.clock = w.clock.Add(10 * time.Minute)
		w.write(false, lease)
	}
	if _, err := w.archive.Seal(t.Context(), w.log, w.tip.Head); err != nil {
		t.Fatal(err)
	}
	if err := w.history.Reach(t.Context(), w.tip.Revision()); err != nil {
		t.Fatal(err)
	}
	damaged := w.archive.Segments()[1]
	file := filepath.Join(w.dir, "segments", damaged.Files[0].Name)
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	content[len(content)/3] ^= 1
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
	w.openLog()
	w.eraser = w.newEraser()
	if err := w.eraser.Pass(t.Context()); err == nil || !strings.Contains(err.Error(), damaged.Files[0].Name) {
		t.Errorf("it said %v, and not that %s is damaged", err, damaged.Files[0].Name)
	}
	if third := w.archive.Segments()[2]; third.KeptEvents == third.Events {
		t.Errorf("nothing of the segment behind it was erased: %+v", third)
	}
}

// Whoever can write to the segments changes a version that is kept before a gap. No start serves it, and nothing is recorded of it.
func TestAPastThatWasChangedIsNotServed(t *testing.T) {
	for _, recorded := range []bool{true, false} {
		w := newWorld(t, 50)
		if !recorded {
			w.eraser.Record = nil // as a former version
		}
		lease := object{pulses, "a", "b"}
		for i := range 600 {
			w.clock = w.clock.Add(time.Minute)
			if i%20 == 0 {
				w.write(false, object{notes, "a", fmt.Sprintf("note-%03d", i)})
			}
			w.write(false, lease)
			if i%50 == 49 {
				w.pass()
			}
		}
		first := w.archive.Segments()[0]
		if first.KeptBatches > 10 {
			t.Fatalf("nothing is forgotten: %+v", first)
		}
		atOnce := func() error { return nil }
		if err := w.eraser.Verify(t.Context(), atOnce); (err == nil) != recorded {
			t.Errorf("the true past is verified: %v", err)
		}
		logtest.Forge(t, filepath.Join(w.dir, "segments", first.Files[0].Name), "note-020", "NOTE-020")
		if err := w.eraser.Verify(t.Context(), atOnce); err == nil || !strings.Contains(err.Error(), first.Files[0].Name) {
			t.Errorf("the changed past is verified: %v", err)
		}
		if err := os.Remove(filepath.Join(w.dir, "segments", "SHA256SUMS")); err != nil {
			t.Fatal(err)
		}
		var err error
		if w.archive, err = archive.Open(archive.Options{Dir: filepath.Join(w.dir, "segments"), Log: w.log.ID(), SegmentRevisions: 50}); err != nil {
			t.Fatal(err)
		}
		w.openLog()
		said := &strings.Builder{}
		o := w.eraser.Options
		o.Archive, o.Log, o.Record, o.Logger = w.archive, w.log, w.record, slog.New(slog.NewTextHandler(said, nil))
		e, err := retention.New(o)
		if err != nil {
			t.Fatal(err)
		}
		err = e.Restore(t.Context())
		if recorded != errors.Is(err, retention.ErrOtherPast) || !recorded && err != nil {
			t.Errorf("a start of a changed past: %v", err)
		}
		if recorded {
			if err := e.Pass(t.Context()); !errors.Is(err, retention.ErrOtherPast) {
				t.Errorf("a pass: %v", err)
			}
			continue
		}
		if !strings.Contains(said.String(), "cannot be compared with the log") {
			t.Errorf("it says nothing: %s", said)
		}
		if err := e.Pass(t.Context()); err != nil {
			t.Fatal(err)
		}
		if bound, err := retention.CheckPast(t.Context(), w.log, w.archive.Segments()); err != nil || !bound {
			t.Errorf("after a pass it is bound: %v, %v", bound, err)
		}
	}
}

// What is recorded does not make the log grow while nothing is erased.
func TestNothingIsRecordedWhileNothingIsErased(t *testing.T) {
	w := newWorld(t, 50)
	for range 300 {
		w.clock = w.clock.Add(time.Minute)
		w.write(false, object{pulses, "a", "b"})
	}
	w.pass()
	for range 100 { // the log is idle, and time passes
		w.clock = w.clock.Add(10 * time.Minute)
		w.pass()
	}
	settled := w.tip.Revision()
	for range 100 {
		w.clock = w.clock.Add(10 * time.Minute)
		w.pass()
	}
	if w.tip.Revision() != settled {
		t.Errorf("an idle log has grown by %d events", w.tip.Revision()-settled)
	}
	w.eraser = w.newEraser()
	w.pass()
	if w.tip.Revision() != settled {
		t.Errorf("a start has added %d events", w.tip.Revision()-settled)
	}
}
