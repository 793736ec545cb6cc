package rendered

import (
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/tidwall/gjson"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"stele.dev/stele/core/commit"
	"stele.dev/stele/projections/objects"
)

// State is all objects of a kind at one revision. It is immutable and safe for concurrent use.
type State struct {
	kind    *Kind
	entries []*Entry // sorted by name
	places  []place  // sorted by namespace
}

// place is a namespace, or "" for objects without a namespace, and the revision of the objects in it.
type place struct {
	namespace string
	since     uint64
	activated time.Time       // activation of the policy
	in        *objects.Object // the namespace; nil if there is none
}

// created returns the creation time of the objects in a place: the activation of their policy, or the creation of
// their namespace if that is later.
func (p *place) created() metav1.Time {
	at := metav1.NewTime(p.activated.Truncate(time.Second).UTC())
	if p.in != nil {
		if made, err := time.Parse(time.RFC3339, gjson.GetBytes(p.in.JSON, "metadata.creationTimestamp").String()); err == nil && made.After(at.Time) {
			at = metav1.NewTime(made.UTC())
		}
	}
	return at
}

// At returns the state of a kind under the policy of a tip, with the namespaces that o has.
func At(k *Kind, tip *commit.Tip, o *objects.State) *State {
	activated := tip.PolicyRevision()
	s := &State{kind: k, entries: k.Entries(tip.Policy.Form())}
	slices.SortFunc(s.entries, func(a, b *Entry) int { return strings.Compare(a.Name, b.Name) })
	if !k.Version.Kind.Namespaced {
		s.places = []place{{"", activated, tip.Activated, nil}}
		return s
	}
	for ns := range o.List(commit.Namespaces, &objects.Selection{}, "", "") {
		s.places = append(s.places, place{ns.Name, max(activated, ns.Revision), tip.Activated, ns})
	}
	return s
}

// Get returns an object, or nil.
func (s *State) Get(namespace, name string) *objects.Object {
	for o := range s.List(&objects.Selection{Namespace: namespace, Name: name}) {
		return o
	}
	return nil
}

// List yields the objects that a selection matches, ordered by namespace and name.
func (s *State) List(sel *objects.Selection) iter.Seq[*objects.Object] {
	return s.list(sel, func(place) bool { return true })
}

// list is like List, for the places that the function selects.
func (s *State) list(sel *objects.Selection, in func(place) bool) iter.Seq[*objects.Object] {
	return func(yield func(*objects.Object) bool) {
		for _, p := range s.places {
			if sel.Namespace != "" && sel.Namespace != p.namespace || !in(p) {
				continue
			}
			for _, e := range s.entries {
				if sel.Name != "" && sel.Name != e.Name || p.namespace != "" && !e.In(p.namespace) {
					continue
				}
				if o := e.object(s.kind, p); sel.Matches(o) && !yield(o) {
					return
				}
			}
		}
	}
}

// revisionOf returns the revision of a place, 0 if the place does not exist.
func (s *State) revisionOf(namespace string) uint64 {
	i, found := slices.BinarySearchFunc(s.places, namespace, func(p place, name string) int { return strings.Compare(p.namespace, name) })
	if !found {
		return 0
	}
	return s.places[i].since
}
