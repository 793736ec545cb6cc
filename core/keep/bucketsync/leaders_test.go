package bucketsync_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/core/commit"
	"stele.dev/stele/core/keep/bucketsync"
	"stele.dev/stele/core/keep/retention"
	"stele.dev/stele/core/run/plane/planetest"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/archive"
	"stele.dev/stele/eventlog/backup/stores"
	"stele.dev/stele/eventlog/bucket"
	"stele.dev/stele/eventlog/logpb"
	"stele.dev/stele/eventlog/memlog"
	"stele.dev/stele/eventlog/segment"
	"stele.dev/stele/policy"
	"stele.dev/stele/projections/checkpoint"
	"stele.dev/stele/projections/history"
)

// notes and pulses are two kinds: one is kept for ever, the other one for two hours.
var (
	notes  = schema.GroupResource{Resource: "configmaps"}
	pulses = schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}
)

const leadersBundle = `package test
import "stele.dev/policy"
bundle: policy.#Bundle & {cluster: "test", history: retention: kinds: "leases.coordination.k8s.io": {history: "2h", records: "6h"}}
`

var errFault = errors.New("injected fault")

// seeds returns the seeds of the random schedules that a test tries: STELE_LEADERS_SEEDS of them from STELE_LEADERS_FROM on.
// 432 is always among them: it fails if a leader does not adopt what another one has erased.
func seeds(t *testing.T) (list []uint64) {
	from, n := uint64(540), uint64(8) // 544 once found a fault
	for name, v := range map[string]*uint64{"STELE_LEADERS_FROM": &from, "STELE_LEADERS_SEEDS": &n} {
		if text := os.Getenv(name); text != "" {
			var err error
			if *v, err = strconv.ParseUint(text, 10, 64); err != nil {
				t.Fatal(name, err)
			}
		}
	}
	for i := range n {
		list = append(list, from+i)
	}
	return append(list, 432)
}

// Leases are advice, so two replicas may lead at once. They write, seal, store, trim, erase and remove by turns, and in the
// middle of each other's calls of an object store that fails, loses answers, and does later what it has not confirmed.
//
//   - What was acknowledged is read at its revision, unless the policy lets it be erased.
//   - What a replica has erased, it does not show again; nor does a new one, by what the bucket has had.
//   - A name in the bucket has one content for ever.
//   - What has left the log's store is in the bucket, whole, and two checkpoints from which a new replica can start.
func TestTwoLeadersShareABucket(t *testing.T) {
	for _, seed := range seeds(t) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			w := newWorld(t, seed)
			defer w.close()
			for i := range 150 {
				turn := w.pick(2)
				if w.strangers && w.pick(40) > 0 {
					turn = i / 70 % 2 // the other one is paused
				}
				w.act(w.leaders[turn])
				w.check()
			}
			w.settle()
		})
	}
}

// Between the fetch of segments and the search for the record of a checkpoint another replica moves on: what the search needs is in
// the bucket only.
func TestAStartGoesOnWhenTheLogIsTrimmedMeanwhile(t *testing.T) {
	w := newWorld(t, 1)
	defer w.close()
	w.faults, w.strangers = false, true
	running, starting := w.leaders[0], w.leaders[1]
	moved := false
	moveOn := func() {
		for range 40 {
			w.must(running.write())
		}
		w.must(running.checkpoint())
		w.must(running.seal())
		w.must(running.syncer.Sync(t.Context()))
		before := len(w.store.Batches())
		w.must(running.trim())
		moved = len(w.store.Batches()) < before
	}
	moveOn()
	starting.before = moveOn
	moved = false
	starting.restart(true)
	if !moved || starting.before != nil {
		t.Fatal("the log was not trimmed while the replica started")
	}
	w.must(starting.searched)
	w.check()
}

// A former version has erased a part of the past, and the log has no record of it.
func TestANewReplicaDoesNotBeginFromGapsWithoutARecord(t *testing.T) {
	w := newWorld(t, 1)
	defer w.close()
	w.faults, w.strangers = false, true
	gaps := func(i segment.Info) bool { return i.Gaps() }
	for l := w.leaders[0]; !slices.ContainsFunc(l.archive.Segments(), gaps); {
		for range 20 {
			w.must(l.write())
		}
		w.must(l.checkpoint())
		w.must(l.seal())
		w.must(l.syncer.Sync(t.Context()))
		w.must(l.eraser.Pass(t.Context()))
		w.must(l.syncer.Sync(t.Context()))
	}
	w.unrecorded = true
	l := w.leaders[1]
	l.close()
	l.dir = w.folder()
	for range 2 { // nothing of the first attempt counts for the second
		if err := l.open(); err == nil || !strings.Contains(err.Error(), "the log has no record of what they were") {
			t.Errorf("%v", err)
		}
		l.archive.Close()
	}
	w.unrecorded = false
	l.restart(true)
	w.check()
}

