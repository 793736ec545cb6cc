package fromcue_test

import (
	"context"
	"encoding/json"
	"testing"

	crdvalidation "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/openapi"
)

// CheckList rejects exactly what Kubernetes rejects in a CustomResourceDefinition.
func TestListTypesAreThoseOfKubernetes(t *testing.T) {
	text := &schemas.Node{Kinds: schemas.StringKind}
	fields := func(presence schemas.Presence, key *schemas.Node) *schemas.Node {
		return &schemas.Node{Kinds: schemas.StructKind, Struct: &schemas.Struct{Fields: []schemas.Field{{Name: "name", Presence: presence, Schema: key}, {Name: "port", Presence: schemas.Required, Schema: &schemas.Node{Kinds: schemas.IntegerKind}}}}}
	}
	with := func(n *schemas.Node, change func(*schemas.Node)) *schemas.Node { change(n); return n }
	for _, test := range []struct {
		name string
		list schemas.List
		want bool
	}{
		{"atomic", schemas.List{Type: schemas.ListAtomic, Items: text}, true},
		{"atomic with keys", schemas.List{Type: schemas.ListAtomic, MapKeys: []string{"name"}, Items: fields(schemas.Required, text)}, false},
		{"a type of our own", schemas.List{Type: "bag", Items: text}, false},
		{"a set of strings", schemas.List{Type: schemas.ListSet, Items: text}, true},
		{"a set of integers or strings", schemas.List{Type: schemas.ListSet, Items: &schemas.Node{Kinds: schemas.IntegerKind | schemas.StringKind}}, true},
		{"a set of nulls", schemas.List{Type: schemas.ListSet, Items: &schemas.Node{Kinds: schemas.StringKind | schemas.NullKind}}, false},
		{"a set of anything", schemas.List{Type: schemas.ListSet, Items: &schemas.Node{Kinds: schemas.AnyKind}}, false},
		{"a set of structs", schemas.List{Type: schemas.ListSet, Items: fields(schemas.Required, text)}, false},
		{"a set of atomic structs", schemas.List{Type: schemas.ListSet, Items: with(fields(schemas.Required, text), func(n *schemas.Node) { n.Struct.Type = schemas.MapAtomic })}, true},
		{"a set of lists", schemas.List{Type: schemas.ListSet, Items: &schemas.Node{Kinds: schemas.ListKind, List: &schemas.List{Items: text}}}, true},
		{"a set of sets", schemas.List{Type: schemas.ListSet, Items: &schemas.Node{Kinds: schemas.ListKind, List: &schemas.List{Type: schemas.ListSet, Items: text}}}, false},
		{"a map", schemas.List{Type: schemas.ListMap, MapKeys: []string{"name"}, Items: fields(schemas.Required, text)}, true},
		{"a map by two keys", schemas.List{Type: schemas.ListMap, MapKeys: []string{"name", "port"}, Items: fields(schemas.Required, text)}, true},
		{"a map by a key with a default", schemas.List{Type: schemas.ListMap, MapKeys: []string{"name"}, Items: fields(schemas.Regular, &schemas.Node{Kinds: schemas.StringKind, Default: json.RawMessage(`"a"`)})}, true},
		{"a map by an optional key", schemas.List{Type: schemas.ListMap, MapKeys: []string{"name"}, Items: fields(schemas.Optional, text)}, false},
		{"a map by a key that may be null", schemas.List{Type: schemas.ListMap, MapKeys: []string{"name"}, Items: fields(schemas.Required, &schemas.Node{Kinds: schemas.StringKind | schemas.NullKind})}, false},
		{"a map by a struct", schemas.List{Type: schemas.ListMap, MapKeys: []string{"name"}, Items: fields(schemas.Required, &schemas.Node{Kinds: schemas.StructKind})}, false},
		{"a map by what is not there", schemas.List{Type: schemas.ListMap, MapKeys: []string{"id"}, Items: fields(schemas.Required, text)}, false},
		{"a map by a key twice", schemas.List{Type: schemas.ListMap, MapKeys: []string{"name", "name"}, Items: fields(schemas.Required, text)}, false},
		{"a map without keys", schemas.List{Type: schemas.ListMap, Items: fields(schemas.Required, text)}, false},
		{"a map of strings", schemas.List{Type: schemas.ListMap, MapKeys: []string{"name"}, Items: text}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			plain := test.list
			plain.Type, plain.MapKeys = "", nil
			form := func(l *schemas.List) *schemas.Node {
				return &schemas.Node{Kinds: schemas.StructKind, Struct: &schemas.Struct{Fields: []schemas.Field{{Name: "list", Presence: schemas.Optional, Schema: &schemas.Node{Kinds: schemas.ListKind, List: l}}}}}
			}
			_, props := structuralSchema(t, openapi.Of(form(&plain)))
			list := props.Properties["list"]
			list.XListType, list.XListMapKeys = &test.list.Type, test.list.MapKeys
			if items := test.list.Items; items.List != nil && items.List.Type != "" {
				list.Items.Schema.XListType = &items.List.Type
			}
			props.Properties["list"] = list
			theirs := crdvalidation.ValidateCustomResourceDefinition(context.Background(), definitionOf(props))
			ours := schemas.CheckList(nil, &test.list)
			if items := test.list.Items; items.List != nil {
				ours = append(ours, schemas.CheckList(nil, items.List)...)
			}
			if (len(theirs) == 0) != test.want || (len(ours) == 0) != test.want {
				t.Errorf("%v; Kubernetes says %d errors", ours.ToAggregate(), len(theirs))
			}
		})
	}
}
