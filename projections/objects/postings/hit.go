package postings

import (
	"slices"
	"sort"
)

// Hit is what an index has for a requirement.
type Hit[T Item] struct {
	Index *Index[T]
	// Revision is that of the index when it was looked up.
	Revision uint64
	// Count is the number of items.
	Count int

	required Requirement
	runs     [][]T // each ordered by key
}

// Look returns what the index has for a requirement in a namespace, or in all if that is "". If the items have several
// values, and there are more than most, only their number is returned.
func (x *Index[T]) Look(r Requirement, namespace string, most int) *Hit[T] {
	x.mu.RLock()
	defer x.mu.RUnlock()
	h := &Hit[T]{Index: x, Revision: x.revision.Load(), required: r}
	if r.Values == nil {
		if x.total > most {
			h.Count = x.total
			return h
		}
		for _, p := range x.postings {
			h.add(p, namespace)
		}
		return h
	}
	for _, value := range r.Values {
		h.add(x.postings[value], namespace)
	}
	if len(h.runs) > 1 && h.Count > most {
		h.runs = nil
	}
	return h
}

func (h *Hit[T]) add(posting []T, namespace string) {
	if namespace != "" {
		from := sort.Search(len(posting), func(i int) bool { return posting[i].Key().Namespace >= namespace })
		posting = posting[from:]
		posting = posting[:sort.Search(len(posting), func(i int) bool { return posting[i].Key().Namespace > namespace })]
	}
	if len(posting) > 0 {
		h.runs = append(h.runs, posting)
		h.Count += len(posting)
	}
}

// Usable reports whether the hit has its items, and not only their number.
func (h *Hit[T]) Usable() bool { return h.Count == 0 || h.runs != nil }

// wants reports whether the requirement admits an item, which may be none.
func (h *Hit[T]) wants(item T) bool {
	value, has := h.Index.valueOf(item)
	return has && h.required.admits(value)
}

// Moved returns the items that changed between the revision of the hit and another one, if the requirement admits them
// before or after one of the changes. It maps their keys to the items of the other revision; to none if there is none or the
// requirement does not admit it. The changes are in their order; newer says that the other revision is the newer one.
func (h *Hit[T]) Moved(changes []Change[T], newer bool) map[Key]T {
	var moved map[Key]T
	set := func(c *Change[T], from, to T) {
		wanted := h.wants(to)
		if !wanted && !h.wants(from) {
			return
		}
		if moved == nil {
			moved = map[Key]T{}
		}
		if !wanted {
			to = *new(T)
		}
		moved[c.key()] = to
	}
	// Of the changes of an item, the last one that is set decides: the requirement admits the item neither before nor after
	// those that follow.
	if newer {
		for i := range changes {
			set(&changes[i], changes[i].Before, changes[i].After)
		}
		return moved
	}
	for i := range slices.Backward(changes) {
		set(&changes[i], changes[i].After, changes[i].Before)
	}
	return moved
}

// Each yields the items that the requirement admits, ordered by key: those of the hit that have not moved, and the moved
// ones, which may be of other namespaces. It begins behind a key, and ends when yield returns false.
func (h *Hit[T]) Each(moved map[Key]T, after Key, yield func(T) bool) {
	items, others := h.itemsBehind(after), movedBehind(moved, after)
	for _, item := range items {
		if len(moved) > 0 {
			if _, is := moved[item.Key()]; is {
				continue
			}
		}
		for len(others) > 0 && compare(others[0], item) < 0 {
			if !yield(others[0]) {
				return
			}
			others = others[1:]
		}
		if !yield(item) {
			return
		}
	}
	for _, item := range others {
		if !yield(item) {
			return
		}
	}
}

// itemsBehind returns the items of the hit behind a key, in order.
func (h *Hit[T]) itemsBehind(after Key) (items []T) {
	for _, run := range h.runs {
		run = run[sort.Search(len(run), func(i int) bool { return run[i].Key().Compare(after) > 0 }):]
		if len(h.runs) == 1 {
			return run
		}
		items = append(items, run...)
	}
	slices.SortFunc(items, compare)
	return items
}

// movedBehind returns the moved items that there are behind a key, in order.
func movedBehind[T Item](moved map[Key]T, after Key) (items []T) {
	for k, item := range moved {
		if item != *new(T) && k.Compare(after) > 0 {
			items = append(items, item)
		}
	}
	slices.SortFunc(items, compare)
	return items
}

func compare[T Item](a, b T) int { return a.Key().Compare(b.Key()) }
