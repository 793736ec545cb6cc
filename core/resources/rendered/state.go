package rendered

import (
	"cmp"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/tidwall/gjson"
	"stele.dev/stele/core/commit"
	"stele.dev/stele/projections/objects"
)

// State is all objects of a kind at one revision. It is immutable and safe for concurrent use.
type State struct {
	kind     *Kind
	in       activation
	entries  []*Entry       // sorted by name
	places   []place        // sorted by namespace
	overlays *objects.State // has no other objects: a watch keeps a State, and must not keep all objects with it
}

// place is a namespace, or "" for objects without a namespace.
type place struct {
	namespace string
	in        *objects.Object // the namespace; nil if there is none
}

// created returns when the namespace was created.
func (p *place) created() time.Time {
	made, err := time.Parse(time.RFC3339, gjson.GetBytes(p.in.JSON, "metadata.creationTimestamp").String())
	if err != nil {
		return time.Time{}
	}
	return made.UTC()
}

// item is an object of a state that is not rendered yet.
type item struct {
	*place
	entry *Entry
	version
}

// hidden reports whether clients do not see the object, although the policy has it.
func (x *item) hidden() bool { return x.overlay != nil && x.overlay.hidden }

// At returns the state of a kind under the policy of a tip, with the namespaces and the overlays that o has.
func At(k *Kind, tip *commit.Tip, o *objects.State) *State {
	s := &State{kind: k, in: activationOf(tip), entries: k.Entries(tip.Policy.Base().Form()), overlays: o.Only(k.Version.Kind.GroupResource())}
	slices.SortFunc(s.entries, func(a, b *Entry) int { return strings.Compare(a.Name, b.Name) })
	if !k.Version.Kind.Namespaced {
		s.places = []place{{}}
		return s
	}
	for ns := range o.List(commit.Namespaces, &objects.Selection{}, "", "") {
		s.places = append(s.places, place{ns.Name, ns})
	}
	return s
}

// Get returns an object, or nil.
func (s *State) Get(namespace, name string) *objects.Object {
	if x := s.find(namespace, name); x != nil && !x.hidden() {
		return s.object(*x)
	}
	return s.brought(namespace, name)
}

// find returns the object of a name, also if it is hidden, or nil.
func (s *State) find(namespace, name string) *item {
	for x := range s.items(&objects.Selection{Namespace: namespace, Name: name}, func(place) bool { return true }) {
		if x.namespace == namespace {
			return &x
		}
	}
	return nil
}

// List yields the objects that a selection matches, ordered by namespace and name.
func (s *State) List(sel *objects.Selection) iter.Seq[*objects.Object] {
	return func(yield func(*objects.Object) bool) {
		next, stop := iter.Pull(s.allBrought(sel))
		defer stop()
		brought, more := next()
		for x := range s.items(sel, func(place) bool { return true }) {
			for ; more && cmp.Or(strings.Compare(brought.Namespace, x.namespace), strings.Compare(brought.Name, x.entry.Name)) < 0; brought, more = next() {
				if sel.Matches(brought) && !yield(brought) {
					return
				}
			}
			if x.hidden() {
				continue
			}
			if o := s.object(x); sel.Matches(o) && !yield(o) {
				return
			}
		}
		for ; more; brought, more = next() {
			if sel.Matches(brought) && !yield(brought) {
				return
			}
		}
	}
}

// brought returns an object that the API brought, or nil.
func (s *State) brought(namespace, name string) *objects.Object {
	if s.kind.Brought == nil {
		return nil
	}
	o := s.overlays.Get(s.kind.Version.Kind.GroupResource(), namespace, name)
	if o == nil || s.has(namespace, name) || !s.kind.Brought(o) {
		return nil
	}
	return o
}

// has reports whether the policy has an object.
func (s *State) has(namespace, name string) bool {
	i, found := slices.BinarySearchFunc(s.entries, name, func(e *Entry, name string) int { return strings.Compare(e.Name, name) })
	if namespace == "" || !found {
		return found
	}
	for ; i < len(s.entries) && s.entries[i].Name == name; i++ {
		if s.entries[i].In(namespace) {
			return true
		}
	}
	return false
}

// allBrought yields the objects that the API brought, with the namespace and name of a selection, ordered by namespace and name.
func (s *State) allBrought(sel *objects.Selection) iter.Seq[*objects.Object] {
	return func(yield func(*objects.Object) bool) {
		if s.kind.Brought == nil {
			return
		}
		for o := range s.overlays.List(s.kind.Version.Kind.GroupResource(), &objects.Selection{Namespace: sel.Namespace, Name: sel.Name}, "", "") {
			if s.kind.Brought(o) && !s.has(o.Namespace, o.Name) && !yield(o) {
				return
			}
		}
	}
}

// items yields the objects, also hidden ones, of the places that the function selects, with the namespace and name of a selection.
func (s *State) items(sel *objects.Selection, in func(place) bool) iter.Seq[item] {
	return func(yield func(item) bool) {
		places := s.places
		if sel.Namespace != "" {
			i, found := s.place(sel.Namespace)
			if !found {
				return
			}
			places = places[i : i+1]
		}
		for _, p := range places {
			if !in(p) {
				continue
			}
			for _, e := range s.entries {
				if sel.Name != "" && sel.Name != e.Name || p.namespace != "" && !e.In(p.namespace) {
					continue
				}
				if !yield(item{&p, e, s.version(e, &p)}) {
					return
				}
			}
		}
	}
}

// object renders an object of the state.
func (s *State) object(x item) *objects.Object { return x.entry.object(s.kind, x.namespace, x.version) }

// version returns the version of an object in a place. A namespace that has changed after the rule counts, because it may have been
// created then.
func (s *State) version(e *Entry, p *place) version {
	l := s.in.lineage(s.kind, e)
	if p.in == nil {
		return s.over(version{created: s.in.time(l.Since), revision: l.Changed, generation: l.Generation, source: l.Source}, e, p, l.Since)
	}
	from := since(&l, p.namespace)
	v := version{created: s.in.time(from), revision: max(l.Changed, from, p.in.Revision), generation: l.Generation, source: l.Source}
	if made := p.created(); made.After(v.created) {
		v.created = made
	}
	return s.over(v, e, p, from)
}

// over returns a version with what clients have written beside the object since it exists.
func (s *State) over(v version, e *Entry, p *place, since uint64) version {
	if v.overlay = s.overlay(e, p, since); v.overlay != nil {
		v.revision = max(v.revision, v.overlay.revision)
	}
	return v
}

// place returns the index of a namespace among the places, and whether it exists.
func (s *State) place(namespace string) (index int, found bool) {
	return slices.BinarySearchFunc(s.places, namespace, func(p place, name string) int { return strings.Compare(p.namespace, name) })
}

// revisionOf returns the revision of the namespace of a place, 0 if the place does not exist.
func (s *State) revisionOf(namespace string) uint64 {
	i, found := s.place(namespace)
	if !found {
		return 0
	}
	if in := s.places[i].in; in != nil {
		return in.Revision
	}
	return 1
}