// version is a version of an object in the model.
type version struct {
	revision uint64
	deleted  bool
	payload  string
}

type object struct {
	schema.GroupResource
	name string
}

// world is a log, its bucket, two leaders, and a model of all that was ever written.
type world struct {
	t          *testing.T
	unrecorded bool // the log has not recorded what was erased
	policy     *policy.Policy
	store      memlog.Store
	shared     *shared
	// honest reads the bucket without faults.
	honest  *bucket.Bucket
	leaders [2]*leader
	model   map[object][]version
	written []written // in the order of revisions

	mu     sync.Mutex // guards what follows
	random *rand.Rand
	clock  time.Time
	faults bool
	// strangers is set if the leaders do not know of each other: one may trim and erase what the other one has not applied.
	strangers bool

	generations map[string]uint32          // the newest generation of each range of revisions that was in the bucket
	contents    map[string]map[uint64]bool // the revisions with contents in the segment that was chosen last
	read        map[string]bool            // segments whose files were read in full
}

type written struct {
	revision uint64
	at       time.Time
}

func newWorld(t *testing.T, seed uint64) *world {
	w := &world{t: t, random: rand.New(rand.NewPCG(seed, 7)), clock: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), model: map[object][]version{},
		generations: map[string]uint32{}, contents: map[string]map[uint64]bool{}, read: map[string]bool{}}
	form, _ := planetest.Compile(t, leadersBundle).Form.Encode()
	var err error
	w.policy, err = planetest.Load(form)
	w.must(err)
	w.shared = &shared{w: w, files: map[string][]byte{}, ever: map[string][32]byte{}}
	for i := range w.leaders {
		w.leaders[i] = &leader{w: w, dir: w.folder(), floor: map[schema.GroupResource]uint64{}}
		w.must(w.leaders[i].open())
	}
	w.honest, err = bucket.Open(t.Context(), bucket.Options{Store: &view{w.shared, nil}, Place: "bucket", Log: w.leaders[0].log})
	w.must(err)
	w.faults, w.strangers = true, seed%3 == 0
	return w
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// folder returns a new folder, in memory if there is such a file system.
func (w *world) folder() string {
	dir, err := os.MkdirTemp("/dev/shm", "leaders")
	if err != nil {
		return w.t.TempDir()
	}
	w.t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func (w *world) close() {
	for _, l := range w.leaders {
		l.close()
	}
}

func (w *world) now() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.clock
}

// chance is true in one of n cases.
func (w *world) chance(n int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.random.IntN(n) == 0
}

func (w *world) pick(n int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.random.IntN(n)
}

// act lets a leader do something at random.
func (w *world) act(l *leader) {
	w.t.Helper()
	if !l.take() {
		return
	}
	defer l.leave()
	var err error
	what := w.pick(20)
	switch what {
	case 0, 1, 2, 3, 4, 5, 6:
		err = l.write()
	case 7, 8, 9:
		err = l.seal()
	case 10, 11, 12:
		err = l.syncer.Sync(w.t.Context())
	case 13, 14:
		err = l.trim()
	case 15:
		err = l.checkpoint()
	case 16, 17:
		err = l.erase()
	case 18:
		w.mu.Lock()
		w.clock = w.clock.Add(time.Duration(w.random.IntN(60)) * time.Minute)
		w.mu.Unlock()
	case 19:
		if w.chance(3) {
			l.restart(w.chance(3))
		}
	}
	l.tolerate(what, err)
}

// tolerate fails if an error is none that a fault can cause.
func (l *leader) tolerate(what int, err error) {
	l.w.t.Helper()
	switch damaged := (*segment.DamagedError)(nil); {
	case errors.Is(err, eventlog.ErrOvertaken):
		l.restart(false)
	case errors.Is(err, eventlog.ErrDiverged), errors.As(err, &damaged):
		l.w.t.Fatalf("action %d: %v", what, err)
	}
}

