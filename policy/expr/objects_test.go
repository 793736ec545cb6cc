package expr_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"
	"stele.dev/stele/policy/expr"
	"stele.dev/stele/policy/stored"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/celtype"
)

func field(name string, kinds schemas.Kinds) schemas.Field {
	return schemas.Field{Name: name, Presence: schemas.Optional, Schema: &schemas.Node{Kinds: kinds}}
}

func structure(fields ...schemas.Field) *schemas.Node {
	return &schemas.Node{Kinds: schemas.StructKind, Struct: &schemas.Struct{Fields: fields}}
}

// databases is a kind with fields of each type that can be selected.
func databases() (*schemas.Kind, *celtype.Type) {
	spec := structure(field("owner", schemas.StringKind), field("size", schemas.IntegerKind), field("main", schemas.BoolKind), field("note", schemas.StringKind))
	k := &schemas.Kind{Group: "data.example.com", Plural: "databases", Kind: "Database", Namespaced: true, StorageVersion: "v1", Versions: []schemas.Version{{
		Name: "v1", Served: true, SelectableFields: []string{".spec.owner", ".spec.size", ".spec.main"},
		Schema: structure(schemas.Field{Name: "spec", Presence: schemas.Optional, Schema: spec}),
	}}}
	return k, expr.ResourceType(k, &k.Versions[0])
}

