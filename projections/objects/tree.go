package objects

import "github.com/tidwall/btree"

// Total is the number of some objects, and the size of their JSON as clients get it.
type Total struct {
	Objects int
	Bytes   int64
}

// plus returns the total with n more objects of so many bytes together.
func (t Total) plus(n int, bytes int64) Total { return Total{t.Objects + n, t.Bytes + bytes} }

// tree has the objects of a resource, ordered by namespace and name, and their totals. A copy shares its nodes until one
// of them is changed.
type tree struct {
	objects *btree.BTreeG[*Object]
	total   Total
	in      *btree.Map[string, Total] // by namespace; without namespaces that have no objects, and without cluster-scoped objects
}

func newTree() *tree {
	return &tree{objects: btree.NewBTreeGOptions(less, btree.Options{Degree: degree, NoLocks: true}), in: &btree.Map[string, Total]{}}
}

// Copy returns a copy. It writes to the original, so that calls of it need a lock.
func (t *tree) Copy() *tree { return &tree{t.objects.Copy(), t.total, t.in.Copy()} }

// Set adds an object, in place of the one with its key.
func (t *tree) Set(o *Object) {
	if before, replaced := t.objects.Set(o); replaced {
		t.count(o.Namespace, 0, int64(len(o.JSON)-len(before.JSON)))
		return
	}
	t.count(o.Namespace, 1, int64(len(o.JSON)))
}

// Delete removes the object with the key of o.
func (t *tree) Delete(o *Object) {
	if before, deleted := t.objects.Delete(o); deleted {
		t.count(o.Namespace, -1, -int64(len(before.JSON)))
	}
}

// Load is Set for an object that comes after all others. It is faster.
func (t *tree) Load(o *Object) {
	t.objects.Load(o)
	t.count(o.Namespace, 1, int64(len(o.JSON)))
}

// count adds n objects in a namespace to the totals.
func (t *tree) count(namespace string, n int, bytes int64) {
	if n == 0 && bytes == 0 {
		return
	}
	t.total = t.total.plus(n, bytes)
	if namespace == "" {
		return
	}
	before, _ := t.in.Get(namespace)
	if in := before.plus(n, bytes); in.Objects > 0 {
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
