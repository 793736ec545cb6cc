// Package postings finds items of one revision by a value, and items of other revisions with the help of the changes in between.
//
// An [Index] has the items of one revision. [Index.Look] returns those that meet a [Requirement], as a [Hit]. If they are
// wanted for another revision, older or newer, [Hit.Moved] takes the changes between the two, and [Hit.Each] yields the
// items of that revision. [Index.Advance] brings the index to a newer revision.
package postings

import (
	"cmp"
	"math"
	"slices"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
)

// Key identifies an item at each revision, and orders items.
type Key struct{ Namespace, Name string }

// Compare returns -1, 0 or 1 if k comes before other, is the same, or comes after.
func (k Key) Compare(other Key) int {
	return cmp.Or(strings.Compare(k.Namespace, other.Namespace), strings.Compare(k.Name, other.Name))
}

// Item is an item at one revision. The zero value stands for none. Items are immutable.
type Item interface {
	comparable
	Key() Key
}

// Change is what became of an item. Before is none if it is new, After if it was deleted.
type Change[T Item] struct{ Before, After T }

// Requirement says which values items must have.
type Requirement struct {
	// Values are ascending. nil stands for any value.
	Values []string
}

func (r *Requirement) admits(value string) bool {
	if len(r.Values) == 1 {
		return r.Values[0] == value
	}
	if r.Values == nil {
		return true
	}
	_, found := slices.BinarySearch(r.Values, value)
	return found
}

// Width returns the number of values; many for any value.
func (r *Requirement) Width() int {
	if r.Values == nil {
		return math.MaxInt
	}
	return len(r.Values)
}

// Index finds the items of one revision by a value. It is safe for concurrent use.
type Index[T Item] struct {
	value func(T) (value string, has bool)

	mu sync.RWMutex
	// revision is written under mu.
	revision atomic.Uint64
	// postings are the items with a value, ordered by key. Slices are replaced and never changed.
	postings map[string][]T
	total    int // items in postings
	texts    int // bytes of the values
	size     atomic.Int64
}

// Size returns about how many bytes of memory the index takes. It does not wait.
func (x *Index[T]) Size() int64 { return x.size.Load() }

// perItem and perValue are about the bytes that an item and a value take, with room in the map that is not used.
const (
	perItem  = 8
	perValue = 80
)

func (x *Index[T]) measure() {
	x.size.Store(int64(x.total*perItem + len(x.postings)*perValue + x.texts))
}

// New makes an index of the items of a revision. scan calls its function with all of them, ordered by key. value returns the
// value of an item, and whether the item belongs to the index; it MUST be a pure function.
func New[T Item](revision uint64, value func(T) (string, bool), scan func(each func(T) bool)) *Index[T] {
	x := &Index[T]{value: value}
	x.revision.Store(revision)
	// The postings are made as parts of one array, so that an item takes eight bytes if it is a pointer.
	type entry struct {
		item  T
		value int32
	}
	var entries []entry
	numbers := map[string]int32{}
	var counts []int
	scan(func(item T) bool {
		value, has := x.value(item)
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
		entries = append(entries, entry{item, number})
		return true
	})
	x.total = len(entries)
	array := make([]T, len(entries))
	ends := make([]int, len(counts)) // of the filled part of each posting
	for number, at := 0, 0; number < len(counts); number++ {
		ends[number] = at
		at += counts[number]
	}
	for _, e := range entries {
		array[ends[e.value]] = e.item
		ends[e.value]++
	}
	x.postings = make(map[string][]T, len(numbers))
	for value, number := range numbers {
		x.postings[strings.Clone(value)] = array[ends[number]-counts[number] : ends[number] : ends[number]]
		x.texts += len(value)
	}
	x.measure()
	return x
}

// Revision returns the revision whose items the index has. It does not wait.
func (x *Index[T]) Revision() uint64 { return x.revision.Load() }

// valueOf returns the value of an item, which may be none.
func (x *Index[T]) valueOf(item T) (value string, has bool) {
	if item == *new(T) {
		return "", false
	}
	return x.value(item)
}

// Advance applies the changes between two revisions, in their order. It does nothing if the index is not at the first
// revision, or in use.
func (x *Index[T]) Advance(changes []Change[T], from, to uint64) {
	if !x.mu.TryLock() {
		return
	}
	defer x.mu.Unlock()
	if x.revision.Load() != from {
		return
	}
	whole := map[Key]Change[T]{}
	for _, c := range changes {
		k := c.key()
		if first, known := whole[k]; known {
			c.Before = first.Before
		}
		whole[k] = c
	}
	edits := map[string][]edit[T]{}
	for k, c := range whole {
		was, had := x.valueOf(c.Before)
		is, has := x.valueOf(c.After)
		if had && !(has && is == was) {
			edits[was] = append(edits[was], edit[T]{key: k})
		}
		if has {
			edits[is] = append(edits[is], edit[T]{k, c.After})
		}
	}
	for value, e := range edits {
		was := x.postings[value]
		is := edited(was, e)
		x.total += len(is) - len(was)
		if was != nil {
			x.texts -= len(value)
		}
		if len(is) == 0 {
			delete(x.postings, value)
			continue
		}
		x.texts += len(value)
		x.postings[strings.Clone(value)] = is // without keeping the text that the value is a part of
	}
	x.measure()
	x.revision.Store(to)
}

func (c *Change[T]) key() Key {
	if c.After == *new(T) {
		return c.Before.Key()
	}
	return c.After.Key()
}

// edit replaces, adds or, if the item is none, removes an item of a posting.
type edit[T Item] struct {
	key  Key
	item T
}

// edited returns a posting with edits of different keys.
func edited[T Item](posting []T, edits []edit[T]) []T {
	slices.SortFunc(edits, func(a, b edit[T]) int { return a.key.Compare(b.key) })
	next := make([]T, 0, len(posting)+len(edits))
	for _, e := range edits {
		at := sort.Search(len(posting), func(i int) bool { return posting[i].Key().Compare(e.key) >= 0 })
		next = append(next, posting[:at]...)
		if posting = posting[at:]; len(posting) > 0 && posting[0].Key() == e.key {
			posting = posting[1:]
		}
		if e.item != *new(T) {
			next = append(next, e.item)
		}
	}
	return append(next, posting...)
}