func reading(t *testing.T, own bool) *expr.Scope {
	t.Helper()
	k, of := databases()
	regions := &schemas.Kind{Group: "data.example.com", Plural: "regions", Kind: "Region", Versions: []schemas.Version{{Name: "v1", Schema: structure()}}}
	s, err := expr.Root().With(map[string]*celtype.Type{expr.VarObject: of})
	if err == nil {
		s, err = s.WithObjects([]expr.Stored{
			{Name: "databases", Kind: k, Version: &k.Versions[0], Type: of, Own: own},
			{Name: "regions", Kind: regions, Version: &regions.Versions[0], Type: expr.ResourceType(regions, &regions.Versions[0])},
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// What is wrong with reading stored objects is found when a bundle is compiled.
func TestReadingObjectsIsTypeChecked(t *testing.T) {
	for _, tc := range []struct{ text, fault string }{
		{`objects.databases.get("a", "b").hasValue()`, ""},
		{`objects.databases.get("a", "b").value().spec.size > 3`, ""},
		{`objects.databases.get("a", "b").?spec.size.orValue(1) > 3`, ""},
		{`objects.databases.where("spec.owner", object.spec.owner).others().exists()`, ""},
		{`objects.databases.namespace("a").name("b").labels({"a": "b"}).where("spec.size", 3).where("spec.main", true).count() < 3`, ""},
		{`objects.databases.labels({"a": object.metadata.name}).list().all(d, d.spec.size < 10)`, ""},
		{`objects.regions.get("eu").hasValue()`, ""},
		{`objects.databases.get("a", "b").value().spec.colour == ""`, "undefined field 'colour'"},
		{`objects.databases.get("a", "b").spec.size > 3`, "found no matching overload for '_>_' applied to '(optional_type(int), int)'"},
		{`objects.databases.get("a").hasValue()`, "get needs a namespace and a name: databases.data.example.com are in namespaces"},
		{`objects.regions.get("a", "eu").hasValue()`, "get needs a name only"},
		{`objects.regions.namespace("a").exists()`, "are not in namespaces"},
		{`objects.regions.others().exists()`, "others leaves out nothing"},
		{`objects.databases.where("spec.note", "x").exists()`, "spec.note of databases.data.example.com has no index"},
		{`objects.databases.where(object.spec.note, "x").exists()`, "the field of where must be a constant text"},
		{`objects.databases.where("spec.size", "x").exists()`, "spec.size of databases.data.example.com is a int, and is compared with a string"},
		{`objects.databases.where("spec.size", 1.5).exists()`, "found no matching overload for 'where'"},
		{`objects.databases.labels({"a": 1}).exists()`, "found no matching overload for 'labels'"},
		{`objects.database.exists()`, "undeclared reference to 'objects.database'"},
		{`objects.databases.list().all(a, objects.databases.list().all(b, a.spec.owner != b.spec.owner))`, "it may cost"},
		{`objects.databases.list()`, "its value is of type list"},
	} {
		_, fault := reading(t, true).Compile(tc.text, cel.BoolType)
		switch {
		case fault == nil && tc.fault != "":
			t.Errorf("%s compiles, want %q", tc.text, tc.fault)
		case fault != nil && (tc.fault == "" || !strings.Contains(fault.Message, tc.fault)):
			t.Errorf("%s: %s, want %q", tc.text, fault.Message, tc.fault)
		}
	}
	if _, fault := reading(t, false).Compile(`objects.databases.others().exists()`, cel.BoolType); fault == nil || fault.Line != 1 || fault.Column != 24 {
		t.Errorf("others of a kind that is not written: %+v", fault)
	}
}

// shelf is a source that says what it was asked.
type shelf struct{ asked []string }

func (s *shelf) Get(namespace, name string) (ref.Val, error) {
	s.asked = append(s.asked, "get "+namespace+"/"+name)
	if name == "none" {
		return nil, nil
	}
	return celtype.Dynamic.Value(map[string]any{"spec": map[string]any{"size": int64(7)}}), nil
}

func (s *shelf) Exists(x *stored.Selection) (bool, error) {
	s.asked = append(s.asked, "exists "+x.String())
	return true, nil
}

func (s *shelf) Count(x *stored.Selection) (int, error) {
	s.asked = append(s.asked, "count "+x.String())
	return 3, nil
}

func (s *shelf) List(x *stored.Selection) ([]ref.Val, error) {
	s.asked = append(s.asked, "list "+x.String())
	if x.Name == "many" {
		return nil, errors.New("too many")
	}
	v, _ := s.Get("", "listed")
	return []ref.Val{v, v}, nil
}

type activation struct{ vars map[string]any }

func (a activation) ResolveName(name string) (any, bool) { x, ok := a.vars[name]; return x, ok }
func (a activation) Parent() interpreter.Activation      { return nil }

// Expressions ask for what they select, and no more.
func TestReadingObjectsAsksItsSource(t *testing.T) {
	for _, tc := range []struct{ text, want, asked string }{
		{`objects.databases.get("a", "b").value().spec.size == 7`, "true", "get a/b"},
		{`objects.databases.get("a", "none").hasValue()`, "false", "get a/none"},
		{`objects.databases.get("a", "none").?spec.?size.orValue(1) == 1`, "true", "get a/none"},
		{`objects.databases.exists()`, "true", "exists "},
		{`objects.databases.namespace("n").labels({"b": "2", "a": "1"}).where("spec.size", 3).others().count() == 3`, "true", `count in namespace n, by label a="1", by label b="2", by spec.size="3", but not the object of the request`},
		{`objects.databases.where("spec.main", true).name("x").list().size() == 2`, "true", `list named x, by spec.main="true"`},
		{`objects.databases.where("spec.owner", "a").where("spec.owner", "b").exists()`, "false", ""},
		{`objects.databases.namespace("a").namespace("b").count() == 0`, "true", ""},
		{`objects.databases.name("many").list().size() == 2`, "too many", "list named many"},
		{`objects.databases.where("spec.owner", "").exists()`, "was given an empty text", ""},
		{`false && objects.databases.exists()`, "false", ""},
	} {
		checked, fault := reading(t, true).Compile(tc.text, cel.BoolType)
		if fault != nil {
			t.Fatalf("%s: %s", tc.text, fault.Message)
		}
		p, err := expr.Load(checked.AST, tc.text)
		if err != nil {
			t.Fatal(err)
		}
		from, budget := &shelf{}, expr.NewBudget()
		got, err := p.Bool(t.Context(), activation{map[string]any{"objects.databases": stored.All(from)}}, &budget)
		if err != nil && !strings.Contains(err.Error(), tc.want) || err == nil && fmt.Sprint(got) != tc.want {
			t.Errorf("%s is %v, %v", tc.text, got, err)
		}
		asked, _, _ := strings.Cut(strings.Join(from.asked, "; "), "; get ")
		if asked != tc.asked {
			t.Errorf("%s asks %q, want %q", tc.text, asked, tc.asked)
		}
	}
}
