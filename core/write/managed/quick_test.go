package managed

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	smd "sigs.k8s.io/structured-merge-diff/v6/schema"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
	"stele.dev/stele/policy"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/openapi"
)

// grammar makes random kinds, objects and writes.
type grammar struct {
	*rand.Rand
	schema *smd.Schema
}

func (g *grammar) chance(percent int) bool { return g.IntN(100) < percent }

func pick[T any](g *grammar, of ...T) T { return of[g.IntN(len(of))] }

// kind is a type of objects with a random spec, and a status.
func (g *grammar) kind(t testing.TB) typed.ParseableType {
	t.Helper()
	merge := openapi.MergeType(&schemas.Node{Kinds: schemas.StructKind})
	var root *smd.TypeDef
	types := append([]smd.TypeDef{}, merge.Schema.Types...)
	for i := range types {
		if types[i].Name == *merge.TypeRef.NamedType {
			root = &types[i]
		}
	}
	object := &smd.Map{Fields: append([]smd.StructField{}, root.Map.Fields...)}
	for _, name := range []string{"spec", "status", "data"} {
		object.Fields = append(object.Fields, smd.StructField{Name: name, Type: g.typeRef(3)})
	}
	root.Map = object
	return (&typed.Parser{Schema: smd.Schema{Types: types}}).Type(root.Name)
}

func (g *grammar) typeRef(depth int) smd.TypeRef {
	scalar := func(s smd.Scalar) smd.TypeRef { return smd.TypeRef{Inlined: smd.Atom{Scalar: &s}} }
	name := "__untyped_deduced_"
	deduced := smd.TypeRef{NamedType: &name}
	if depth == 0 || g.chance(25) {
		if g.chance(15) {
			return deduced
		}
		return scalar(pick(g, smd.String, smd.Numeric, smd.Boolean, smd.Untyped))
	}
	switch g.IntN(6) {
	case 0:
		return smd.TypeRef{Inlined: smd.Atom{List: &smd.List{ElementType: g.typeRef(depth - 1), ElementRelationship: smd.Atomic}}}
	case 1:
		return smd.TypeRef{Inlined: smd.Atom{List: &smd.List{ElementType: scalar(pick(g, smd.String, smd.Numeric)), ElementRelationship: smd.Associative}}}
	case 2:
		item := &smd.Map{Fields: []smd.StructField{
			{Name: "name", Type: scalar(smd.String)}, {Name: "port", Type: scalar(smd.Numeric)}, {Name: "more", Type: g.typeRef(depth - 1)}, {Name: "a", Type: scalar(smd.String)},
		}}
		if g.chance(20) {
			item.ElementRelationship = smd.Atomic
		}
		if g.chance(15) {
			item.Fields[1].Default = int64(9)
		}
		return smd.TypeRef{Inlined: smd.Atom{List: &smd.List{ElementType: smd.TypeRef{Inlined: smd.Atom{Map: item}}, ElementRelationship: smd.Associative, Keys: pick(g, []string{"name"}, []string{"port"}, []string{"port", "name"})}}}
	case 3:
		return smd.TypeRef{Inlined: smd.Atom{Map: &smd.Map{ElementType: g.typeRef(depth - 1)}}}
	}
	m := &smd.Map{}
	for _, name := range []string{"a", "b", "c", "name", "Z", "x-y"}[:1+g.IntN(6)] {
		m.Fields = append(m.Fields, smd.StructField{Name: name, Type: g.typeRef(depth - 1)})
	}
	if g.chance(15) {
		m.ElementRelationship = smd.Atomic
	}
	if g.chance(10) {
		m.ElementType = deduced
	}
	return smd.TypeRef{Inlined: smd.Atom{Map: m}}
}

func (g *grammar) scalar(s smd.Scalar) any {
	switch s {
	case smd.String:
		return pick(g, "x", "y", "", "a<b", `q"q`, "é", "a b", "zz")
	case smd.Numeric:
		return pick[any](g, int64(1), int64(9), int64(10), int64(-3), 1.5, 1.0)
	case smd.Boolean:
		return g.chance(50)
	}
	return g.scalar(pick(g, smd.String, smd.Numeric, smd.Boolean))
}

func (g *grammar) value(of smd.TypeRef) any {
	if g.chance(2) {
		return pick[any](g, nil, "odd", int64(4), map[string]any{}, []any{})
	}
	atom, _ := g.schema.Resolve(of)
	if atom.Scalar != nil && (atom.Map == nil || g.chance(50)) {
		return g.scalar(*atom.Scalar)
	}
	if atom.List != nil && (atom.Map == nil || g.chance(30)) {
		list := []any{}
		for range g.IntN(4) {
			list = append(list, g.value(atom.List.ElementType))
		}
		return list
	}
	m := map[string]any{}
	for _, f := range atom.Map.Fields {
		if g.chance(75) {
			m[f.Name] = g.value(f.Type)
		}
	}
	if (atom.Map.ElementType != smd.TypeRef{}) {
		for range g.IntN(3) {
			m[pick(g, "k", "l", "m<", "n.o/p", "")] = g.value(atom.Map.ElementType)
		}
	} else if g.chance(1) {
		m["unknown"] = "x"
	}
	return m
}