// shared is the object store. It keeps the contents that names ever had.
type shared struct {
	w *world

	mu    sync.Mutex
	files map[string][]byte
	ever  map[string][32]byte
	later []func() // what it does some time after it has returned an error
}

// view is the object store as a leader sees it, with faults; without a leader, as it is.
type view struct {
	*shared
	l *leader
}

var _ stores.Remover = (*view)(nil)

// between runs before each call of a leader: the other one may come first, and what was not confirmed may be done.
func (v *view) between() (fault int) {
	if v.l == nil || !v.w.faults {
		return 0
	}
	other := v.w.leaders[0]
	if other == v.l {
		other = v.w.leaders[1]
	}
	if other != nil && v.l.acting() && !v.w.strangers && v.w.chance(5) {
		v.w.act(other)
	}
	if v.w.chance(4) {
		v.mu.Lock()
		later := v.later
		v.later = nil
		v.mu.Unlock()
		for _, do := range later {
			do()
		}
	}
	if fault = v.w.pick(40); fault > 3 {
		return 0
	}
	return fault
}

// faulty does something that changes the store: at once, or not, or later, or without an answer.
func (v *view) faulty(do func()) error {
	switch v.between() {
	case 1:
		return errFault
	case 2:
		do()
		return errFault
	case 3:
		v.mu.Lock()
		v.later = append(v.later, do)
		v.mu.Unlock()
		return errFault
	}
	do()
	return nil
}

func (v *view) Put(_ context.Context, name string, content io.ReaderAt, size int64) error {
	text, err := io.ReadAll(io.NewSectionReader(content, 0, size))
	if err != nil {
		return err
	}
	return v.faulty(func() { v.put(name, text) })
}

func (s *shared) put(name string, text []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sum := sha256.Sum256(text)
	if was, is := s.ever[name]; is && was != sum && !strings.HasSuffix(name, ".floors") { // floors may be told by one that knows more
		s.w.t.Errorf("%s has had another content", name)
	}
	s.ever[name], s.files[name] = sum, text
}

func (v *view) Remove(_ context.Context, name string) error {
	return v.faulty(func() {
		v.mu.Lock()
		defer v.mu.Unlock()
		delete(v.files, name)
	})
}

func (v *view) Open(_ context.Context, name string) (io.ReadCloser, error) {
	fault := v.between()
	v.mu.Lock()
	defer v.mu.Unlock()
	text, is := v.files[name]
	switch {
	case fault == 1:
		return nil, errFault
	case !is:
		return nil, fs.ErrNotExist
	case fault > 1:
		return io.NopCloser(io.MultiReader(bytes.NewReader(text[:len(text)/2]), failing{})), nil
	}
	return io.NopCloser(bytes.NewReader(text)), nil
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errFault }

