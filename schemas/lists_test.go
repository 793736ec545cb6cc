package schemas

import (
	"context"
	"encoding/json"
	"testing"

	crdvalidation "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
)

// What checkList refuses is what Kubernetes refuses in a CustomResourceDefinition.
func TestListTypesAreThoseOfKubernetes(t *testing.T) {
	text := &Node{Kinds: StringKind}
	fields := func(presence Presence, key *Node) *Node {
		return &Node{Kinds: StructKind, Struct: &Struct{Fields: []Field{{Name: "name", Presence: presence, Schema: key}, {Name: "port", Presence: Required, Schema: &Node{Kinds: IntegerKind}}}}}
	}
	with := func(n *Node, change func(*Node)) *Node { change(n); return n }
	for _, test := range []struct {
		name string
		list List
		want bool
	}{
		{"atomic", List{Type: ListAtomic, Items: text}, true},
		{"atomic with keys", List{Type: ListAtomic, MapKeys: []string{"name"}, Items: fields(Required, text)}, false},
		{"a type of our own", List{Type: "bag", Items: text}, false},
		{"a set of strings", List{Type: ListSet, Items: text}, true},
		{"a set of integers or strings", List{Type: ListSet, Items: &Node{Kinds: IntegerKind | StringKind}}, true},
		{"a set of nulls", List{Type: ListSet, Items: &Node{Kinds: StringKind | NullKind}}, false},
		{"a set of anything", List{Type: ListSet, Items: &Node{Kinds: AnyKind}}, false},
		{"a set of structs", List{Type: ListSet, Items: fields(Required, text)}, false},
		{"a set of atomic structs", List{Type: ListSet, Items: with(fields(Required, text), func(n *Node) { n.Struct.Type = MapAtomic })}, true},
		{"a set of lists", List{Type: ListSet, Items: &Node{Kinds: ListKind, List: &List{Items: text}}}, true},
		{"a set of sets", List{Type: ListSet, Items: &Node{Kinds: ListKind, List: &List{Type: ListSet, Items: text}}}, false},
		{"a map", List{Type: ListMap, MapKeys: []string{"name"}, Items: fields(Required, text)}, true},
		{"a map by two keys", List{Type: ListMap, MapKeys: []string{"name", "port"}, Items: fields(Required, text)}, true},
		{"a map by a key with a default", List{Type: ListMap, MapKeys: []string{"name"}, Items: fields(Regular, &Node{Kinds: StringKind, Default: json.RawMessage(`"a"`)})}, true},
		{"a map by an optional key", List{Type: ListMap, MapKeys: []string{"name"}, Items: fields(Optional, text)}, false},
		{"a map by a key that may be null", List{Type: ListMap, MapKeys: []string{"name"}, Items: fields(Required, &Node{Kinds: StringKind | NullKind})}, false},
		{"a map by a struct", List{Type: ListMap, MapKeys: []string{"name"}, Items: fields(Required, &Node{Kinds: StructKind})}, false},
		{"a map by what is not there", List{Type: ListMap, MapKeys: []string{"id"}, Items: fields(Required, text)}, false},
		{"a map by a key twice", List{Type: ListMap, MapKeys: []string{"name", "name"}, Items: fields(Required, text)}, false},
		{"a map without keys", List{Type: ListMap, Items: fields(Required, text)}, false},
		{"a map of strings", List{Type: ListMap, MapKeys: []string{"name"}, Items: text}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			plain := test.list
			plain.Type, plain.MapKeys = "", nil
			form := func(l *List) *Node {
				return &Node{Kinds: StructKind, Struct: &Struct{Fields: []Field{{Name: "list", Presence: Optional, Schema: &Node{Kinds: ListKind, List: l}}}}}
			}
			_, props := structuralSchema(t, form(&plain).OpenAPI())
			list := props.Properties["list"]
			list.XListType, list.XListMapKeys = &test.list.Type, test.list.MapKeys
			if items := test.list.Items; items.List != nil && items.List.Type != "" {
				list.Items.Schema.XListType = &items.List.Type
			}
			props.Properties["list"] = list
			theirs := crdvalidation.ValidateCustomResourceDefinition(context.Background(), definitionOf(props))
			ours := checkList(nil, &test.list)
			if items := test.list.Items; items.List != nil {
				ours = append(ours, checkList(nil, items.List)...)
			}
			if (len(theirs) == 0) != test.want || (len(ours) == 0) != test.want {
				t.Errorf("%v; Kubernetes says %d errors", ours.ToAggregate(), len(theirs))
			}
		})
	}
}
