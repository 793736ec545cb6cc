// Package lookup reads stored objects for the rules of a write, from the state that the write is decided on, and remembers what
// it has read. [Reader.AddChecks] makes conditions of that for the committer: the write is appended only if the rules would read
// the same at its revision. So of two writes that exclude each other one is decided again, on any number of replicas.
//
// An object that is looked up by its key must be at the same revision, or still not exist. Of a selection only what was learned
// of it must be the same: the number of objects for a count, that there is none or one for a question whether any exists, and the
// objects themselves for a list.
package lookup

import (
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/core/commit"
	"stele.dev/stele/core/object/metadata"
	"stele.dev/stele/core/object/versions"
	"stele.dev/stele/eventlog/logpb"
	"stele.dev/stele/limits/lru"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/stored"
	"stele.dev/stele/projections/objects"
	"stele.dev/stele/schemas/jsonvalue"
)

// Limits of what the rules of one write read.
const (
	maxReads  = 1000
	maxLooked = 100_000 // objects
	// maxRecorded is how many reads the event of a write has.
	maxRecorded = 32
)

// Cache keeps decoded objects, so that an object which many writes look up is decoded once. It is safe for concurrent use.
type Cache struct {
	decoded *lru.Cache[seen, *policy.Object]
}

// seen is an object as a version of its kind shows it.
type seen struct {
	*objects.Object
	as *policy.Version
}

// cacheBytes bounds the JSON of the objects in a cache. Decoded they take several times as much.
const cacheBytes = 2 << 20

// NewCache returns an empty cache.
func NewCache() *Cache {
	return &Cache{lru.New[seen, *policy.Object](cacheBytes)}
}

// Read is something that rules have read.
type Read struct {
	Resource  schema.GroupResource
	Selection string // in words; "" for all objects
	Outline   string // the same without the values of labels and fields
	Key       bool   // one object was looked up by its key
	Found     int    // how many objects; of a question whether any exists at most one
}

// String returns the read in words.
func (r *Read) String() string {
	if r.Selection == "" {
		return "all " + r.Resource.String()
	}
	return r.Resource.String() + " " + r.Selection
}

// Reader reads the objects of one state for the rules of one write. It belongs to the goroutine that decides the write.
type Reader struct {
	cache    *Cache
	state    *objects.State
	own      *commit.Key // of the object that is written
	gets     []commit.At
	searches []commit.Unchanged
	found    []int // objects of the searches
	looked   int
}

// Reader returns a reader of a state. own is the key of the object that is written; it may be set later.
func (c *Cache) Reader(state *objects.State, own *commit.Key) Reader {
	return Reader{cache: c, state: state, own: own}
}

var errReads = fmt.Errorf("the rules of one write may read objects %d times", maxReads)

// Get returns an object as a version of its kind shows it; nil if there is none. The result is shared and must not be changed.
func (r *Reader) Get(v *policy.Version, namespace, name string) (*policy.Object, error) {
	if len(r.gets)+len(r.searches) >= maxReads {
		return nil, errReads
	}
	key := commit.Key{GroupResource: v.Kind.Stored().GroupResource(), Namespace: namespace, Name: name}
	o := r.state.Get(key.GroupResource, namespace, name)
	if o == nil {
		r.gets = append(r.gets, commit.At{Key: key})
		return nil, nil
	}
	r.gets = append(r.gets, commit.At{Key: key, Revision: o.Revision})
	return r.cache.decode(o, v)
}

// Exists reports whether a selection contains an object.
func (r *Reader) Exists(v *policy.Version, s *stored.Selection) (found bool, err error) {
	if selectsAll(s) {
		n, err := r.total(v, s, objects.Some)
		found = n > 0
		if err != nil {
			return false, err
		}
	} else if err = r.search(v, s, objects.Some, func(*objects.Object) bool { found = true; return false }); err != nil {
		return false, err
	}
	if !found {
		r.searches[len(r.searches)-1].Reading = objects.None
	}
	return found, nil
}