func (v *view) List(_ context.Context, prefix string) (list []stores.Entry, err error) {
	if v.between() > 0 {
		return nil, errFault
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	for name, text := range v.files {
		if strings.HasPrefix(name, prefix) {
			list = append(list, stores.Entry{Name: name, Size: int64(len(text))})
		}
	}
	slices.SortFunc(list, func(a, b stores.Entry) int { return strings.Compare(a.Name, b.Name) })
	return list, nil
}

// leader is a replica that leads. Its parts are wired as in package plane.
type leader struct {
	searched error  // of the last search for a record
	before   func() // runs once, before a start looks for the record of a checkpoint; nil for nothing
	w        *world
	dir      string
	busy     sync.Mutex
	log      *eventlog.Log
	archive  *archive.Archive
	syncer   *bucketsync.Syncer
	folder   *checkpoint.Folder
	history  *history.Store
	eraser   *retention.Eraser
	tip      *commit.Tip
	stop     func()
	floor    map[schema.GroupResource]uint64 // what it has shown as erased
}

func (l *leader) take() bool { return l.busy.TryLock() }
func (l *leader) leave()     { l.busy.Unlock() }
func (l *leader) acting() bool {
	if l.busy.TryLock() {
		l.busy.Unlock()
		return false
	}
	return true
}

func (l *leader) path(name string) string { return filepath.Join(l.dir, name) }

// open starts the replica in its folder.
func (l *leader) open() (err error) {
	ctx := l.w.t.Context()
	if l.log, err = eventlog.Open(ctx, l.w.store.Open(nil), eventlog.Options{Clock: l.w.now}); err != nil {
		return err
	}
	if l.archive, err = archive.Open(archive.Options{Dir: l.path("segments"), Log: l.log.ID(), SegmentRevisions: 6}); err != nil {
		return err
	}
	l.log.SetArchive(l.archive)
	shared, err := bucket.Open(ctx, bucket.Options{Store: &view{l.w.shared, l}, Place: "bucket", Log: l.log, Patience: stores.Patience{Attempts: 2, Pause: time.Microsecond}})
	if err != nil {
		return err
	}
	l.syncer = bucketsync.New(bucketsync.Options{Bucket: shared, Log: l.log, Archive: l.archive, Dir: l.path("fetching"),
		Recorded: l.readBack,
		Past: func(ctx context.Context, segments []segment.Info) (bool, error) {
			if l.w.unrecorded {
				return false, nil
			}
			return retention.CheckPast(ctx, l.log, segments)
		},
		Adopt: func(ctx context.Context, floors bucket.Floors) error {
			if err := retention.CheckRecorded(ctx, l.log, reached(floors)); err != nil {
				return err
			}
			return retention.RaiseFiles(ctx, l.path(retention.Folder), l.archive.Segments(), reached(floors), l.log)
		}})
	l.archive.FillWith(l.syncer.Fill)
	if err := l.syncer.Start(ctx, l.path("checkpoints")); err != nil {
		return err
	}
	return l.openProjections(ctx)
}

// readBack reads the log down to a revision, as the search for the record of a checkpoint does.
func (l *leader) readBack(ctx context.Context, revision uint64, _ checkpoint.Hash) error {
	if before := l.before; before != nil {
		l.before = nil
		before()
	}
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	for from := uint64(math.MaxInt64); from > revision; {
		batches, err := l.log.Back(ctx, from, 2)
		l.searched = err
		if err != nil || len(batches) == 0 {
			return err
		}
		from = batches[len(batches)-1].First - 1
	}
	return nil
}

func (l *leader) openProjections(ctx context.Context) (err error) {
	if l.folder, err = checkpoint.Open(l.path("checkpoints"), nil, nil); err != nil {
		return err
	}
	revisions, err := l.folder.Revisions()
	if err != nil {
		return err
	}
	for _, revision := range revisions {
		if _, err := l.folder.Verify(ctx, revision, 0, nil); err != nil {
			return err
		}
		l.folder.Record(revision)
	}
	if l.history, err = history.Open(history.Options{Dir: l.path("history"), Log: l.log, Start: l.log.Start()}); err != nil {
		return err
	}
	running, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = l.history.Run(running) }()
	l.stop = func() {
		cancel()
		<-ended
		l.history.Close()
	}
	l.tip = &commit.Tip{Head: l.log.Start(), Policy: l.w.policy}
	if err := l.catchUp(); err != nil {
		return err
	}
	if err := os.MkdirAll(l.path(retention.Folder), 0o700); err != nil {
		return err
	}
	begun := l.w.now()
	l.eraser, err = retention.New(retention.Options{
		Tip: func() *commit.Tip { return l.tip }, Log: l.log, Values: l.log, Archive: l.archive, History: l.history, Dir: l.path(retention.Folder), Record: l.record,
		Covered: func() uint64 { return min(l.folder.Covered(), l.syncer.CheckpointsCovered(), l.applied()) },
		Now:     l.w.now, Elapsed: func() time.Duration { return l.w.now().Sub(begun) },
	})
	if err != nil {
		return err
	}
	if err := l.eraser.Restore(ctx); err != nil {
		return err
	}
	return l.syncer.Use(ctx, bucketsync.Source{
		Checkpoints: l.folder,
		Floors: func() bucket.Floors {
			floors := bucket.Floors{}
			for kind, reached := range l.eraser.Reached() {
				floors[kind] = bucket.Floor{Contents: reached.Contents, Records: reached.Records}
			}
			return floors
		},
		Adopt: func(ctx context.Context, floors bucket.Floors) error {
			for kind, f := range floors {
				if erased := max(f.Contents, f.Records); erased > l.tip.Revision() {
					return fmt.Errorf("changes of %s are erased up to revision %d, and this one has applied %d: %w", kind, erased, l.tip.Revision(), eventlog.ErrOvertaken)
				}
			}
			if err := retention.CheckRecorded(ctx, l.log, reached(floors)); err != nil {
				return err
			}
			return l.eraser.Adopt(ctx, reached(floors))
		},
	})
}

