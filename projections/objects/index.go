package objects

import (
	"cmp"
	"math"
	"slices"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
)

// subject is what an index is about: a label or a selectable field.
type subject struct {
	field bool
	name  string
}

// requirement is a part of a selection that an index can answer: objects must have one of some values.
type requirement struct {
	subject
	// values are ascending. nil stands for any value: the object must have the label.
	values []string
}

func (r *requirement) admits(value string) bool {
	if len(r.values) == 1 {
		return r.values[0] == value
	}
	if r.values == nil {
		return true
	}
	_, found := slices.BinarySearch(r.values, value)
	return found
}

// width returns the number of values; many for any value.
func (r *requirement) width() int {
	if r.values == nil {
		return math.MaxInt
	}
	return len(r.values)
}

// index finds objects of a resource by one label or one selectable field. It has the objects of one revision, which need
// not be that of the state that it is used for: the changes between the two revisions are then looked at one by one. So
// writes do not change it. It is safe for concurrent use.
type index struct {
	subject
	kind *Kind
	at   int // the position of the field in kind.Fields

	mu sync.RWMutex // not held together with Store.mu
	// revision is that of the state whose objects the index has. It is written under mu.
	revision atomic.Uint64
	// postings are the objects with a value, ordered by namespace and name. Slices are replaced and never changed.
	postings map[string][]*Object
	total    int // objects in postings
}

// newIndex makes an index of the objects of a tree, which are of a kind. It returns nil if the kind does not have the field.
func newIndex(of subject, kind *Kind, t *tree, revision uint64) *index {
	x := &index{subject: of, kind: kind}
	x.revision.Store(revision)
	if of.field {
		if x.at = kind.fieldIndex(of.name); x.at < 0 {
			return nil
		}
	}
	// The postings are made as parts of one array, so that an object takes eight bytes.
	type entry struct {
		object *Object
		value  int32
	}
	var entries []entry
	numbers := map[string]int32{}
	var counts []int
	t.Scan(func(o *Object) bool {
		value, has := x.value(o)
		if !has {
			return true
		}
		number, known := numbers[value]
		if !known {
			number = int32(len(counts))
			numbers[value] = number
			counts = append(counts, 0)
		}
		counts[number]++
		entries = append(entries, entry{o, number})
		return true
	})
	x.total = len(entries)
	array := make([]*Object, len(entries))
	ends := make([]int, len(counts)) // of the filled part of each posting
	for number, at := 0, 0; number < len(counts); number++ {
		ends[number] = at
		at += counts[number]
	}
	for _, e := range entries {
		array[ends[e.value]] = e.object
		ends[e.value]++
	}
	x.postings = make(map[string][]*Object, len(numbers))
	for value, number := range numbers {
		x.postings[strings.Clone(value)] = array[ends[number]-counts[number] : ends[number] : ends[number]]
	}
	return x
}

// value returns the value of an object, and whether the index has objects with it: all that have the label, and those
// whose field is not empty.
func (x *index) value(o *Object) (value string, has bool) {
	switch {
	case !x.field:
		return objectLabels{o}.Lookup(x.name)
	case o.kind == x.kind:
		value = o.fields[x.at]
	default:
		value = objectFields{o, x.kind}.Get(x.name)
	}
	return value, value != ""
}

// hit is what an index has for a requirement.
type hit struct {
	index *index
	requirement
	revision uint64
	// runs are each ordered by namespace and name.
	runs [][]*Object
	n    int // objects in runs
}

// look returns what the index has for a requirement in a namespace, or in all. It leaves out runs if there are several of
// them with more than most objects together.
func (x *index) look(r requirement, namespace string, most int) *hit {
	x.mu.RLock()
	defer x.mu.RUnlock()
	h := &hit{index: x, requirement: r, revision: x.revision.Load()}
	switch {
	case r.values == nil:
		if h.n = x.total; h.n > most {
			return h
		}
		h.n = 0
		for _, p := range x.postings {
			h.add(p, namespace)
		}
	default:
		for _, value := range r.values {
			h.add(x.postings[value], namespace)
		}
		if len(h.runs) > 1 && h.n > most {
			h.runs = nil
		}
	}
	return h
}

func (h *hit) add(posting []*Object, namespace string) {
	if namespace != "" {
		first := sort.Search(len(posting), func(i int) bool { return posting[i].Namespace >= namespace })
		posting = posting[first:]
		posting = posting[:sort.Search(len(posting), func(i int) bool { return posting[i].Namespace > namespace })]
	}
	if len(posting) > 0 {
		h.runs = append(h.runs, posting)
		h.n += len(posting)
	}
}

// usable reports whether the runs are not left out.
func (h *hit) usable() bool { return h.n == 0 || h.runs != nil }