// selectsAll reports whether a selection is all objects, or those of a namespace.
func selectsAll(s *stored.Selection) bool {
	return len(s.Labels) == 0 && len(s.Fields) == 0 && s.Selector == nil && s.Name == ""
}

// Count returns the number of objects in a selection.
func (r *Reader) Count(v *policy.Version, s *stored.Selection) (n int, err error) {
	if selectsAll(s) {
		return r.total(v, s, objects.Number)
	}
	err = r.search(v, s, objects.Number, func(*objects.Object) bool { n++; return true })
	return n, err
}

// total counts the objects of a namespace, or all, without looking at them.
func (r *Reader) total(v *policy.Version, s *stored.Selection, reading objects.Reading) (int, error) {
	if err := r.search(v, s, reading, nil); err != nil {
		return 0, err
	}
	last := &r.searches[len(r.searches)-1]
	n := r.state.Total(last.Resource, s.Namespace).Objects
	if last.ExceptName != "" && (s.Namespace == "" || s.Namespace == last.ExceptNamespace) && r.state.Get(last.Resource, last.ExceptNamespace, last.ExceptName) != nil {
		n--
	}
	r.found[len(r.found)-1] = n
	return n, nil
}

// List returns the objects in a selection, ordered by namespace and name. It fails if there are more than [stored.MaxListed].
// The objects are shared and must not be changed.
func (r *Reader) List(v *policy.Version, s *stored.Selection) (list []*policy.Object, err error) {
	var decodeErr error
	err = r.search(v, s, objects.Contents, func(o *objects.Object) bool {
		if len(list) == stored.MaxListed {
			decodeErr = fmt.Errorf("list selects more than %d objects: narrow it, or use count or exists", stored.MaxListed)
			return false
		}
		decoded, err := r.cache.decode(o, v)
		decodeErr = err
		list = append(list, decoded)
		return err == nil
	})
	return list, errors.Join(err, decodeErr)
}

// search calls each with the objects in a selection until it returns false, and remembers the read. each may be nil.
func (r *Reader) search(v *policy.Version, s *stored.Selection, reading objects.Reading, each func(*objects.Object) bool) error {
	if len(r.gets)+len(r.searches) >= maxReads {
		return errReads
	}
	resource := v.Kind.Stored().GroupResource()
	read := commit.Unchanged{Since: r.state.Revision, Of: named{resource, s}, Read: objects.Read{Resource: resource, Selection: selected(v, s), Reading: reading}}
	if s.Others && r.own.GroupResource == resource {
		read.ExceptNamespace, read.ExceptName = r.own.Namespace, r.own.Name
	}
	r.searches, r.found = append(r.searches, read), append(r.found, 0)
	if each == nil {
		return nil
	}
	n := 0
	visit := func(o *objects.Object) bool {
		if read.ExceptName != "" && o.Name == read.ExceptName && o.Namespace == read.ExceptNamespace {
			return true
		}
		n++
		return each(o)
	}
	defer func() { r.found[len(r.found)-1] = n }()
	if s.Name != "" && (s.Namespace != "" || !v.Kind.Namespaced) {
		if o := r.state.Get(resource, s.Namespace, s.Name); o != nil && read.Selection.Matches(o) {
			visit(o)
		}
		return nil
	}
	if r.looked += r.state.Scanned(resource, &read.Selection); r.looked > maxLooked {
		return fmt.Errorf("the rules of one write may look at %d objects, and would look at more of %s: narrow the selection by labels, or by a field with an index", maxLooked, resource)
	}
	for o := range r.state.List(resource, &read.Selection, "", "") {
		if !visit(o) {
			break
		}
	}
	return nil
}

// named is a selection of a resource.
type named struct {
	resource  schema.GroupResource
	selection *stored.Selection
}

