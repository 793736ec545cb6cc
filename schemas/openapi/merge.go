package openapi

import (
	"sync"

	kubernetes "k8s.io/apiextensions-apiserver/pkg/generated/openapi"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/schemaconv"
	"k8s.io/kube-openapi/pkg/validation/spec"
	smd "sigs.k8s.io/structured-merge-diff/v6/schema"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/program"
)

// MergeType returns the type of objects for server-side apply (KEP-555). It says which lists and maps
// are merged and which are replaced, as Kubernetes derives it from the OpenAPI of the same form. Each
// call makes a new value, which is safe for concurrent use.
func MergeType(n *schemas.Node) typed.ParseableType {
	const name = "object"
	root := smd.Atom{Map: mergeMap(n, true, false)}
	root.Map.Fields = append(root.Map.Fields, aboutObjects()...)
	types := mergeTypesOfMetadata()
	parser := typed.Parser{Schema: smd.Schema{Types: append(types[:len(types):len(types)], smd.TypeDef{Name: name, Atom: root})}}
	return parser.Type(name)
}

// The types of values without a schema: replaced as a whole, or merged by parts.
var (
	untyped = "__untyped_atomic_"
	deduced = "__untyped_deduced_"
)

// mergeTypesOfMetadata are the types of metadata and of values without a schema.
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
		panic(err) // Kubernetes' types are compiled in and valid
	}
	return converted.Types
})

var metadataModel = metav1.ObjectMeta{}.OpenAPIModelName()

// aboutObjects returns the fields that every object has.
func aboutObjects() []smd.StructField {
	text := smd.TypeRef{Inlined: scalarAtom(smd.String)}
	return []smd.StructField{{Name: "apiVersion", Type: text}, {Name: "kind", Type: text}, {Name: "metadata", Type: smd.TypeRef{NamedType: &metadataModel}}}
}

func scalarAtom(s smd.Scalar) smd.Atom { return smd.Atom{Scalar: &s} }

// merge returns the type of a value. keeps says that an enclosing value preserves unknown fields, and so
// this value does too.
func merge(n *schemas.Node, keeps bool) smd.TypeRef {
	return smd.TypeRef{Inlined: mergeAtom(n, keeps), Nullable: n.Kinds.Has(schemas.NullKind)}
}

func mergeAtom(n *schemas.Node, keeps bool) smd.Atom {
	switch n.Kinds &^ schemas.NullKind {
	case schemas.BoolKind:
		return scalarAtom(smd.Boolean)
	case schemas.IntegerKind, schemas.IntegerKind | schemas.NumberKind:
		return scalarAtom(smd.Numeric)
	case schemas.StringKind:
		if format := textFormat(n); format != "" && format != schemas.FormatByte {
			return scalarAtom(smd.Untyped) // as upstream does
		}
		return scalarAtom(smd.String)
	case schemas.ListKind:
		return smd.Atom{List: mergeList(n, keeps)}
	case schemas.StructKind:
		return smd.Atom{Map: mergeMap(n, false, keeps)}
	}
	return anything()
}

// anything returns the type of a value that may have several kinds.
func anything() smd.Atom {
	a := scalarAtom(smd.Untyped)
	a.List = &smd.List{ElementType: smd.TypeRef{NamedType: &untyped}, ElementRelationship: smd.Atomic}
	a.Map = &smd.Map{ElementType: smd.TypeRef{NamedType: &deduced}}
	return a
}

func mergeList(n *schemas.Node, keeps bool) *smd.List {
	l := &smd.List{ElementRelationship: smd.Atomic, ElementType: smd.TypeRef{Inlined: anything(), Nullable: true}}
	if n.List == nil {
		return l
	}
	if n.List.Items != nil {
		l.ElementType = merge(n.List.Items, keeps)
	}
	switch of := n.List; {
	case of.Type == "" || of.Type == schemas.ListAtomic || schemas.CheckList(nil, of) != nil:
	case of.Type == schemas.ListMap:
		l.ElementRelationship, l.Keys = smd.Associative, of.MapKeys
	default:
		l.ElementRelationship = smd.Associative
	}
	return l
}

func mergeMap(n *schemas.Node, root, keeps bool) *smd.Map {
	m := &smd.Map{}
	if n.Embedded && !root {
		m.Fields = aboutObjects()
	}
	declared := n.Struct
	if declared == nil {
		m.ElementType.NamedType = &deduced
		return m
	}
	entries, open := undeclaredFields(n, root)
	keeps = keeps || open
	for i := range declared.Fields {
		f := &declared.Fields[i]
		if n.Embedded && schemas.ServerOwned(f.Name) {
			continue
		}
		absent, fills := program.Absent(f)
		m.Fields = append(m.Fields, smd.StructField{Name: f.Name, Type: merge(f.Schema, keeps), Default: defaultOf(f, absent, fills)})
	}
	for _, f := range declared.AllFields()[len(declared.Fields):] {
		if _, err := program.NewChecker(f.Schema); err == nil {
			m.Fields = append(m.Fields, smd.StructField{Name: f.Name, Type: merge(f.Schema, keeps)})
		}
	}
	switch {
	case entries != nil:
		m.ElementType = merge(entries, keeps)
	case keeps || len(m.Fields) == 0 && !root:
		m.ElementType.NamedType = &deduced
	}
	switch declared.Type {
	case schemas.MapAtomic:
		m.ElementRelationship = smd.Atomic
	case schemas.MapGranular:
		m.ElementRelationship = smd.Separable
	}
	return m
}
