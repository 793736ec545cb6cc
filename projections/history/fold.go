package history

import (
	"encoding/binary"
	"encoding/json"
	"iter"
	"slices"

	"github.com/cockroachdb/pebble/v2"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/logpb"
)

const (
	// A base of a scope is made after baseFactor changes for each object that exists, and at least after
	// leastBase. So a list looks at no more than baseFactor changes for each object in it, which is little
	// beside reading the object.
	baseFactor = 4
	leastBase  = 256
	// sampleEvery is how many revisions apart the time index has entries.
	sampleEvery = 256
	// scopesKept limits the scopes whose counts stay in memory.
	scopesKept = 10_000
)

// fold adds batches of the log to the index. It decides nothing, so that the same log always makes the
// same keys: where a base is made follows from the changes alone. It is used by one goroutine.
type fold struct {
	*index
	scopes  map[string]*scope
	sampled uint64 // the newest revision in the time index

	// What is not in the index yet.
	batch   *pebble.Batch
	head    eventlog.Head
	epochs  []Epoch
	clocks  eventlog.ClockSets
	added   map[schema.GroupResource]resource
	touched []*scope
	key     []byte // a buffer
	value   []byte
}

// scope has the counts of a scope, and the changes in it that are not in the index yet.
type scope struct {
	change
	pending []entry
}

// entry is one change in a scope.
type entry struct {
	revision uint64
	change
}

func newFold(x *index) (*fold, error) {
	f := &fold{index: x, scopes: map[string]*scope{}}
	f.reset()
	return f, x.read(prefixOptions([]byte{timeKey}), func(it *pebble.Iterator) error {
		if it.Last() {
			f.sampled = revisionOf(it.Key())
		}
		return nil
	})
}

// reset forgets what is not in the index yet.
func (f *fold) reset() {
	v := f.view.Load()
	f.head, f.epochs, f.clocks, f.added, f.touched = v.head, v.epochs, v.clocks, nil, f.touched[:0]
	f.batch = f.db.NewBatch()
}

// add adds a batch of the log.
func (f *fold) add(b *eventlog.Batch) error {
	if f.sampled == 0 || b.First/sampleEvery > f.sampled/sampleEvery {
		if err := f.batch.Set(keyOfTime(b.First), binary.BigEndian.AppendUint64(nil, uint64(b.Time.UnixNano())), nil); err != nil {
			return err
		}
		f.sampled = b.First
	}
	for e, i := range eachChange(b.Events) {
		if err := f.event(e, i); err != nil {
			return err
		}
	}
	f.head = b.Head()
	return nil
}

// event adds change i of an event.
func (f *fold) event(e *eventlog.Event, i int) error {
	revision := e.Revision + uint64(i)
	if started := e.Meta.GetEpochStarted(); started != nil {
		f.epochs = append(slices.Clip(f.epochs), Epoch{started.GetLostFrom(), started.GetNext()})
		return f.setJSON(epochsName, f.epochs)
	}
	if e.Meta.GetClockSet() != nil {
		f.clocks = append(slices.Clip(f.clocks), eventlog.ClockSet{Revision: revision, Time: e.Time})
		return f.setJSON(clocksName, f.clocks)
	}
	object, previous := objectOf(e.Meta, i)
	if object == nil {
		return nil
	}
	number, err := f.number(resourceOf(object))
	if err != nil {
		return err
	}
	deleted := deletes(e.Meta) || superseded(e)
	f.key = appendRevision(appendVersions(f.key[:0], number, object.GetName(), object.GetNamespace()), ^revision)
	f.value = append(f.value[:0], 0)
	if deleted {
		f.value[0] = 1
	}
	if err := f.batch.Set(f.key, f.value, nil); err != nil {
		return err
	}
	if err := f.change(appendScope(f.key[:0], number, ""), revision, previous, deleted); err != nil {
		return err
	}
	if object.GetNamespace() == "" {
		return nil
	}
	return f.change(appendScope(f.key[:0], number, object.GetNamespace()), revision, previous, deleted)
}

func (f *fold) setJSON(key []byte, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return f.batch.Set(key, text, nil)
}

// number returns the number of a resource. A new resource gets the next one.
func (f *fold) number(r schema.GroupResource) (uint64, error) {
	known := f.view.Load().resources
	if info, found := known[r]; found {
		return info.number, nil
	}
	if info, found := f.added[r]; found {
		return info.number, nil
	}
	if f.added == nil {
		f.added = map[schema.GroupResource]resource{}
	}
	number := uint64(len(known) + len(f.added))
	f.added[r] = resource{number: number}
	return number, f.batch.Set(keyOfResource(r), binary.AppendUvarint(nil, number), nil)
}

// change adds a change to a scope. When enough have come since the last base, it makes another.
func (f *fold) change(in []byte, revision, previous uint64, deleted bool) error {
	s, found := f.scopes[string(in)]
	if !found {
		var err error
		if s, err = f.loadScope(in); err != nil {
			return err
		}
		f.scopes[string(in)] = s
	}
	s.deleted, s.previous = deleted, previous
	switch {
	case !deleted && previous == 0:
		s.live++
	case deleted && previous != 0 && s.live > 0:
		s.live--
	}
	s.since++
	s.pending = append(s.pending, entry{revision, s.change})
	if len(s.pending) == 1 {
		f.touched = append(f.touched, s)
	}
	if s.since >= max(leastBase, baseFactor*s.live) {
		if err := f.makeBase(slices.Clone(in), revision, s); err != nil {
			return err
		}
	}
	f.value = s.append(f.value[:0], revision)
	return f.batch.Set(newKey(changeKey, in, revision), f.value, nil)
}

