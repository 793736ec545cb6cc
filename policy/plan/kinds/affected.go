package kinds

import (
	"bytes"
	"cmp"
	"encoding/json"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/plan"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/jsonvalue"
	"stele.dev/stele/schemas/program"
)

// ChangedField is a field whose default or admitted values differ between the two policies, or that only one of them
// has.
type ChangedField struct {
	// Path is the path as findings have it: spec.tier, spec.ports[].name, spec.labels[*].
	Path string
	// Steps are the names of the path; [schemas.Any] stands for any item of a list and any value of a map.
	Steps []string
	// Version is the version of the kind.
	Version string
	// Before and After are the nodes of the field. There are several if alternatives or conditions declare it, and
	// none if that side does not have it. See [Admits].
	Before, After []*schemas.Node
	// OldDefault and NewDefault are what a missing field gets, as JSON; nil if it gets nothing, or if it depends on
	// other fields.
	OldDefault, NewDefault json.RawMessage
	// Needed reports whether the new policy refuses objects that have the parent of the field and not the field.
	Needed bool
}

// DefaultChanged reports whether a missing field gets another value.
func (f *ChangedField) DefaultChanged() bool { return !bytes.Equal(f.OldDefault, f.NewDefault) }

// ValuesChanged reports whether the field may admit other values, or is on one side only.
func (f *ChangedField) ValuesChanged() bool {
	return !slices.EqualFunc(f.Before, f.After, sameOwn)
}

// Admits reports whether one of the nodes admits a value, decoded JSON as package jsonvalue makes it. ok is false if
// that cannot be told without CUE, or without the rest of the object.
func Admits(nodes []*schemas.Node, value any) (admitted, ok bool) {
	ok = true
	for _, n := range nodes {
		if !isIndependent(n) {
			ok = false
			continue
		}
		c, err := program.NewChecker(n)
		if err != nil {
			ok = false
			continue
		}
		if len(c.Validate(value)) == 0 {
			return true, true
		}
	}
	return false, ok
}

// Affected returns the fields whose default or admitted values differ, by the kind that both policies serve. The fields
// of a kind are sorted by path and version. A field is changed if its own rules are: a struct or a list is not changed
// because a field in it is.
func Affected(s plan.Sides) map[schema.GroupResource][]ChangedField {
	all := map[schema.GroupResource][]ChangedField{}
	for _, pair := range pairs(s) {
		for _, v := range pair.versions() {
			was, is := declared(v.was.Schema), declared(v.is.Schema)
			for _, path := range slices.Sorted(maps.Keys(union(was, is))) {
				f := changed(was[path], is[path])
				if f.DefaultChanged() || f.ValuesChanged() || f.Needed != was[path].needed() {
					f.Path, f.Version = path, v.is.Name
					all[pair.is.GroupResource()] = append(all[pair.is.GroupResource()], f)
				}
			}
		}
		slices.SortStableFunc(all[pair.is.GroupResource()], func(a, b ChangedField) int {
			return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(a.Version, b.Version))
		})
	}
	return all
}

// KindsToTry returns the kinds whose stored objects the new policy might refuse or show otherwise because of their
// schemas, validations or scales, sorted. It compares forms, so it may name a kind of which nothing differs in meaning; it
// leaves out no kind that differs. Kinds that only one policy has are not among them, and neither are kinds that show the
// objects of another kind.
func KindsToTry(s plan.Sides) []schema.GroupResource {
	var try []schema.GroupResource
	for _, pair := range pairs(s) {
		if pair.is.Of == nil && pair.differs() {
			try = append(try, pair.is.GroupResource())
		}
	}
	slices.SortFunc(try, func(a, b schema.GroupResource) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Resource, b.Resource))
	})
	return try
}

// A pair is a kind that both policies have.
type pair struct{ was, is *policy.Kind }

// A versionPair is two versions of a kind whose objects are comparable.
type versionPair struct{ was, is *policy.Version }

func pairs(s plan.Sides) (found []pair) {
	if s.From == nil || s.To == nil {
		return nil
	}
	for _, is := range s.To.Kinds() {
		if was := s.From.Kind(is.GroupResource()); was != nil {
			found = append(found, pair{was, is})
		}
	}
	return found
}

// versions returns the versions that both kinds serve or store. If there are none, it returns the storage versions.
func (p pair) versions() (found []versionPair) {
	for _, is := range p.is.Versions {
		for _, was := range p.was.Versions {
			if was.Name == is.Name && (was.Served && is.Served || was.Name == p.was.StorageVersion && is.Name == p.is.StorageVersion) {
				found = append(found, versionPair{was, is})
			}
		}
	}
	if found == nil {
		found = []versionPair{{p.was.Storage(), p.is.Storage()}}
	}
	return found
}

