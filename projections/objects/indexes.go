package objects

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/limits/lru"
	"stele.dev/stele/projections/objects/postings"
)

// subject is what an index is about: a label or a selectable field.
type subject struct {
	field bool
	name  string
}

// requirement is a part of a selection that an index can answer.
type requirement struct {
	subject
	postings.Requirement
}

// index finds objects of a resource by one label or one selectable field. Writes do not change it: it is used with the
// changes between its revision and that of a state.
type index struct {
	subject
	kind *Kind
	*postings.Index[*Object]
	used uint64 // the use by which it was used last, of Store.uses
}

// Key returns what identifies the object in its resource.
func (o *Object) Key() postings.Key { return postings.Key{Namespace: o.Namespace, Name: o.Name} }

// value returns the function that returns the value of an object, and whether an index has objects with it: all that have
// the label, and those whose field is not empty. It returns nil if the kind does not have the field.
func (of subject) value(kind *Kind) func(*Object) (string, bool) {
	if !of.field {
		return func(o *Object) (string, bool) { return objectLabels{o}.Lookup(of.name) }
	}
	at := kind.fieldIndex(of.name)
	if at < 0 {
		return nil
	}
	return func(o *Object) (value string, has bool) {
		if o.kind == kind {
			value = o.fields[at]
		} else {
			value = objectFields{o, kind}.Get(of.name)
		}
		return value, value != ""
	}
}

// hit is what an index has for a requirement.
type hit struct {
	*postings.Hit[*Object]
	index *index
}

const (
	// indexFrom is how many objects a list must look at without an index for an index to be used.
	indexFrom = 500
	// maxIndexes is the maximum number of indexes of a resource. Above it, the one goes that has not been used for longest.
	maxIndexes = 16
	// DefaultIndexBytes is the default memory for all indexes of a store. Above it, those go that have not been used for
	// longest. One label with a value of its own for each of 300,000 objects takes about as much.
	DefaultIndexBytes = 32 << 20
	// asksRemembered is how many subjects are remembered that have no index and were asked for once.
	asksRemembered = 64
	// maxRequired is how many requirements of a selection are considered.
	maxRequired = 8
	// selective is the share of the objects, one in so many, of which an index is good enough to look for no better one.
	selective = 64
	// sorted is the share of the objects, one in so many, up to which objects with several values are collected and sorted.
	sorted = 16
	// advanceFrom is the number of changes since an index from which they are applied to it.
	advanceFrom = 512
	// perObject is how many changes take as long as one object of a list.
	perObject = 2
)

// indexed yields the objects that List yields, with an index. It reports whether there is one that is worth it. It makes
// one at most, if the selection would profit.
func (s *State) indexed(r schema.GroupResource, sel *Selection, after postings.Key, yield func(*Object) bool) bool {
	all := s.indexable(r, sel)
	if all == 0 {
		return false
	}
	h := s.best(r, sel, all, true)
	if h == nil {
		return false
	}
	changes, newer, ok := s.store.changesBetween(r, h.Revision, s.Revision, perObject*all)
	if newer && (!ok || !h.worth(all) && len(changes) > all/4) {
		s.store.dropIndex(r, h.index) // the next list makes one of the newer state
		return false
	}
	if !ok || !h.worth(all) {
		return false
	}
	if newer && len(changes) >= advanceFrom {
		h.index.Advance(changes, h.Revision, s.Revision)
	}
	h.Each(h.Moved(changes, newer), after, func(o *Object) bool { return !sel.Matches(o) || yield(o) })
	return true
}

// indexable returns how many objects a list would look at without an index; 0 if an index cannot be used.
func (s *State) indexable(r schema.GroupResource, sel *Selection) int {
	if len(sel.required) == 0 || s.store == nil || s.store.derived.Load() {
		return 0
	}
	all := s.Total(r, sel.Namespace).Objects
	if all < indexFrom {
		return 0
	}
	return all
}

