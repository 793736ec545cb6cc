package objects

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/tidwall/btree"
)

// order is the order of the objects of a sorted kind, after a change. It is immutable for its users.
//
// A change only notes what has become of an object. Whoever lists brings the order up to date, by the changes since it last
// was, so that writes that nobody reads cost little. After many changes a write does it, which is cheaper than one by one: the
// nodes of the tree are copied once for all of them.
type order struct {
	// before and after are the object before and after the change; nil if there was or is none. prev is the order before the
	// change; nil once the order is settled, when it is not needed any more. settling guards prev.
	before, after *Object
	prev          *order
	changes       int // since the order that is settled
	settleAt      int // the number of changes after which a write settles it

	settled  atomic.Pointer[btree.BTreeG[sortedObject]]
	settling *sync.Mutex // shared by all orders of a kind
}

// An order is brought up to date by a write after leastNoted changes, or after one for every noteShare objects if these are more: the
// nodes of a large tree are copied for several changes each, too, and the changes keep few objects in memory that are gone.
const leastNoted, noteShare = 512, 4

// sortedObject is an object in the order of its key. The key is here, too, because comparing it would have to load the object.
type sortedObject struct {
	key string
	*Object
}

func sortedAs(o *Object) sortedObject { return sortedObject{o.sortKey(), o} }

// sortedDegree is the degree of trees of sorted objects: their items are larger than those of others.
const sortedDegree = 16

// newOrder returns the order of some objects.
func newOrder(all []*Object) *order {
	items := make([]sortedObject, len(all))
	for i, o := range all {
		items[i] = sortedAs(o)
	}
	slices.SortFunc(items, func(a, b sortedObject) int { return cmp.Compare(a.key, b.key) })
	t := btree.NewBTreeGOptions(func(a, b sortedObject) bool { return a.key < b.key }, btree.Options{Degree: sortedDegree, NoLocks: true})
	for _, item := range items {
		t.Load(item)
	}
	x := &order{settling: new(sync.Mutex)}
	x.settled.Store(t)
	return x
}

// change returns the order after an object has become another one. Either may be nil.
func (x *order) change(before, after *Object) *order {
	next := &order{before: before, after: after, prev: x, changes: x.changes + 1, settleAt: x.settleAt, settling: x.settling}
	if t := x.settled.Load(); t != nil {
		next.changes, next.settleAt = 1, max(leastNoted, t.Len()/noteShare)
	}
	if next.changes >= next.settleAt {
		next.tree()
	}
	return next
}

// tree returns the objects in their order, which the caller must not change. It is safe for concurrent use.
func (x *order) tree() *btree.BTreeG[sortedObject] {
	if t := x.settled.Load(); t != nil {
		return t
	}
	x.settling.Lock()
	defer x.settling.Unlock()
	if t := x.settled.Load(); t != nil {
		return t
	}
	var noted []*order
	at := x
	for ; at.settled.Load() == nil; at = at.prev {
		noted = append(noted, at)
	}
	t := at.settled.Load().Copy() // this writes to the original, but not what readers use
	last := lastNotes(noted)
	var hint btree.PathHint
	for _, n := range last {
		if n.Object == nil {
			t.DeleteHint(n, &hint)
		} else {
			t.SetHint(n, &hint)
		}
	}
	x.settled.Store(t)
	x.before, x.after, x.prev = nil, nil, nil
	return t
}

// lastNotes returns what has become of each key by changes, the last of which comes first; nil if it is gone. The keys ascend: a tree
// finds most of them beside the one before.
func lastNotes(changes []*order) []sortedObject {
	all := make([]sortedObject, 0, 2*len(changes))
	for _, c := range slices.Backward(changes) {
		if c.before != nil && (c.after == nil || c.before.sortKey() != c.after.sortKey()) {
			all = append(all, sortedObject{key: c.before.sortKey()})
		}
		if c.after != nil {
			all = append(all, sortedAs(c.after))
		}
	}
	slices.SortStableFunc(all, func(a, b sortedObject) int { return cmp.Compare(a.key, b.key) })
	last := all[:0]
	for i, n := range all {
		if i+1 == len(all) || all[i+1].key != n.key {
			last = append(last, n)
		}
	}
	return last
}