func (g *grammar) content(merge typed.ParseableType) map[string]any {
	atom, _ := g.schema.Resolve(merge.TypeRef)
	content := map[string]any{}
	for _, name := range []string{"spec", "status", "data"} {
		if f, _ := atom.Map.FindField(name); g.chance(85) {
			content[name] = g.value(f.Type)
		}
	}
	return content
}

// mutate changes something of a value of a type: what a leaf is, which fields or items there
// are, in which order.
func (g *grammar) mutate(of smd.TypeRef, v any) any {
	atom, _ := g.schema.Resolve(of)
	switch v := v.(type) {
	case map[string]any:
		if atom.Map == nil {
			return g.value(of)
		}
		names := slices.Sorted(maps.Keys(v))
		switch {
		case g.chance(3):
			return g.value(of)
		case g.chance(3):
			return map[string]any{}
		case len(names) > 0 && g.chance(15):
			delete(v, pick(g, names...))
		case len(names) == 0 || g.chance(20):
			if n := len(atom.Map.Fields); n > 0 && g.chance(80) {
				f := atom.Map.Fields[g.IntN(n)]
				v[f.Name] = g.value(f.Type)
			} else if (atom.Map.ElementType != smd.TypeRef{}) {
				v[pick(g, "k", "l", "new")] = g.value(atom.Map.ElementType)
			}
		default:
			name := pick(g, names...)
			if inner, ok := typeOf(atom.Map, name); ok {
				v[name] = g.mutate(inner, v[name])
			}
		}
		return v
	case []any:
		if atom.List == nil {
			return g.value(of)
		}
		switch {
		case g.chance(3):
			return []any{}
		case len(v) == 0 || g.chance(25):
			return append(v, g.value(atom.List.ElementType))
		case g.chance(20):
			i := g.IntN(len(v))
			return append(v[:i:i], v[i+1:]...)
		case g.chance(10):
			g.Shuffle(len(v), func(i, j int) { v[i], v[j] = v[j], v[i] })
		default:
			i := g.IntN(len(v))
			v[i] = g.mutate(atom.List.ElementType, v[i])
		}
		return v
	}
	return g.value(of)
}

// mutated changes something of an object.
func (g *grammar) mutated(merge typed.ParseableType, content map[string]any) map[string]any {
	atom, _ := g.schema.Resolve(merge.TypeRef)
	name := pick(g, "spec", "spec", "status", "data")
	f, _ := atom.Map.FindField(name)
	switch v, had := content[name]; {
	case !had:
		content[name] = g.value(f.Type)
	case g.chance(5):
		delete(content, name)
	default:
		content[name] = g.mutate(f.Type, v)
	}
	return content
}

// meta changes what clients write of metadata.
func (g *grammar) meta(m *metav1.ObjectMeta) {
	text := func(texts map[string]string, keys ...string) map[string]string {
		switch {
		case g.chance(10):
			return pick(g, nil, map[string]string{})
		case texts == nil:
			texts = map[string]string{}
		case g.chance(30):
			delete(texts, pick(g, keys...))
			return texts
		}
		texts[pick(g, keys...)] = pick(g, "x", "y", "")
		return texts
	}
	if g.chance(50) {
		m.Labels = text(m.Labels, "a", "b", "c", "app.kubernetes.io/name")
	}
	if g.chance(25) {
		m.Annotations = text(m.Annotations, "note", "a<b", "kubectl.kubernetes.io/last-applied-configuration")
	}
	if g.chance(20) {
		m.Finalizers = pick(g, nil, []string{"b/f", pick(g, "a/f", "c/f")}, []string{"a/f"}, []string{"c/f", "b/f", "a/f"}, []string{"a/f", "a/f"})
	}
	if g.chance(8) {
		m.OwnerReferences = []metav1.OwnerReference{{UID: types.UID(pick(g, "u", "w"))}, {UID: types.UID(pick(g, "v", "u"))}}
	}
	if g.chance(3) {
		m.DeletionTimestamp, m.DeletionGracePeriodSeconds = &metav1.Time{Time: time.Unix(1_700_000_009, 0)}, new(int64)
	}
}