// String returns the selection in words.
func (n named) String() string {
	if words := n.selection.String(); words != "" {
		return n.resource.String() + " " + words
	}
	return "all " + n.resource.String()
}

// selected returns a selection by the fields of a version as projections know it.
func selected(v *policy.Version, s *stored.Selection) objects.Selection {
	l := s.Selector
	if len(s.Labels) > 0 {
		l = labels.SelectorFromSet(s.Labels)
	}
	var f fields.Selector
	if len(s.Fields) > 0 {
		f = fields.SelectorFromSet(v.StoredFields(s.Fields))
	}
	is := objects.Select(s.Namespace, l, f)
	is.Name = s.Name
	return is
}

// decode returns an object as a version of its kind shows it.
func (c *Cache) decode(o *objects.Object, v *policy.Version) (*policy.Object, error) {
	if decoded, ok := c.decoded.Get(seen{o, v}); ok {
		return decoded, nil
	}
	meta, content, err := decode(o.JSON)
	if err != nil {
		return nil, fmt.Errorf("%s %s/%s cannot be decoded: %w", o.Resource(), o.Namespace, o.Name, err)
	}
	if face := v.Kind.Face; face != nil {
		content = face.Show(content)
	}
	if v.Kind.Converts() && versions.As(v).Converts(o.JSON) {
		if err := v.Convert(versions.NameOf(o.JSON), content); err != nil {
			// Whoever writes may not read the object: the error, which has its values, is not for them. A read of the object says it.
			return nil, fmt.Errorf("an object of %s that a rule reads cannot be converted to %s", o.Resource(), v.Name)
		}
	}
	decoded := &policy.Object{Meta: meta, Content: content}
	c.decoded.Add(seen{o, v}, decoded, len(o.JSON))
	return decoded, nil
}

// decode decodes a stored object without its managedFields, which rules cannot read.
func decode(text []byte) (*metav1.ObjectMeta, map[string]any, error) {
	rest, _ := metadata.Split(text)
	content, err := jsonvalue.UnmarshalObject(rest)
	if err != nil {
		return nil, nil, err
	}
	meta, _, err := metadata.Decode(content)
	return meta, content, err
}

// AddChecks adds the conditions under which the rules would read the same.
func (r *Reader) AddChecks(c *commit.Checks) {
	c.Objects = append(c.Objects, r.gets...)
	c.Selections = append(c.Selections, r.searches...)
}

// Searches returns the selections that were read.
func (r *Reader) Searches() []commit.Unchanged { return r.searches }

// Reads returns what was read, in its order: first what was looked up by key.
func (r *Reader) Reads() []Read {
	if len(r.gets)+len(r.searches) == 0 {
		return nil
	}
	list := make([]Read, 0, len(r.gets)+len(r.searches))
	for i := range r.gets {
		k := &r.gets[i].Key
		words := "named " + k.Name
		if k.Namespace != "" {
			words = "in namespace " + k.Namespace + ", " + words
		}
		list = append(list, Read{Resource: k.GroupResource, Selection: words, Outline: words, Key: true, Found: min(1, int(r.gets[i].Revision))})
	}
	for i := range r.searches {
		n, _ := r.searches[i].Of.(named)
		list = append(list, Read{Resource: n.resource, Selection: n.selection.String(), Outline: n.selection.Outline(), Found: r.found[i]})
	}
	return list
}

// Record adds what was read to the decisions of the write's event.
func (r *Reader) Record(d *logpb.Decisions) {
	reads := r.Reads()
	if len(reads) == 0 {
		return
	}
	d.ReadRevision = r.state.Revision
	for i := range reads[:min(len(reads), maxRecorded)] {
		x := &reads[i]
		d.Reads = append(d.Reads, &logpb.Read{Group: x.Resource.Group, Resource: x.Resource.Resource, Selection: x.Outline, Found: uint64(x.Found)})
	}
}