func reached(floors bucket.Floors) map[string]retention.Reached {
	all := map[string]retention.Reached{}
	for kind, f := range floors {
		all[kind] = retention.Reached{Contents: f.Contents, Records: f.Records}
	}
	return all
}

// applied is the revision that both leaders have applied, or this one alone if they do not know of each other.
func (l *leader) applied() uint64 {
	least := l.tip.Revision()
	for _, l := range l.w.leaders {
		if !l.w.strangers && l != nil && l.tip != nil {
			least = min(least, l.tip.Revision())
		}
	}
	return least
}

func (l *leader) close() {
	if l.stop != nil {
		l.stop()
		l.stop = nil
	}
	l.archive.Close()
}

// restart stops the replica and starts it again, until that succeeds; with an empty folder if it has lost its own.
func (l *leader) restart(lost bool) {
	l.w.t.Helper()
	l.close()
	if lost {
		l.dir, l.floor = l.w.folder(), map[schema.GroupResource]uint64{}
	}
	var err error
	for range 100 {
		if err = l.open(); err == nil {
			return
		}
		if !errors.Is(err, errFault) && !bucket.Gone(err) {
			break
		}
		if l.stop != nil {
			l.close()
		}
	}
	l.w.t.Fatalf("a replica does not start: %v", err)
}

// catchUp moves the tip to the end of the log.
func (l *leader) catchUp() error {
	for {
		more, err := l.log.CatchUp(l.w.t.Context(), l.tip.Head)
		if err != nil || len(more) == 0 {
			return err
		}
		l.advance(more[len(more)-1])
	}
}

func (l *leader) advance(b *eventlog.Batch) {
	l.tip = &commit.Tip{Head: b.Head(), Time: b.Time, Policy: l.w.policy}
}

// record appends what the log is to know before a part of the past is erased.
func (l *leader) record(ctx context.Context, is *logpb.PastErased) error {
	entry, err := eventlog.Encode(&eventlog.Event{Meta: &logpb.Metadata{Type: logpb.Type_TYPE_PAST_ERASED, Skippable: true, Detail: &logpb.Metadata_PastErased{PastErased: is}}})
	if err != nil {
		return err
	}
	for {
		if err := l.catchUp(); err != nil {
			return err
		}
		won, _, err := l.log.Append(ctx, l.tip.Head, eventlog.NewDraft([]*eventlog.Entry{entry}))
		if err != nil {
			return err
		}
		if won != nil {
			l.w.written = append(l.w.written, written{won.Last(), won.Time})
			l.advance(won)
			return nil
		}
	}
}

// write changes one to three objects in one batch.
func (l *leader) write() error {
	w := l.w
	if err := l.catchUp(); err != nil {
		return err
	}
	w.mu.Lock()
	w.clock = w.clock.Add(time.Duration(1+w.random.IntN(15)) * time.Minute)
	w.mu.Unlock()
	changed := map[object]version{}
	var entries []*eventlog.Entry
	for revision := l.tip.Revision() + 1; len(entries) < 1+w.pick(3); revision++ {
		o := object{[]schema.GroupResource{notes, pulses, pulses}[w.pick(3)], fmt.Sprint("o-", w.pick(4))}
		if _, double := changed[o]; double {
			break
		}
		v := version{revision: revision}
		e := &eventlog.Event{Meta: &logpb.Metadata{Type: logpb.Type_TYPE_CREATED, Object: &logpb.Object{
			Group: o.Group, Resource: o.Resource, Namespace: "n", Name: o.name, Uid: "u", Version: "v1", Kind: "K"}}}
		if n := len(w.model[o]); n > 0 && !w.model[o][n-1].deleted {
			e.Meta.Type, e.Meta.PreviousRevision = logpb.Type_TYPE_UPDATED, w.model[o][n-1].revision
			if v.deleted = w.chance(6); v.deleted {
				e.Meta.Type = logpb.Type_TYPE_DELETED
			}
		}
		v.payload = fmt.Sprintf(`{"metadata":{"name":%q,"namespace":"n","uid":"u"},"n":%d}`, o.name, revision)
		e.AddContent(&logpb.Payload{Role: logpb.Role_ROLE_OBJECT}, []byte(v.payload))
		entry, err := eventlog.Encode(e)
		w.must(err)
		entries, changed[o] = append(entries, entry), v
	}
	won, _, err := l.log.Append(w.t.Context(), l.tip.Head, eventlog.NewDraft(entries))
	if err != nil || won == nil {
		return err
	}
	for o, v := range changed {
		w.model[o] = append(w.model[o], v)
	}
	w.written = append(w.written, written{won.Last(), won.Time})
	l.advance(won)
	return nil
}

