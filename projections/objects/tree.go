package objects

import "github.com/tidwall/btree"

// LargeObject is the size of JSON from which [Total] counts an object as large.
const LargeObject = 64 << 10

// Total is the number of some objects, and the size of their JSON as clients get it.
type Total struct {
	Objects int
	Bytes   int64
	// Large is the number of objects of [LargeObject] bytes or more.
	Large int
}

// plus returns the total with an object added; o may be nil.
func (t Total) plus(o *Object) Total { return t.add(o, 1) }

// minus returns the total without an object; o may be nil.
func (t Total) minus(o *Object) Total { return t.add(o, -1) }

func (t Total) add(o *Object, n int) Total {
	if o == nil {
		return t
	}
	t.Objects += n
	t.Bytes += int64(n * len(o.JSON))
	if len(o.JSON) >= LargeObject {
		t.Large += n
	}
	return t
}

// tree has the objects of a resource, ordered by namespace and name, and their totals. A copy shares its nodes until one
// of them is changed.
type tree struct {
	objects *btree.BTreeG[*Object]
	total   Total
	in      *btree.Map[string, Total] // by namespace; without namespaces that have no objects, and without cluster-scoped objects
	sorted  *order                    // the same objects in the order of lists; nil if the kind is not sorted
}

func newTree() *tree {
	return &tree{objects: btree.NewBTreeGOptions(lessObject, btree.Options{Degree: degree, NoLocks: true}), in: &btree.Map[string, Total]{}}
}

// Copy returns a copy. It writes to the original, so that calls of it need a lock.
func (t *tree) Copy() *tree {
	return &tree{objects: t.objects.Copy(), total: t.total, in: t.in.Copy(), sorted: t.sorted}
}

// Set adds an object, in place of the one with its key, which it returns.
func (t *tree) Set(o *Object) *Object {
	before, _ := t.objects.Set(o)
	if t.sorted != nil {
		t.sorted = t.sorted.change(before, o)
	}
	t.count(o.Namespace, before, o)
	return before
}

// Delete removes the object with the key of o.
func (t *tree) Delete(o *Object) {
	before, _ := t.objects.Delete(o)
	if t.sorted != nil && before != nil {
		t.sorted = t.sorted.change(before, nil)
	}
	t.count(o.Namespace, before, nil)
}

// Load is Set for an object that comes after all others. It is faster.
func (t *tree) Load(o *Object) {
	t.objects.Load(o)
	t.count(o.Namespace, nil, o)
}

// count changes the totals by an object of a namespace that became another one. Either may be nil.
func (t *tree) count(namespace string, before, after *Object) {
	total := t.total.minus(before).plus(after)
	if total == t.total {
		return
	}
	t.total = total
	if namespace == "" {
		return
	}
	in, _ := t.in.Get(namespace)
	if in = in.minus(before).plus(after); in.Objects > 0 {
		t.in.Set(namespace, in)
	} else {
		t.in.Delete(namespace)
	}
}

func (t *tree) Get(o *Object) (*Object, bool)                { return t.objects.Get(o) }
func (t *tree) GetAt(i int) (*Object, bool)                  { return t.objects.GetAt(i) }
func (t *tree) Ascend(from *Object, each func(*Object) bool) { t.objects.Ascend(from, each) }
func (t *tree) Scan(each func(*Object) bool)                 { t.objects.Scan(each) }
func (t *tree) Len() int                                     { return t.objects.Len() }