func (p pair) differs() bool {
	if p.was.StorageVersion != p.is.StorageVersion || p.was.Namespaced != p.is.Namespaced {
		return true
	}
	for _, v := range p.versions() {
		if !schemas.Same(v.was.Schema, v.is.Schema) || !slices.EqualFunc(v.was.Rules, v.is.Rules, sameRule) ||
			(v.was.Scale == nil) != (v.is.Scale == nil) || v.was.Scale != nil && *v.was.Scale != *v.is.Scale {
			return true
		}
	}
	return false
}

// A declaration is what a schema says of one path.
type declaration struct {
	steps    []string
	nodes    []*schemas.Node
	presence []schemas.Presence // of the fields; empty for items and values of maps
	absent   json.RawMessage
}

// declared returns what a schema says of each path in it.
func declared(n *schemas.Node) map[string]*declaration {
	all := map[string]*declaration{}
	declareAt(all, route{}, n, nil)
	return all
}

func declareAt(all map[string]*declaration, r route, n *schemas.Node, f *schemas.Field) {
	if n == nil {
		return
	}
	d := all[r.String()]
	if d == nil {
		d = &declaration{steps: r.steps()}
		all[r.String()] = d
	}
	d.nodes = append(d.nodes, n)
	if f != nil {
		d.presence = append(d.presence, f.Presence)
		if d.absent == nil {
			d.absent = absent(f)
		}
	}
	if n.List != nil {
		for _, item := range n.List.Each() {
			declareAt(all, r.items(), item, nil)
		}
	}
	structs := n.Structs()
	if n.Union != nil && n.Struct != nil {
		structs = structs[1:] // the struct of the node repeats what the arms say
	}
	for _, s := range structs {
		for _, f := range s.EveryField() {
			declareAt(all, r.field(f.Name), f.Schema, &f)
		}
		for _, p := range s.Patterns {
			declareAt(all, r.values(), p.Value, nil)
		}
	}
}

func (d *declaration) needed() bool {
	return d != nil && d.absent == nil && len(d.presence) > 0 && len(d.presence) == len(d.nodes) &&
		!slices.Contains(d.presence, schemas.Optional) && !slices.ContainsFunc(d.nodes, func(n *schemas.Node) bool { return n.From != nil })
}

func changed(was, is *declaration) ChangedField {
	var f ChangedField
	if was != nil {
		f.Before, f.OldDefault, f.Steps = was.nodes, was.absent, was.steps
	}
	if is != nil {
		f.After, f.NewDefault, f.Steps = is.nodes, is.absent, is.steps
	}
	f.Needed = is.needed()
	return f
}

// absent returns what a missing field gets, as canonical JSON, or nil.
func absent(f *schemas.Field) json.RawMessage {
	if f.Presence != schemas.Regular || f.Schema.From != nil {
		return nil
	}
	if d := f.Schema.Default; d != nil {
		if canonical, err := jsonvalue.Canonical(d); err == nil {
			return canonical
		}
		return d
	}
	if f.Schema.Kinds&schemas.StructKind == 0 && f.Schema.Fallback == nil {
		return nil
	}
	x, ok := program.Absent(f)
	if !ok {
		return nil
	}
	text, err := json.Marshal(x)
	if err != nil {
		return nil
	}
	return text
}

func union(a, b map[string]*declaration) map[string]bool {
	all := map[string]bool{}
	for path := range a {
		all[path] = true
	}
	for path := range b {
		all[path] = true
	}
	return all
}

// isIndependent reports whether a node can be checked without CUE and without the rest of the object.
func isIndependent(n *schemas.Node) bool {
	ok := true
	n.Visit("", func(_ string, n *schemas.Node) {
		ok = ok && n.Fallback == nil && n.From == nil && (n.Union == nil || n.Union.Ambiguous == nil)
	})
	return ok
}

// sameOwn reports whether two nodes say the same of a value, apart from the fields and items in it.
func sameOwn(a, b *schemas.Node) bool { return schemas.Same(ownConstraints(a), ownConstraints(b)) }

// ownConstraints returns a node without the fields and items in it, and without what does not decide.
func ownConstraints(n *schemas.Node) *schemas.Node {
	o := *n
	o.Message, o.Default, o.Immutable, o.Sensitive = "", nil, nil, false
	if n.List != nil {
		l := *n.List
		l.Items, l.Prefix, l.Rest = nil, nil, nil
		o.List = &l
	}
	if n.Struct != nil {
		s := *n.Struct
		s.Fields, s.Patterns, s.Conditions = nil, nil, nil
		o.Struct = &s
	}
	o.Union = nil
	o.Scalars = slices.Clone(n.Scalars)
	for i := range o.Scalars { // the order of values does not matter
		s := &o.Scalars[i]
		s.Enum = slices.Clone(s.Enum)
		slices.SortFunc(s.Enum, func(a, b json.RawMessage) int { return bytes.Compare(a, b) })
	}
	return &o
}

// sameRule reports whether two validations decide the same.
func sameRule(a, b schemas.Rule) bool {
	return a.Path == b.Path && a.Rule == b.Rule && a.OptionalOldSelf == b.OptionalOldSelf
}