// best returns what the most selective index finds for a selection that looks at so many objects without it; nil if there
// is no index. If none is selective, it makes one for a requirement that has none yet, if wanted.
func (s *State) best(r schema.GroupResource, sel *Selection, all int, make bool) (best *hit) {
	required := sel.required[:min(len(sel.required), maxRequired)]
	lacks := -1
	for i := range required {
		x := s.store.index(r, required[i].subject, s)
		if x == nil {
			if lacks < 0 {
				lacks = i
			}
			continue
		}
		best = better(best, x.look(required[i], sel.Namespace, all))
	}
	if make && lacks >= 0 && (best == nil || best.Count > all/selective) {
		if x := s.store.makeIndex(r, required[lacks].subject); x != nil && s.fits(r, x) {
			best = better(best, x.look(required[lacks], sel.Namespace, all))
		}
	}
	return best
}

// worth reports whether the objects of a hit are found faster than by looking at so many objects.
func (h *hit) worth(all int) bool { return h.Usable() && h.Count <= all/2 }

// look returns what the index has for a requirement of a selection that looks at so many objects without it.
func (x *index) look(r requirement, namespace string, all int) *hit {
	return &hit{x.Look(r.Requirement, namespace, all/sorted), x}
}

func better(a, b *hit) *hit {
	if a == nil || b.Usable() && (!a.Usable() || b.Count < a.Count) {
		return b
	}
	return a
}

// fits reports whether an index can be used for the state: the fields that it has are those of the state's kind. A state that
// was made by undoing changes has objects of the kind of the current state.
func (s *State) fits(r schema.GroupResource, x *index) bool { return s.partial || s.kinds[r] == x.kind }

// Scanned returns about how many objects a list of a selection looks at: all of its namespace, or those that an index
// finds.
func (s *State) Scanned(r schema.GroupResource, sel *Selection) int {
	if all := s.indexable(r, sel); all > 0 {
		if h := s.best(r, sel, all, false); h != nil && h.worth(all) {
			if n, ok := s.store.countBetween(r, h.Revision, s.Revision); ok && n <= perObject*all {
				return h.Count + n/perObject
			}
		}
	}
	return s.Total(r, sel.Namespace).Objects
}

// index returns the index of a subject for a state; nil if there is none.
func (s *Store) index(r schema.GroupResource, of subject, state *State) *index {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.feeds[r]
	if f == nil {
		return nil
	}
	i := slices.IndexFunc(f.indexes, func(x *index) bool { return x.subject == of })
	if i < 0 {
		return nil
	}
	x := f.indexes[i]
	if !state.fits(r, x) {
		return nil
	}
	copy(f.indexes[1:i+1], f.indexes[:i])
	f.indexes[0] = x
	s.uses++
	x.used = s.uses
	return x
}

// wanted reports whether an index is worth making: it was asked for before, and its memory is there. So selectors that nobody
// repeats cost no memory. The caller holds mu.
func (s *Store) wanted(f *feed, of subject, total int) bool {
	if f.asked == nil {
		f.asked = lru.New[subject, requested](asksRemembered)
	}
	was, before := f.asked.Get(of)
	if !before {
		f.asked.Add(of, requested{}, 1)
		return of.field // the policy names all fields that have an index
	}
	return was.tooLarge == 0 || total < was.tooLarge
}

// requested says what became of an index that was asked for.
type requested struct {
	tooLarge int // with so many objects it was too large; 0 if it was not
}

// makeRoom drops the indexes that have not been used for longest, until those that are left fit into the memory together with
// another one. The caller holds mu.
func (s *Store) makeRoom(size int64) {
	for {
		total, oldest, in := size, (*index)(nil), (*feed)(nil)
		for _, f := range s.feeds {
			for _, x := range f.indexes {
				total += x.Size()
				if oldest == nil || x.used < oldest.used {
					oldest, in = x, f
				}
			}
		}
		if total <= s.IndexBytes || oldest == nil {
			return
		}
		in.indexes = slices.DeleteFunc(in.indexes, func(x *index) bool { return x == oldest })
	}
}