// seal seals what is complete. What others have sealed, stored and trimmed comes from the bucket.
func (l *leader) seal() error {
	ctx := l.w.t.Context()
	if err := l.catchUp(); err != nil {
		return err
	}
	_, err := l.archive.Seal(ctx, l.log, l.tip.Head)
	if missing := (*eventlog.MissingError)(nil); errors.As(err, &missing) {
		if err = l.archive.Fill(ctx, missing.To); err == nil {
			_, err = l.archive.Seal(ctx, l.log, l.tip.Head)
		}
	}
	return err
}

// trim removes from the log's store what the bucket has and both have applied.
func (l *leader) trim() error {
	upto := min(l.syncer.Covered(), l.applied(), l.archive.Tip().Revision)
	return l.log.Trim(l.w.t.Context(), upto)
}

func (l *leader) checkpoint() error {
	if err := l.catchUp(); err != nil {
		return err
	}
	revision := l.tip.Revision()
	if good := l.folder.Good(); len(good) > 0 && good[0].Revision >= revision {
		return nil
	}
	_, err := l.folder.Write(l.w.t.Context(), revision, 0, func(to checkpoint.Sink) error {
		if err := to.Begin("model", 1); err != nil {
			return err
		}
		return to.Put(fmt.Append(nil, "the state at ", revision))
	})
	l.folder.Record(revision)
	return err
}

func (l *leader) erase() error {
	if !l.syncer.MayErase() {
		return nil
	}
	return l.eraser.Pass(l.w.t.Context())
}

// at returns the payload of the version that was in force at a revision; "" if there was none.
func (w *world) at(o object, revision uint64) string {
	for _, v := range slices.Backward(w.model[o]) {
		if v.revision <= revision {
			if v.deleted {
				return ""
			}
			return v.payload
		}
	}
	return ""
}

// erasable returns the revision up to which the policy lets the past of pulses be erased.
func (w *world) erasable() (revision uint64) {
	for _, x := range w.written {
		if x.at.After(w.now().Add(-2 * time.Hour)) {
			break
		}
		revision = x.revision
	}
	return revision
}

// check compares the bucket and some moments of the past with the model.
func (w *world) check() {
	w.t.Helper()
	w.checkBucket()
	for _, l := range w.leaders {
		l.checkFloors()
		if revision := l.tip.Revision(); revision > 1 {
			l.compare(1+uint64(w.pick(int(revision))), func(err error) bool {
				return errors.Is(err, errFault) || bucket.Gone(err) || errors.Is(err, eventlog.ErrOvertaken) // which the next action meets, too
			})
		}
	}
	if w.t.Failed() {
		w.t.FailNow()
	}
}

// checkFloors fails if a leader shows what it had erased, or has erased what is to be kept.
func (l *leader) checkFloors() {
	l.w.t.Helper()
	for _, r := range []schema.GroupResource{notes, pulses} {
		floor := l.history.OldestOf(r)
		if floor < l.floor[r] {
			l.w.t.Errorf("the past of %v begins at revision %d, and did at %d", r, floor, l.floor[r])
		}
		l.floor[r] = floor
	}
	if l.floor[notes] > 1 || l.floor[pulses] > max(1, l.w.erasable()) {
		l.w.t.Errorf("erased up to %v; notes are kept, and pulses behind revision %d", l.floor, l.w.erasable())
	}
}

// compare compares what the history says at a revision with the model.
func (l *leader) compare(revision uint64, tolerated func(error) bool) {
	l.w.t.Helper()
	ctx := l.w.t.Context()
	report := func(what any, err error) {
		if !tolerated(err) {
			l.w.t.Fatalf("read %v at %d: %v", what, revision, err)
		}
	}
	if err := l.history.Reach(ctx, l.tip.Revision()); err != nil {
		report("the history", err)
		return
	}
	for o := range l.w.model {
		c, err := l.history.Get(ctx, o.GroupResource, "n", o.name, revision)
		if revision < l.history.OldestOf(o.GroupResource) { // asked after the read: meanwhile a segment may have come from the bucket
			continue
		}
		if err != nil {
			report(o, err)
			return
		}
		got := ""
		if c != nil && !c.Deleted {
			got = string(c.Payload)
		}
		if want := l.w.at(o, revision); got != want {
			l.w.t.Errorf("%v at %d is %q, was %q", o, revision, got, want)
		}
	}
}