// wants reports whether the requirement admits an object, which may be nil.
func (h *hit) wants(o *Object) bool {
	if o == nil {
		return false
	}
	value, has := h.index.value(o)
	return has && h.admits(value)
}

// moved returns the objects that changed between the index and a state, if the requirement admits them before or after one of the
// changes. It maps their keys to the objects of the state; to nil if the state has none or the requirement does not admit it.
func (h *hit) moved(changes []*Change, newer bool) map[key]*Object {
	var moved map[key]*Object
	set := func(c *Change, from, to *Object) {
		wanted := h.wants(to)
		if !wanted && !h.wants(from) {
			return
		}
		if moved == nil {
			moved = map[key]*Object{}
		}
		if !wanted {
			to = nil
		}
		moved[c.Object.key()] = to
	}
	// The last change that concerns an object decides: a later one had it neither before nor after.
	if newer {
		for _, c := range changes {
			set(c, c.Before, c.after())
		}
	} else {
		for _, c := range slices.Backward(changes) {
			set(c, c.after(), c.Before)
		}
	}
	return moved
}

// after returns the object after the change; nil if it was deleted.
func (c *Change) after() *Object {
	if c.Deleted {
		return nil
	}
	return c.Object
}

// each yields the objects of a state that the requirement admits, ordered by namespace and name: those of the hit except
// for the moved ones, and the moved ones, of any namespace, as they are in the state. It yields none up to the key after.
func (h *hit) each(moved map[key]*Object, after *Object, yield func(*Object) bool) {
	behind := func(run []*Object) []*Object {
		return run[sort.Search(len(run), func(i int) bool { return less(after, run[i]) }):]
	}
	var objects []*Object
	if len(h.runs) == 1 {
		objects = behind(h.runs[0])
	} else {
		for _, run := range h.runs {
			objects = append(objects, behind(run)...)
		}
		slices.SortFunc(objects, compare)
	}
	var others []*Object
	for _, o := range moved {
		if o != nil && less(after, o) {
			others = append(others, o)
		}
	}
	slices.SortFunc(others, compare)
	for _, o := range objects {
		if len(moved) > 0 {
			if _, is := moved[o.key()]; is {
				continue
			}
		}
		for len(others) > 0 && less(others[0], o) {
			if !yield(others[0]) {
				return
			}
			others = others[1:]
		}
		if !yield(o) {
			return
		}
	}
	for _, o := range others {
		if !yield(o) {
			return
		}
	}
}

func compare(a, b *Object) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

// advance applies the changes between two revisions. It does nothing if the index is not at the first of them, or in use.
func (x *index) advance(changes []*Change, from, to uint64) {
	if !x.mu.TryLock() {
		return
	}
	defer x.mu.Unlock()
	if x.revision.Load() != from {
		return
	}
	type pair struct{ was, is *Object }
	pairs := map[key]pair{}
	for _, c := range changes {
		p, known := pairs[c.Object.key()]
		if !known {
			p.was = c.Before
		}
		p.is = c.after()
		pairs[c.Object.key()] = p
	}
	edits := map[string][]edit{}
	for k, p := range pairs {
		was, had := x.valueOf(p.was)
		is, has := x.valueOf(p.is)
		if had && !(has && is == was) {
			edits[was] = append(edits[was], edit{k, nil})
		}
		if has {
			edits[is] = append(edits[is], edit{k, p.is})
		}
	}
	for value, e := range edits {
		was := x.postings[value]
		is := edited(was, e)
		x.total += len(is) - len(was)
		if len(is) == 0 {
			delete(x.postings, value)
			continue
		}
		x.postings[strings.Clone(value)] = is // without keeping the JSON that the value is a part of
	}
	x.revision.Store(to)
}

func (x *index) valueOf(o *Object) (value string, has bool) {
	if o == nil {
		return "", false
	}
	return x.value(o)
}

// edit replaces, adds or, if the object is nil, removes an object in a posting.
type edit struct {
	key    key
	object *Object
}

// edited returns a posting with edits of different keys.
func edited(posting []*Object, edits []edit) []*Object {
	slices.SortFunc(edits, func(a, b edit) int {
		return cmp.Or(cmp.Compare(a.key.namespace, b.key.namespace), cmp.Compare(a.key.name, b.key.name))
	})
	next := make([]*Object, 0, len(posting)+len(edits))
	for _, e := range edits {
		at := sort.Search(len(posting), func(i int) bool { return !keyLess(posting[i].key(), e.key) })
		next = append(next, posting[:at]...)
		if posting = posting[at:]; len(posting) > 0 && posting[0].key() == e.key {
			posting = posting[1:]
		}
		if e.object != nil {
			next = append(next, e.object)
		}
	}
	return append(next, posting...)
}

func keyLess(a, b key) bool {
	return a.namespace < b.namespace || a.namespace == b.namespace && a.name < b.name
}
