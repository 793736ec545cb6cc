package schemas

import (
	"sync"

	kubernetes "k8s.io/apiextensions-apiserver/pkg/generated/openapi"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/schemaconv"
	"k8s.io/kube-openapi/pkg/validation/spec"
	smd "sigs.k8s.io/structured-merge-diff/v6/schema"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
)

// MergeType is the type of the program's objects for server-side apply (KEP-555): which
// lists and maps are merged by their parts and which are replaced. It is that which
// Kubernetes derives from the OpenAPI of the same form. It is made anew each time, and
// safe for concurrent use.
func (n *Node) MergeType() typed.ParseableType {
	const name = "object"
	root := smd.Atom{Map: n.mergeMap(true, false)}
	root.Map.Fields = append(root.Map.Fields, aboutObjects()...)
	types := mergeTypesOfMetadata()
	parser := typed.Parser{Schema: smd.Schema{Types: append(types[:len(types):len(types)], smd.TypeDef{Name: name, Atom: root})}}
	return parser.Type(name)
}

// The types of what no schema is known of: as a whole, and by its parts.
var (
	untyped = "__untyped_atomic_"
	deduced = "__untyped_deduced_"
)

// mergeTypesOfMetadata are those of metadata, and with them the ones without a schema.
var mergeTypesOfMetadata = sync.OnceValue(func() []smd.TypeDef {
	definitions := kubernetes.GetOpenAPIDefinitions(func(name string) spec.Ref { return spec.MustCreateRef("#/components/schemas/" + name) })
	models := map[string]*spec.Schema{}
	var add func(name string)
	add = func(name string) {
		if models[name] != nil {
			return
		}
		def := definitions[name]
		delete(def.Schema.Extensions, common.ExtensionV2Schema)
		models[name] = &def.Schema
		for _, dependency := range def.Dependencies {
			add(dependency)
		}
	}
	add(metadataModel)
	converted, err := schemaconv.ToSchemaFromOpenAPI(models, false)
	if err != nil {
		panic(err) // Kubernetes' own types, which are in the program
	}
	return converted.Types
})

var metadataModel = metav1.ObjectMeta{}.OpenAPIModelName()

// aboutObjects are the fields that each object has.
func aboutObjects() []smd.StructField {
	text := smd.TypeRef{Inlined: scalarAtom(smd.String)}
	return []smd.StructField{{Name: "apiVersion", Type: text}, {Name: "kind", Type: text}, {Name: "metadata", Type: smd.TypeRef{NamedType: &metadataModel}}}
}

func scalarAtom(s smd.Scalar) smd.Atom { return smd.Atom{Scalar: &s} }

// merge is the type of a value. keeps: something above keeps what it does not know, and so
// does all below.
func (n *Node) merge(keeps bool) smd.TypeRef {
	return smd.TypeRef{Inlined: n.mergeAtom(keeps), Nullable: n.Kinds.Has(NullKind)}
}

func (n *Node) mergeAtom(keeps bool) smd.Atom {
	switch n.Kinds &^ NullKind {
	case BoolKind:
		return scalarAtom(smd.Boolean)
	case IntegerKind, IntegerKind | NumberKind:
		return scalarAtom(smd.Numeric)
	case StringKind:
		if format := n.textFormat(); format != "" && format != FormatByte {
			return scalarAtom(smd.Untyped) // sic
		}
		return scalarAtom(smd.String)
	case ListKind:
		return smd.Atom{List: n.mergeList(keeps)}
	case StructKind:
		return smd.Atom{Map: n.mergeMap(false, keeps)}
	}
	return anything()
}

// anything is the type where several kinds are possible.
func anything() smd.Atom {
	a := scalarAtom(smd.Untyped)
	a.List = &smd.List{ElementType: smd.TypeRef{NamedType: &untyped}, ElementRelationship: smd.Atomic}
	a.Map = &smd.Map{ElementType: smd.TypeRef{NamedType: &deduced}}
	return a
}

func (n *Node) mergeList(keeps bool) *smd.List {
	l := &smd.List{ElementRelationship: smd.Atomic, ElementType: smd.TypeRef{Inlined: anything(), Nullable: true}}
	if n.List == nil {
		return l
	}
	if n.List.Items != nil {
		l.ElementType = n.List.Items.merge(keeps)
	}
	switch of := n.List; {
	case of.Type == "" || of.Type == ListAtomic || checkList(nil, of) != nil:
	case of.Type == ListMap:
		l.ElementRelationship, l.Keys = smd.Associative, of.MapKeys
	default:
		l.ElementRelationship = smd.Associative
	}
	return l
}

func (n *Node) mergeMap(root, keeps bool) *smd.Map {
	m := &smd.Map{}
	if n.Embedded && !root {
		m.Fields = aboutObjects()
	}
	declared := n.Struct
	if declared == nil {
		m.ElementType.NamedType = &deduced
		return m
	}
	entries, open := n.others(root)
	keeps = keeps || open
	for i := range declared.Fields {
		f := &declared.Fields[i]
		if n.Embedded && serverOwned(f.Name) {
			continue
		}
		m.Fields = append(m.Fields, smd.StructField{Name: f.Name, Type: f.Schema.merge(keeps), Default: f.openDefault(Absent(f))})
	}
	for _, f := range declared.AllFields()[len(declared.Fields):] {
		if _, err := NewChecker(f.Schema); err == nil {
			m.Fields = append(m.Fields, smd.StructField{Name: f.Name, Type: f.Schema.merge(keeps)})
		}
	}
	switch {
	case entries != nil:
		m.ElementType = entries.merge(keeps)
	case keeps || len(m.Fields) == 0 && !root:
		m.ElementType.NamedType = &deduced
	}
	switch declared.Type {
	case MapAtomic:
		m.ElementRelationship = smd.Atomic
	case MapGranular:
		m.ElementRelationship = smd.Separable
	}
	return m
}