// checkBucket fails if the bucket lacks what has left the log's store, or has what it had erased.
func (w *world) checkBucket() {
	w.t.Helper()
	content, err := w.honest.List(w.t.Context())
	w.must(err)
	at := uint64(0)
	for _, s := range content.Segments {
		if s.First == at+1 {
			at = s.Last
		}
		span := fmt.Sprintf("%d-%d", s.First, s.Last)
		if s.Generation < w.generations[span] {
			w.t.Errorf("the bucket has generation %d of the revisions %s, and had %d", s.Generation, span, w.generations[span])
		}
		w.generations[span] = s.Generation
		w.checkSegment(span, s)
	}
	for _, l := range w.leaders {
		if erased := l.history.OldestOf(pulses); erased > 1 && (len(content.Checkpoints) < 2 || content.Checkpoints[1].Revision < erased) {
			w.t.Errorf("leases are erased up to revision %d, and a new replica has only the checkpoints %v", erased, content.Checkpoints)
		}
	}
	if batches := w.store.Batches(); len(batches) > 1 && batches[1].First > at+1 && batches[1].First > 2 {
		w.t.Errorf("the log's store begins at revision %d, and the bucket ends at %d", batches[1].First, at)
	}
}

// checkSegment reads a segment of the bucket when it is seen for the first time.
func (w *world) checkSegment(span string, s bucket.Segment) {
	w.t.Helper()
	if w.read[s.Name()+s.Sum] {
		return
	}
	w.read[s.Name()+s.Sum] = true
	path, floors, err := w.honest.FetchSegment(w.t.Context(), s, w.folder())
	w.must(err)
	opened, err := segment.Open(path, nil)
	w.must(err)
	sum, err := hex.DecodeString(s.Sum)
	w.must(err)
	opened.SetSum([32]byte(sum))
	w.must(opened.Verify(w.t.Context()))
	has := map[uint64]bool{}
	for step, err := range opened.Verbatim(w.t.Context(), 0) {
		w.must(err)
		if step.Parts == nil {
			continue
		}
		b, err := step.Parts.Decode()
		w.must(err)
		for _, e := range b.Events {
			has[e.Revision] = e.Content(logpb.Role_ROLE_OBJECT) != nil
		}
	}
	if had, known := w.contents[span]; known {
		for revision, is := range has {
			if kind, replaced := w.replaced(revision); is && !had[revision] && (replaced == 0 || replaced >= floors[kind].Contents) {
				w.t.Errorf("segment %s of the bucket shows the content of revision %d, which an earlier one lacked: floors %v", s.Name(), revision, floors)
			}
		}
	}
	w.contents[span] = has
}

// replaced returns the kind of the object of a revision, and the revision at which its version was replaced; 0 if it was not.
func (w *world) replaced(revision uint64) (kind string, at uint64) {
	for o, versions := range w.model {
		for i, v := range versions {
			if v.revision != revision {
				continue
			}
			if i+1 < len(versions) {
				at = versions[i+1].revision
			}
			return o.GroupResource.String(), at
		}
	}
	return "", 0
}

// settle ends the faults, and fails unless both leaders and a new replica then have everything.
func (w *world) settle() {
	w.t.Helper()
	w.faults = false
	for range 3 {
		for _, l := range w.leaders {
			for _, do := range []func() error{l.seal, func() error { return l.syncer.Sync(w.t.Context()) }, l.checkpoint, l.erase, l.trim} {
				err := do()
				if errors.Is(err, eventlog.ErrOvertaken) {
					l.restart(false)
				} else if err != nil {
					w.t.Errorf("without faults: %v", err)
				}
			}
			w.check()
		}
	}
	w.leaders[0].restart(true) // a new one
	for _, l := range w.leaders {
		w.must(l.catchUp())
		if errs := append(l.archive.Damaged(), l.archive.Verify(w.t.Context())...); errors.Join(errs...) != nil {
			w.t.Error(errs)
		}
		for revision := uint64(2); revision <= l.tip.Revision(); revision++ {
			l.compare(revision, func(error) bool { return false })
		}
	}
	if w.leaders[0].tip.Head != w.leaders[1].tip.Head {
		w.t.Error("the leaders have different logs")
	}
}
