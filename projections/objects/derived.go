package objects

import (
	"cmp"
	"slices"
	"sort"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Derived objects are not in the log: they follow from objects of another store. Their store is written by [Tx.Put] and
// [Tx.Remove] in place of [Tx.Apply]. Apart from that it is read like any other.

// Derive makes an object of a kind, given its JSON without resourceVersion. sortKey is where it stands in lists, if the kind
// is [Kind.Sorted]; no sort key of a kind may be the beginning of another one.
func (k *Kind) Derive(payload []byte, revision uint64, sortKey string) (*Object, error) {
	o, err := newObject(k, payload, revision)
	if err == nil && k.Sorted {
		o.fields = append(slices.Clip(o.fields), sortKey+o.Namespace+"\x00"+o.Name)
	}
	return o, err
}

// Derived is an object that follows from another one: it has its namespace, name, UID and labels.
type Derived struct {
	// JSON is the whole object; JSON[At:At+N] is the field resourceVersion with the comma after it.
	JSON  []byte
	At, N int
	// Fields are the values of the kind's selectable fields.
	Fields []string
	// SortKey is that of [Kind.Derive].
	SortKey string
}

// DeriveFrom makes an object that follows from another one, with its revision. It keeps nothing of the other one in memory.
func (k *Kind) DeriveFrom(of *Object, d Derived) *Object {
	o := &Object{Revision: of.Revision, JSON: d.JSON, at: d.At, n: d.N, fields: d.Fields, kind: k}
	text := make([]byte, 0, len(d.SortKey)+len(of.Namespace)+1+len(of.Name)+len(of.UID)+textLen(of.labels))
	text = append(append(append(append(text, d.SortKey...), of.Namespace...), 0), of.Name...)
	text = append(text, of.UID...)
	for _, s := range of.labels {
		text = append(text, s...)
	}
	rest := view(text)
	next := func(n int) (s string) { s, rest = rest[:n], rest[n:]; return s }
	key := rest[:len(d.SortKey)+len(of.Namespace)+1+len(of.Name)]
	next(len(d.SortKey))
	o.Namespace = next(len(of.Namespace))
	next(1)
	o.Name, o.UID = next(len(of.Name)), next(len(of.UID))
	if len(of.labels) > 0 {
		o.labels = make([]string, len(of.labels))
		for i, s := range of.labels {
			o.labels[i] = next(len(s))
		}
	}
	if k.Sorted {
		o.fields = append(o.fields, key)
	}
	return o
}

func textLen(texts []string) (n int) {
	for _, s := range texts {
		n += len(s)
	}
	return n
}

// NewKind prepares a kind for [Kind.Derive] and [Tx.Replace].
func NewKind(k Kind) *Kind { return newKind(k) }

// sortKey returns where the object of a sorted kind stands: its sort key, namespace and name. The kind has a field less than the
// object.
func (o *Object) sortKey() string {
	if n := len(o.kind.paths); len(o.fields) > n {
		return o.fields[n]
	}
	return ""
}

// Put adds an object at a revision, in place of the one with its key. Revisions never descend.
func (tx *Tx) Put(o *Object, revision uint64) {
	before := tx.ownDerived(o.kind.GroupResource).Set(o)
	tx.derived(&Change{Revision: revision, Object: o, Before: before})
}

// Remove removes the object with a key at a revision, if there is one.
func (tx *Tx) Remove(r schema.GroupResource, namespace, name string, revision uint64) {
	before := tx.Get(r, namespace, name)
	if before == nil {
		return
	}
	tx.ownDerived(r).Delete(before)
	tx.derived(&Change{Revision: revision, Object: before.moved(revision), Before: before, Deleted: true})
}

// Get returns an object of the scratch copy, or nil.
func (tx *Tx) Get(r schema.GroupResource, namespace, name string) *Object {
	t := tx.next.trees[r]
	if t == nil {
		return nil
	}
	tx.sought.Namespace, tx.sought.Name = namespace, name
	o, _ := t.Get(&tx.sought)
	return o
}

// SamePayload reports whether payload is the JSON of the object without resourceVersion.
func (o *Object) SamePayload(payload []byte) bool {
	return len(payload) == len(o.JSON)-o.n && string(payload[:o.at]) == string(o.JSON[:o.at]) && string(payload[o.at:]) == string(o.JSON[o.at+o.n:])
}

// moved is At without parsing the object again. The result keeps the memory of both.
func (o *Object) moved(revision uint64) *Object {
	c := *o
	c.Revision = revision
	c.splice(o.Payload(), o.at)
	return &c
}

// ownDerived is tree for a store of derived objects. It has no indexes, because objects may be replaced without changes.
func (tx *Tx) ownDerived(r schema.GroupResource) *tree {
	tx.store.derived.Store(true)
	return tx.tree(r)
}

// derived adds a change. One revision of the other store may change several objects.
func (tx *Tx) derived(c *Change) {
	if n := len(tx.changes); n > 0 && tx.changes[n-1].Revision == c.Revision {
		tx.changes[n-1].partial = true
	}
	tx.changes = append(tx.changes, c)
	tx.next.Revision = max(tx.next.Revision, c.Revision)
}

// Replace replaces all objects of a kind, without changes. The objects have different keys. [Store.Cut] must follow.
func (tx *Tx) Replace(k *Kind, all []*Object) {
	tx.ownDerived(k.GroupResource) // makes the trees the scratch copy's own
	tx.next.replaced++
	tx.next.trees[k.GroupResource] = derivedTree(k, all)
}

func derivedTree(k *Kind, all []*Object) *tree {
	t := newTree()
	slices.SortFunc(all, func(a, b *Object) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	for _, o := range all {
		t.Set(o)
	}
	if k.Sorted {
		t.sorted = newOrder(all)
	}
	return t
}

// DerivedState makes the state of a kind at a revision, from objects with different keys in any order. It is safe for
// concurrent use.
func DerivedState(k *Kind, revision uint64, all []*Object) *State {
	return &State{Revision: revision, trees: map[schema.GroupResource]*tree{k.GroupResource: derivedTree(k, all)}, kinds: map[schema.GroupResource]*Kind{k.GroupResource: k}, partial: true}
}

// Drop removes a resource with all its objects, without changes. [Store.Cut] must follow.
func (tx *Tx) Drop(r schema.GroupResource) {
	tx.ownDerived(r)
	tx.next.replaced++
	delete(tx.next.trees, r)
	delete(tx.own, r)
}

// Cut makes the store forget the changes of a resource, and returns the revision from which on it has changes. Watches from
// earlier revisions end with [ErrExpired]. All are told that they may have something to take. States that are pinned stay, but not
// for this resource.
func (s *Store) Cut(r schema.GroupResource) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.feed(r)
	f.floor, f.replaced = s.revision, s.state.Load().replaced
	expire := func(w *Watcher) {
		w.mu.Lock()
		w.queue, w.queued, w.lagging = nil, 0, true
		w.mu.Unlock()
		w.poke()
	}
	visitSet(&f.all, expire)
	for _, sets := range f.byNamespace {
		visitSet(sets, expire)
	}
	for _, sets := range f.byKey {
		visitSet(sets, expire)
	}
	for _, sets := range f.byField {
		visitSet(sets, expire)
	}
	return s.revision
}

// Since returns the changes of resources after a revision up to another one, in their order: about as many as most, and all of
// a revision. last is the revision up to which they are complete. The error is [ErrExpired] if some have been dropped.
func (s *Store) Since(resources []schema.GroupResource, after, upTo uint64, most int) (changes []*Change, last uint64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range resources {
		if after < s.feed(r).floor {
			return nil, 0, ErrExpired
		}
	}
	n := s.history.len()
	i := sort.Search(n, func(i int) bool { return s.history.get(i).Revision > after })
	for seen := uint64(0); i < n; i++ {
		c := s.history.get(i)
		if c.Revision > upTo {
			break
		}
		if len(changes) >= most && c.Revision != seen {
			return changes, seen, nil
		}
		if seen = c.Revision; slices.Contains(resources, c.Object.kind.GroupResource) {
			changes = append(changes, c)
		}
	}
	return changes, max(after, min(upTo, s.revision)), nil
}

// Resource returns the resource of the object.
func (o *Object) Resource() schema.GroupResource { return o.kind.GroupResource }

// Notify makes the store send on a channel when a change of one of some resources is published, without waiting for the
// receiver. stop ends that.
func (s *Store) Notify(resources []schema.GroupResource, to chan<- struct{}) (stop func()) {
	n := &notified{to}
	change := func(set func(*feed)) {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, r := range resources {
			set(s.feed(r))
		}
	}
	change(func(f *feed) { f.notified = append(slices.Clip(f.notified), n) })
	return func() {
		change(func(f *feed) {
			f.notified = slices.DeleteFunc(slices.Clone(f.notified), func(x *notified) bool { return x == n })
		})
	}
}

// notified is who is told of changes.
type notified struct{ to chan<- struct{} }

func (n *notified) tell() {
	select {
	case n.to <- struct{}{}:
	default:
	}
}

// listSorted yields the objects of a sorted kind that match a selection, in their order, after the object with a key. If that
// object is gone, it continues by namespace and name.
func (t *tree) listSorted(sel *Selection, afterNamespace, afterName string, yield func(*Object) bool) (done bool) {
	if afterNamespace == "" && afterName == "" {
		t.sorted.tree().Scan(func(s sortedObject) bool { return !sel.Matches(s.Object) || yield(s.Object) })
		return true
	}
	last := t.lastUpTo(afterNamespace, afterName)
	if last == nil {
		return false
	}
	t.sorted.tree().Ascend(sortedAs(last), func(s sortedObject) bool { return s.Object == last || !sel.Matches(s.Object) || yield(s.Object) })
	return true
}

// lastUpTo returns the object with a key, or the one whose key is just before it: tokens that continue a list have the first key
// after the last object.
func (t *tree) lastUpTo(namespace, name string) *Object {
	if n := len(name); n > 0 && name[n-1] == 0 {
		name = name[:n-1]
	}
	o, _ := t.Get(&Object{Namespace: namespace, Name: name})
	return o
}

// sortedAfter returns how many objects of a namespace, or of all if it is "", are after the object with a key.
func (t *tree) sortedAfter(namespace, afterNamespace, afterName string) (n int) {
	last := t.lastUpTo(afterNamespace, afterName)
	if last == nil {
		return 0
	}
	sorted := t.sorted.tree()
	if namespace == "" {
		return t.Len() - sort.Search(t.Len(), func(i int) bool {
			s, _ := sorted.GetAt(i)
			return last.sortKey() < s.key
		})
	}
	sorted.Ascend(sortedAs(last), func(s sortedObject) bool {
		if s.Object != last && s.Namespace == namespace {
			n++
		}
		return true
	})
	return n
}

// Has reports whether the state has the resource, which may have no objects.
func (s *State) Has(r schema.GroupResource) bool { return s.trees[r] != nil }

// Watched reports whether there are watchers.
func (s *Store) Watched() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.watchers > 0
}