func (f *fold) loadScope(in []byte) (*scope, error) {
	s := new(scope)
	return s, f.read(prefixOptions(newKey(changeKey, in, 0)[:1+len(in)]), func(it *pebble.Iterator) (err error) {
		if it.Last() {
			s.change, err = parseChange(revisionOf(it.Key()), it.Value())
		}
		return err
	})
}

// baseChunk is how many revisions one key of a base has.
const baseChunk = 8 << 10

// makeBase writes which objects exist in a scope, after its last change. A base has at least one key.
func (f *fold) makeBase(in []byte, revision uint64, s *scope) error {
	var live []uint64
	if err := f.read(nil, func(it *pebble.Iterator) (err error) {
		live, err = living(it, in, revision, s.pending)
		return err
	}); err != nil {
		return err
	}
	s.since, s.live = 0, uint64(len(live))
	chunk := uint16(0)
	for part := range slices.Chunk(live, baseChunk) {
		if err := f.batch.Set(keyOfBase(in, revision, chunk), appendRevisions(nil, part), nil); err != nil {
			return err
		}
		chunk++
	}
	if len(live) > 0 {
		return nil
	}
	return f.batch.Set(keyOfBase(in, revision, 0), nil, nil)
}

// full reports whether enough has been added to commit it.
func (f *fold) full() bool { return f.batch.Len() >= atOnceBytes }

// commit writes to the index what was added, with the position in the log, and makes it visible.
func (f *fold) commit() error {
	if f.head == f.view.Load().head {
		return nil
	}
	if err := f.batch.Set(cursorName, f.head.Encode(), nil); err != nil {
		return err
	}
	if err := f.db.Apply(f.batch, pebble.NoSync); err != nil {
		return f.bad(err)
	}
	if err := f.batch.Close(); err != nil {
		return err
	}
	f.update(func(v *view) {
		v.head, v.epochs, v.clocks = f.head, f.epochs, f.clocks
		for r, info := range f.added {
			v.set(r, info)
		}
	})
	if len(f.scopes) > scopesKept {
		clear(f.scopes)
	}
	for _, s := range f.touched {
		s.pending = nil
	}
	f.reset()
	return nil
}

// living returns the revisions of the objects that exist in a scope at a revision, in their order: those of
// the newest base before, with the changes since. pending are changes that are not in the index yet.
func living(it *pebble.Iterator, in []byte, at uint64, pending []entry) ([]uint64, error) {
	live, from, err := newestBase(it, in, at)
	if err != nil {
		return nil, err
	}
	var came, went []uint64
	change := func(e entry) {
		if !e.deleted {
			came = append(came, e.revision)
		}
		if e.previous != 0 {
			went = append(went, e.previous)
		}
	}
	for more := it.SeekGE(newKey(changeKey, in, from+1)); more && isOf(it.Key(), changeKey, in) && revisionOf(it.Key()) <= at; more = it.Next() {
		revision := revisionOf(it.Key())
		c, err := parseChange(revision, it.Value())
		if err != nil {
			return nil, err
		}
		change(entry{revision, c})
	}
	for _, e := range pending {
		change(e)
	}
	slices.Sort(went)
	return without(append(live, came...), went), nil // what came is newer than the base
}

// without removes from ascending revisions those that are in went, which ascends too.
func without(all, went []uint64) []uint64 {
	kept := all[:0]
	for _, r := range all {
		for len(went) > 0 && went[0] < r {
			went = went[1:]
		}
		if len(went) == 0 || went[0] != r {
			kept = append(kept, r)
		}
	}
	return kept
}

// newestBase reads the newest base of a scope up to a revision, and returns its revision; 0 if there is none.
func newestBase(it *pebble.Iterator, in []byte, at uint64) (live []uint64, revision uint64, err error) {
	if !it.SeekLT(newKey(baseKey, in, at+1)) || !isOfBase(it.Key(), in) {
		return nil, 0, nil
	}
	revision = revisionOf(it.Key()[:len(it.Key())-2])
	for more := it.SeekGE(newKey(baseKey, in, revision)); more && isOfBase(it.Key(), in) && revisionOf(it.Key()[:len(it.Key())-2]) == revision; more = it.Next() {
		if live, err = parseRevisions(live, it.Value()); err != nil {
			return nil, 0, err
		}
	}
	return live, revision, nil
}

// changesOf returns the number of changes in an event.
func changesOf(e *eventlog.Event) int {
	if bulk := e.Meta.GetBulk(); bulk != nil {
		return len(bulk.GetObjects())
	}
	return 1
}

// objectOf returns the object of an event's change i, and the revision of its previous version.
func objectOf(m *logpb.Metadata, i int) (object *logpb.Object, previous uint64) {
	if bulk := m.GetBulk(); bulk != nil {
		return bulk.GetObjects()[i].GetObject(), bulk.GetObjects()[i].GetPreviousRevision()
	}
	return m.GetObject(), m.GetPreviousRevision()
}

// superseded reports whether retention has erased the content of an event. It does so only once another change of the
// object has superseded it, and that one may be erased as a whole: so the object does not exist after this event, unless
// a later event says so.
func superseded(e *eventlog.Event) bool {
	return e.Content(logpb.Role_ROLE_OBJECT) == nil
}

func deletes(m *logpb.Metadata) bool {
	return m.GetBulk() != nil || m.GetType() == logpb.Type_TYPE_DELETED
}

// eachChange yields each change of events: its event, and its index within that.
func eachChange(events []*eventlog.Event) iter.Seq2[*eventlog.Event, int] {
	return func(yield func(*eventlog.Event, int) bool) {
		for _, e := range events {
			for i := range changesOf(e) {
				if !yield(e, i) {
					return
				}
			}
		}
	}
}

func resourceOf(o *logpb.Object) schema.GroupResource {
	return schema.GroupResource{Group: o.GetGroup(), Resource: o.GetResource()}
}