func copied(o *policy.Object) *policy.Object {
	return &policy.Object{Meta: o.Meta.DeepCopy(), Content: runtime.DeepCopyJSON(o.Content)}
}

// sequence writes an object several times, and returns how often the quick way was gone, and
// how often by applying.
func sequence(t testing.TB, seed uint64) (quick, quickly int) {
	g := &grammar{Rand: rand.New(rand.NewPCG(seed, 7))}
	merge := g.kind(t)
	g.schema = merge.Schema
	kind := schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Thing"}
	versions := map[string]form{}
	of := new(policy.Kind)
	for _, v := range []string{"example.com/v1", "example.com/v2"} {
		versions[v] = form{of: of, merge: merge}
	}
	zero := map[string]any{}
	if g.chance(20) {
		zero = map[string]any{"spec": map[string]any{}, "data": pick[any](g, "", nil, map[string]any{})}
	}
	if _, err := merge.FromUnstructured(zero); err != nil {
		zero = map[string]any{}
	}
	reset := []string{"status"}
	if g.chance(30) {
		reset = nil
	}
	main := (&Fields{kind: kind, forms: versions, merge: merge, zero: zero, reset: reset}).ready()
	status := (&Fields{kind: kind, forms: versions, merge: merge, zero: zero, reset: []string{"metadata", "spec"}, subresource: "status"}).ready()
	kind.Version = "v2"
	other := (&Fields{kind: kind, forms: versions, merge: merge, zero: zero, reset: reset}).ready()
	managers := []string{"ann", "bob", "", "c/d", "ann"}
	// Somebody has what nobody manages, and what is no field.
	odd := []metav1.ManagedFieldsEntry{{Manager: "x", Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "example.com/v1", FieldsType: "FieldsV1",
		FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:generation":{},"f:labels":{"f:a":{}}},"f:spec":{"f:a":{},"f:none":{}},"f:status":{}}`)}}
	at := time.Unix(1_700_000_000, 5)
	var old *policy.Object
	var last map[string]any
	crowd, steps := 20, 12
	if g.chance(5) { // more than may be
		crowd, steps = 100, 40
	}
	for step := range steps {
		at = at.Add(time.Duration(g.IntN(3)) * time.Second)
		if old != nil && g.chance(2) { // the type was another one once
			old = copied(old)
			old.Content[pick(g, "spec", "data")] = pick[any](g, "odd", []any{map[string]any{}}, map[string]any{"a": []any{int64(1), nil}})
		}
		f := main
		updated := &policy.Object{Meta: &metav1.ObjectMeta{Name: "a", Namespace: "default", UID: "u"}, Content: g.content(merge)}
		switch {
		case old == nil && g.chance(60):
			if g.meta(updated.Meta); reset != nil {
				delete(updated.Content, "status") // as the pipeline does
			}
		case old == nil || g.chance(40): // server-side apply
			applied := g.content(merge)
			if last != nil && g.chance(70) { // the same again, or nearly so
				if applied = runtime.DeepCopyJSON(last); g.chance(60) {
					applied = g.mutated(merge, applied)
				}
			} else if old != nil && g.chance(50) { // what is there, or nearly so
				if applied = runtime.DeepCopyJSON(old.Content); g.chance(60) {
					applied = g.mutated(merge, applied)
				}
			}
			if g.chance(40) {
				fields := map[string]any{"name": "a"}
				if g.chance(60) {
					fields["labels"] = pick[any](g, map[string]any{"c": pick(g, "d", "x")}, map[string]any{"a": "x", "b": "y"}, map[string]any{})
				}
				if g.chance(30) {
					fields["annotations"] = map[string]any{pick(g, "note", "kubectl.kubernetes.io/last-applied-configuration"): "x"}
				}
				applied["metadata"] = fields
			} else if g.chance(50) {
				delete(applied, "metadata")
			}
			f := main
			if old != nil && g.chance(20) {
				f = status
			} else if reset != nil && g.chance(90) {
				delete(applied, "status")
			}
			applied["apiVersion"], applied["kind"] = "example.com/v1", "Thing"
			manager, force := pick(g, "ann", "bob", "kubectl"), g.chance(70)
			last = applied
			var was *policy.Object
			if old != nil {
				was = copied(old)
			}
			theirs, err := f.apply(was, runtime.DeepCopyJSON(applied), manager, force, at)
			if ours, ok := f.quickApply(old, applied, manager, force, at); ok {
				quickly++
				a, _ := json.Marshal(theirs)
				if b, _ := json.Marshal(ours); string(a) != string(b) {
					before, _ := json.Marshal(old)
					what, _ := json.Marshal(applied)
					t.Fatalf("seed %d, step %d, %q applied by %q: the library (%v) has\n%s\nnot\n%s\nfor\n%s\nof\n%s", seed, step, f.subresource, manager, err, a, b, what, before)
				}
			}
			if err == nil {
				theirs.Meta.Name, theirs.Meta.Namespace, theirs.Meta.UID = "a", "default", "u" // as the pipeline does
				old = theirs
			}
			continue
		default:
			if g.chance(10) {
				f = other
			}
			content := runtime.DeepCopyJSON(old.Content)
			updated.Meta = old.Meta.DeepCopy()
			updated.Meta.ManagedFields = nil
			for range g.IntN(4) {
				content = g.mutated(merge, content)
			}
			if g.chance(30) {
				g.meta(updated.Meta)
			}
			updated.Meta.Generation += int64(g.IntN(2))
			if updated.Content = content; g.chance(30) {
				f = status
				updated = copied(old)
				if updated.Content["status"] = content["status"]; content["status"] == nil {
					delete(updated.Content, "status")
				}
			} else if was, had := old.Content["status"]; had && reset != nil {
				updated.Content["status"] = was
			} else if reset != nil {
				delete(updated.Content, "status")
			}
			switch g.IntN(8) {
			case 0:
				updated.Meta.ManagedFields = old.Meta.DeepCopy().ManagedFields
			case 1: // in the order of their names, as dynamic clients send them
				for _, e := range old.Meta.DeepCopy().ManagedFields {
					var names any
					if err := json.Unmarshal(e.FieldsV1.GetRawBytes(), &names); err != nil {
						t.Fatal(err)
					}
					text, _ := json.Marshal(names)
					e.FieldsV1.SetRawBytes(text)
					updated.Meta.ManagedFields = append(updated.Meta.ManagedFields, e)
				}
			case 2:
				if g.chance(20) {
					updated.Meta.ManagedFields = pick(g, []metav1.ManagedFieldsEntry{}, []metav1.ManagedFieldsEntry{{}}, []metav1.ManagedFieldsEntry{{Manager: "x"}}, odd)
				}
			}
		}
		manager := pick(g, managers...)
		if g.chance(crowd) {
			manager = fmt.Sprint("m", step)
		}
		theirs, ours := copied(updated), copied(updated)
		err := f.update(old, theirs, manager, at)
		if f.quick(old, ours, manager, at) {
			quick++
			a, _ := json.Marshal(theirs.Meta.ManagedFields)
			b, _ := json.Marshal(ours.Meta.ManagedFields)
			if string(a) != string(b) {
				before := "nothing"
				if old != nil {
					text, _ := json.Marshal(old)
					before = string(text)
				}
				after, _ := json.Marshal(updated)
				kinds, _ := json.Marshal(merge.Schema.Types[len(merge.Schema.Types)-1])
				t.Fatalf("seed %d, step %d, %q by %q: the library (%v) has\n%s\nnot\n%s\nfor\n%s\nto\n%s\nof\n%s", seed, step, f.subresource, manager, err, a, b, before, after, kinds)
			}
		}
		if err == nil { // else it would have been refused
			old = theirs
		}
	}
	return quick, quickly
}

// The quick way comes to what the library comes to, byte for byte.
func TestTheQuickWayIsTheLibrarys(t *testing.T) {
	quick, applied := 0, 0
	const sequences = 2000
	for seed := range uint64(sequences) {
		updates, applies := sequence(t, seed)
		quick, applied = quick+updates, applied+applies
	}
	if quick < 3*sequences || applied < sequences/3 {
		t.Errorf("the quick way was gone %d times, %d by applying: the test asks too little", quick, applied)
	}
}

// However large the sets are that clients come with, what is kept of them is not.
func TestFewSetsAreKept(t *testing.T) {
	g := &grammar{Rand: rand.New(rand.NewPCG(1, 1))}
	f := (&Fields{kind: schema.GroupVersionKind{Version: "v1", Kind: "K"}, forms: map[string]form{}, merge: g.kind(t)}).ready()
	for i := range 200 {
		text := fmt.Sprintf(`{"f:metadata":{"f:labels":{"f:%d%s":{}}}}`, i, strings.Repeat("x", 8<<10))
		e := metav1.ManagedFieldsEntry{FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(text)}
		for range 2 {
			if f.known.setOf(f, &e) == nil {
				t.Fatal("it is not decoded")
			}
		}
		kept := 0
		for encoding := range f.known.m {
			kept += len(encoding)
		}
		if kept > 256<<10 || kept == 0 {
			t.Fatalf("%d bytes are kept after %d sets", kept, i+1)
		}
	}
}

func FuzzTheQuickWay(f *testing.F) {
	f.Add(uint64(0))
	f.Fuzz(func(t *testing.T, seed uint64) { sequence(t, seed) })
}