// IndexSize returns about how many bytes of memory the indexes take, and how many there are.
func (s *Store) IndexSize() (bytes int64, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.feeds {
		for _, x := range f.indexes {
			bytes += x.Size()
			n++
		}
	}
	return bytes, n
}

// makeIndex makes an index of the current state. It returns nil if the kind has no such field, or if the index is being made
// by another call.
func (s *Store) makeIndex(r schema.GroupResource, of subject) *index {
	s.mu.Lock()
	f, state := s.feed(r), s.state.Load()
	kind, t := state.kinds[r], state.trees[r]
	if kind == nil || t == nil || f.making[of] || !s.wanted(f, of, t.Len()) {
		s.mu.Unlock()
		return nil
	}
	if f.making == nil {
		f.making = map[subject]bool{}
	}
	f.making[of] = true
	s.mu.Unlock()
	var x *index
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(f.making, of)
		if x == nil || s.state.Load().kinds[r] != kind || state.Revision < f.floor {
			return
		}
		f.indexes = slices.DeleteFunc(f.indexes, func(other *index) bool { return other.subject == of })
		if x.Size() > s.IndexBytes/2 {
			f.asked.Add(of, requested{max(1, t.Len()*3/4)}, 1)
			return
		}
		s.makeRoom(x.Size())
		s.uses++
		x.used = s.uses
		f.indexes = slices.Insert(f.indexes, 0, x)
		if len(f.indexes) > maxIndexes {
			f.indexes = slices.Delete(f.indexes, maxIndexes, len(f.indexes))
		}
	}()
	if value := of.value(kind); value != nil {
		x = &index{subject: of, kind: kind, Index: postings.New(state.Revision, value, t.Scan)}
	}
	return x
}

// dropIndex drops an index.
func (s *Store) dropIndex(r schema.GroupResource, x *index) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.feed(r)
	f.indexes = slices.DeleteFunc(f.indexes, func(other *index) bool { return other == x })
}

// changesBetween returns the changes of a resource between the revision of an index and that of a state, and whether the state is
// the newer of them. ok is false if some of them have been dropped, or if there are more than most.
func (s *Store) changesBetween(r schema.GroupResource, index, state uint64, most int) (changes []postings.Change[*Object], newer, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	newer = state > index
	from, to, ok := s.feeds[r].span(index, state)
	if !ok || to-from > most {
		return nil, newer, false
	}
	f := s.feeds[r]
	if from < to {
		changes = make([]postings.Change[*Object], 0, to-from)
	}
	for i := from; i < to; i++ {
		c := f.changes.get(i)
		is := postings.Change[*Object]{Before: c.Before, After: c.Object}
		if c.Deleted {
			is.After = nil
		}
		changes = append(changes, is)
	}
	return changes, newer, true
}

// countBetween returns how many changes between returns.
func (s *Store) countBetween(r schema.GroupResource, index, state uint64) (n int, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	from, to, ok := s.feeds[r].span(index, state)
	return to - from, ok
}

// span returns the positions in changes of those between two revisions.
func (f *feed) span(a, b uint64) (from, to int, ok bool) {
	if min(a, b) < f.floor {
		return 0, 0, false
	}
	return f.firstAfter(min(a, b)), f.firstAfter(max(a, b)), true
}

// forget drops indexes whose later changes have been dropped.
func (f *feed) forget() {
	if len(f.indexes) > 0 {
		f.indexes = slices.DeleteFunc(f.indexes, func(x *index) bool { return x.Revision() < f.floor })
	}
}

// dropIndexes drops those that do not fit the state that tx becomes: of other kinds, or without changes of their revision. The
// caller holds mu.
func (s *Store) dropIndexes(tx *Tx) {
	if !tx.kinds {
		return
	}
	for r, f := range s.feeds {
		f.indexes = slices.DeleteFunc(f.indexes, func(x *index) bool { return x.kind != tx.next.kinds[r] })
	}
	for _, c := range tx.changes {
		if c.Revision <= s.revision {
			s.feed(c.Object.kind.GroupResource).indexes = nil
		}
	}
}
