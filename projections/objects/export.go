package objects

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/tidwall/gjson"
	"google.golang.org/protobuf/encoding/protowire"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// FoldVersion is the version of the fold of this package and of the records of [State.Export]. It is raised whenever
// the same log gives another state, or the same state other records.
const FoldVersion = 1

// A state is exported as records: first one for each kind, then one for each object, ordered by resource, namespace
// and name. Numbers are varints; "bytes" are a length and as many bytes. The last part of a record takes its rest.
//
//	kind:   flag whether the state has it, group, resource, number of fields, name and gjson path of each field (bytes)
//	object: index of its kind, revision, flags, position of resourceVersion in its JSON, JSON
//	        with flagWritten: length of JSON before it; and then the same position and JSON of what was written
const (
	flagSecret = 1 << iota
	flagWritten
)

// Export calls kind with a record for each kind, and then object with a record for each object. The records depend on
// the state alone, and [Importer] makes the same state of them. The bytes are only valid during the call. It is safe
// for concurrent use, and ends with the first error of the functions.
func (s *State) Export(kind func(record []byte) error, object func(o *Object, record []byte) error) error {
	resources := s.resources()
	kinds := s.exported(resources)
	var record []byte
	for _, k := range kinds.all {
		record = k.append(record[:0], s.kinds[k.GroupResource] == k)
		if err := kind(record); err != nil {
			return err
		}
	}
	var err error
	for _, r := range resources {
		s.trees[r].Scan(func(o *Object) bool {
			record = o.append(record[:0], kinds.kindOf(s, o))
			err = object(o, record)
			return err == nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// resources returns the resources that have objects, in order.
func (s *State) resources() []schema.GroupResource {
	return slices.SortedFunc(func(yield func(schema.GroupResource) bool) {
		for r, t := range s.trees {
			if t.Len() > 0 && !yield(r) {
				return
			}
		}
	}, compareResources)
}

func compareResources(a, b schema.GroupResource) int {
	return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Resource, b.Resource))
}

// exportedKinds are the kinds of a state and of its objects, with their indexes.
type exportedKinds struct {
	all   []*Kind
	index map[schema.GroupResource]int // of the kind that the state has
	// others are kinds that objects have and the state does not: those of resources that the policy no longer has.
	others map[*Kind]int
}

func (s *State) exported(resources []schema.GroupResource) *exportedKinds {
	e := &exportedKinds{index: map[schema.GroupResource]int{}, others: map[*Kind]int{}}
	for _, r := range slices.SortedFunc(maps.Keys(s.kinds), compareResources) {
		e.index[r] = len(e.all)
		e.all = append(e.all, s.kinds[r])
	}
	for _, r := range resources {
		if s.kinds[r] != nil {
			continue
		}
		first := len(e.all)
		s.trees[r].Scan(func(o *Object) bool {
			if _, known := e.others[o.kind]; known {
				return true
			}
			at := slices.IndexFunc(e.all[first:], o.kind.equals)
			if at < 0 {
				at = len(e.all) - first
				e.all = append(e.all, o.kind)
			}
			e.others[o.kind] = first + at
			return true
		})
	}
	return e
}

func (e *exportedKinds) kindOf(s *State, o *Object) int {
	if s.kinds[o.kind.GroupResource] != nil {
		return e.index[o.kind.GroupResource]
	}
	return e.others[o.kind]
}

func (k *Kind) append(b []byte, inState bool) []byte {
	b = protowire.AppendVarint(b, protowire.EncodeBool(inState))
	b = protowire.AppendString(b, k.Group)
	b = protowire.AppendString(b, k.Resource)
	b = protowire.AppendVarint(b, uint64(len(k.Fields)))
	for i, f := range k.Fields {
		b = protowire.AppendString(b, f)
		b = protowire.AppendString(b, k.paths[i])
	}
	return b
}

func (o *Object) append(b []byte, kind int) []byte {
	flags := uint64(0)
	if o.secret {
		flags |= flagSecret
	}
	if o.written != nil {
		flags |= flagWritten
	}
	b = protowire.AppendVarint(b, uint64(kind))
	b = protowire.AppendVarint(b, o.Revision)
	b = protowire.AppendVarint(b, flags)
	b = protowire.AppendVarint(b, uint64(o.at))
	if o.written == nil {
		return append(b, o.JSON...)
	}
	b = protowire.AppendBytes(b, o.JSON)
	b = protowire.AppendVarint(b, uint64(o.written.at))
	return append(b, o.written.JSON...)
}

// Importer makes a state of the records of [State.Export]: first all kinds, then all objects.
type Importer struct {
	kinds []*Kind
	state State
	last  *Object
	tree  *tree
}

// errRecord reports a record that Export does not make.
var errRecord = errors.New("objects: the record is not one of this version")

// Kind adds a kind.
func (i *Importer) Kind(record []byte) error {
	p := parts{record}
	k := &Kind{}
	inState := p.number() != 0
	k.Group, k.Resource = p.text(), p.text()
	for n := p.number(); n > 0 && p.rest != nil; n-- {
		k.Fields, k.paths = append(k.Fields, p.text()), append(k.paths, p.text())
	}
	if p.rest == nil || len(p.rest) > 0 {
		return errRecord
	}
	if i.kinds = append(i.kinds, k); inState {
		if i.state.kinds == nil {
			i.state.kinds = map[schema.GroupResource]*Kind{}
		}
		i.state.kinds[k.GroupResource] = k
	}
	return nil
}

// Object parses an object, without adding it. It copies what it keeps of the record. It is safe for concurrent use
// once all kinds have been added.
func (i *Importer) Object(record []byte) (*Object, error) {
	p := parts{record}
	kind, revision, flags, at := p.number(), p.number(), p.number(), p.number()
	if p.rest == nil || kind >= uint64(len(i.kinds)) || flags > flagSecret|flagWritten {
		return nil, errRecord
	}
	k := i.kinds[kind]
	if flags&flagWritten == 0 {
		return k.restore(bytes.Clone(p.rest), at, revision, flags&flagSecret != 0)
	}
	shown, writtenAt := p.bytes(), p.number()
	if p.rest == nil {
		return nil, errRecord
	}
	n := len(shown)
	both := slices.Concat(shown, p.rest) // one allocation
	o, err := k.restore(both[:n:n], at, revision, flags&flagSecret != 0)
	if err != nil {
		return nil, err
	}
	if o.written, err = k.restore(both[n:], writtenAt, revision, o.secret); err != nil {
		return nil, err
	}
	if o.written.key() != o.key() || o.written.UID != o.UID {
		return nil, fmt.Errorf("objects: %v is stored as another object", o.key())
	}
	return o, nil
}

// restore makes an object of its JSON with the resourceVersion, which it keeps.
func (k *Kind) restore(json []byte, at, revision uint64, secret bool) (*Object, error) {
	o := &Object{Revision: revision, JSON: json, kind: k, secret: secret}
	metadata := gjson.Get(view(json), "metadata")
	if !metadata.IsObject() || metadata.Index == 0 || at != uint64(metadata.Index+1) {
		return nil, errRecord
	}
	o.at = metadata.Index + 1
	var text [len(versionBefore) + 20 + len(versionAfter)]byte
	version := append(strconv.AppendUint(append(text[:0], versionBefore...), revision, 10), versionAfter...)
	if o.n = len(version); !bytes.HasPrefix(json[o.at:], version) {
		return nil, errRecord
	}
	o.readMetadata(metadata)
	o.fields = k.values(json)
	return o, nil
}

// Add adds an object that Object returned. Objects must be added in the order of their records.
func (i *Importer) Add(o *Object) error {
	r := o.kind.GroupResource
	if i.last == nil || i.last.kind.GroupResource != r {
		if i.last != nil && compareResources(i.last.kind.GroupResource, r) > 0 {
			return fmt.Errorf("objects: %v is not in order", r)
		}
		i.tree = newTree()
		if i.state.trees == nil {
			i.state.trees = map[schema.GroupResource]*tree{}
		}
		i.state.trees[r] = i.tree
	} else if !lessObject(i.last, o) {
		return fmt.Errorf("objects: %v of %v is not in order", o.key(), r)
	}
	i.tree.Load(o)
	i.last = o
	return nil
}

// State returns the state of a revision that has all objects added so far. The importer must not be used afterwards.
func (i *Importer) State(revision uint64) *State {
	i.state.Revision = revision
	return &i.state
}

// DescribeRecord returns the resource, the name and the revision of the object of a record that Export made of this
// state.
func (s *State) DescribeRecord(record []byte) (string, error) {
	i := Importer{kinds: s.exported(s.resources()).all}
	o, err := i.Object(record)
	if err != nil {
		return "", err
	}
	name := o.Name
	if o.Namespace != "" {
		name = o.Namespace + "/" + o.Name
	}
	return fmt.Sprintf("%s %s at revision %d", o.kind.GroupResource, name, o.Revision), nil
}

// Restore makes a state the current one of a store that is new; no other store may have the state. The changes before it are not in memory, so that
// watches from earlier revisions get [ErrExpired].
func (s *Store) Restore(state *State) {
	s.mu.Lock()
	defer s.mu.Unlock()
	state.store = s
	s.state.Store(state)
	s.revision, s.floor, s.base = state.Revision, state.Revision, state.Revision
	s.offered.Store(state.Revision)
	for _, f := range s.feeds {
		f.floor = state.Revision
	}
}

// parts reads the parts of a record. After a part that is not there, rest is nil.
type parts struct{ rest []byte }

func (p *parts) number() uint64 {
	v, n := protowire.ConsumeVarint(p.rest)
	p.skip(n)
	return v
}

func (p *parts) bytes() []byte {
	v, n := protowire.ConsumeBytes(p.rest)
	p.skip(n)
	return v
}

func (p *parts) text() string { return string(p.bytes()) }

func (p *parts) skip(n int) {
	if n < 0 || p.rest == nil {
		p.rest = nil
	} else {
		p.rest = p.rest[n:]
	}
}
