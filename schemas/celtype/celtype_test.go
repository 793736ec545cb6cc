package celtype_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types/ref"
	"k8s.io/apimachinery/pkg/util/version"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/apiserver/pkg/cel/openapi"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/celtype"
	structural "stele.dev/stele/schemas/openapi"
)

func node(kinds schemas.Kinds) *schemas.Node { return &schemas.Node{Kinds: kinds} }

func structOf(fields ...any) *schemas.Node {
	s := &schemas.Struct{}
	for i := 0; i < len(fields); i += 2 {
		s.Fields = append(s.Fields, schemas.Field{Name: fields[i].(string), Presence: schemas.Optional, Schema: fields[i+1].(*schemas.Node)})
	}
	return &schemas.Node{Kinds: schemas.StructKind, Struct: s}
}

func listOf(items *schemas.Node) *schemas.Node {
	return &schemas.Node{Kinds: schemas.ListKind, List: &schemas.List{Items: items}}
}

func mapOf(values *schemas.Node) *schemas.Node {
	return &schemas.Node{Kinds: schemas.StructKind, Struct: &schemas.Struct{Patterns: []schemas.KeyPattern{{Key: node(schemas.StringKind), Value: values}}}}
}

const number = schemas.IntegerKind | schemas.NumberKind

var thing = structOf(
	"i", node(schemas.IntegerKind), "j", node(schemas.IntegerKind), "n", node(number), "s", node(schemas.StringKind), "b", node(schemas.BoolKind),
	"at", &schemas.Node{Kinds: schemas.StringKind, Format: schemas.FormatDateTime}, "raw", &schemas.Node{Kinds: schemas.StringKind, Format: schemas.FormatByte},
	"list", listOf(node(schemas.IntegerKind)), "numbers", listOf(node(number)), "map", mapOf(node(schemas.IntegerKind)), "maps", mapOf(mapOf(node(number))),
	"items", listOf(structOf("name", node(schemas.StringKind), "port", node(schemas.IntegerKind))),
	"inner", structOf("deep", structOf("er", node(schemas.IntegerKind), "list", listOf(node(schemas.StringKind)))),
	"with-dash", node(schemas.IntegerKind), "for", node(schemas.StringKind),
	"set", ofType(listOf(node(schemas.StringKind)), schemas.ListSet), "other", ofType(listOf(node(schemas.StringKind)), schemas.ListSet),
	"ports", ofType(listOf(port), schemas.ListMap, "name"), "more", ofType(listOf(port), schemas.ListMap, "name"),
	"pairs", ofType(listOf(port), schemas.ListMap, "name", "port"),
	"day", &schemas.Node{Kinds: schemas.StringKind, Format: "date"}, "span", &schemas.Node{Kinds: schemas.StringKind, Format: "duration"},
	"template", embedded(structOf("spec", structOf("x", node(schemas.IntegerKind)))),
	"when", conditional(structOf("tls", node(schemas.BoolKind)), "secret", node(schemas.StringKind)),
	"loose", open(structOf("known", node(schemas.IntegerKind))),
)

var port = structOf("name", node(schemas.StringKind), "port", node(schemas.IntegerKind))

func ofType(n *schemas.Node, kind string, keys ...string) *schemas.Node {
	n.List.Type, n.List.MapKeys = kind, keys
	if kind == schemas.ListMap {
		for i := range n.List.Items.Struct.Fields {
			n.List.Items.Struct.Fields[i].Presence = schemas.Required
		}
	}
	return n
}

func embedded(n *schemas.Node) *schemas.Node { n.Embedded = true; return n }
func open(n *schemas.Node) *schemas.Node     { n.Struct.Open = true; return n }

func conditional(n *schemas.Node, name string, added *schemas.Node) *schemas.Node {
	n.Struct.Conditions = []schemas.Condition{{When: &schemas.Guard{Op: "present", Field: n.Struct.Fields[0].Name},
		Fields: []schemas.Field{{Name: name, Presence: schemas.Optional, Schema: added}}}}
	return n
}

// expressions use each field in each way that its type allows.
var expressions = []string{
	"has(self.i)", "has(self.inner.deep.er)", "has(self.items)", "self.i", "self.i + self.j", "self.i == self.j", "self.i < self.j", "self.n + 0.5", "self.n == self.n",
	"self.s + 'x'", "self.s.size()", "self.b && true", "self.at", "self.at.getFullYear()", "self.raw", "self.raw.size()",
	"self.list", "self.list.size()", "1 in self.list", "self.list == [1, 2]", "self.list + [3]", "self.list.sum()", "self.list.map(x, x * 2)", "self.list[0]", "self.list[9]",
	"self.numbers", "self.numbers.sum()", "self.numbers == [1.0, 2.5]", "self.numbers.all(x, x > 0.5)",
	"self.map", "self.map.size()", "'a' in self.map", "self.map['a']", "self.map['z']", "self.map == {'a': 1, 'b': 2}", "self.map.all(k, self.map[k] > 1)", "self.map.exists(k, k == 'b')",
	"self.maps", "self.maps['a']['b'] + 0.5", "self.maps.all(k, self.maps[k].all(l, self.maps[k][l] > 0.0))",
	"self.items.size()", "self.items[0].name", "self.items.filter(x, x.port > 1).size()", "self.items.map(x, x.name)", "self.items == self.items", "self.items.all(x, has(x.port))",
	"self.inner.deep.er", "self.inner.deep.list", "self.inner == self.inner", "self == self", "self.inner.deep.list.exists(x, x == 'y')", "self.with__dash__dash", "self.__for__",
	"type(self.n) == double", "type(self.i) == int", "type(self.at) == google.protobuf.Timestamp", "type(self.raw) == bytes",
	"self.set == self.other", "self.set + self.other", "(self.set + self.other).size()", "self.set + self.other == self.other + self.set", "'x' in self.set", "self.set == ['y', 'x']", "['y', 'x'] == self.set", "self.set[0]", "self.set.all(s, s != '')",
	"self.ports == dyn(self.more)", "self.ports + dyn(self.more)", "(self.ports + dyn(self.more)).map(p, p.port)", "self.ports.size()", "self.ports.exists(p, p.name == 'x')",
	"self.pairs == self.pairs", "(self.pairs + dyn(self.ports)).size()", "self.pairs == dyn(self.ports)", "sets.contains(self.set, self.other)",
	"self.day", "self.day.getFullYear()", "self.span", "self.span > duration('1h')", "self.day < self.at",
	"self.template.kind", "self.template.metadata.name", "has(self.template.spec)", "has(self.template.metadata)", "self.template.spec.x + 1", "has(self.when.secret)", "self.when.secret + 'x'", "self.loose.known",
	"self.?inner.?deep.?er.orValue(7)", "self.map.?z.orValue(7)", "dyn(self.n) == 1", "self.list.isSorted()", "self.items.map(x, x.port).max()",
}

// value returns a random decoded JSON value for a node. It leaves out some optional fields.
func value(rng *rand.Rand, n *schemas.Node) any {
	switch {
	case n.Format == schemas.FormatDateTime:
		return fmt.Sprintf("202%d-01-02T03:04:05Z", rng.IntN(3))
	case n.Format == "date":
		return fmt.Sprintf("202%d-01-02", rng.IntN(3))
	case n.Format == "duration":
		return [...]string{"30m", "2h", "24h"}[rng.IntN(3)]
	case n.Format == schemas.FormatByte:
		return [...]string{"", "YQ==", "YWI="}[rng.IntN(3)]
	case n.Kinds == schemas.BoolKind:
		return rng.IntN(2) == 0
	case n.Kinds == schemas.IntegerKind:
		return int64(rng.IntN(4))
	case n.Kinds == number:
		return [...]any{int64(1), 2.5, int64(0), 0.25}[rng.IntN(4)]
	case n.Kinds == schemas.StringKind:
		return [...]string{"", "x", "y"}[rng.IntN(3)]
	case n.Kinds == schemas.ListKind:
		list, seen := []any{}, map[any]bool{}
		for range rng.IntN(4) {
			item := value(rng, n.List.Items)
			id := item
			if n.List.Type == schemas.ListMap {
				id = item.(map[string]any)["name"]
			}
			if n.List.Type != "" && seen[id] {
				continue
			}
			if n.List.Type != "" {
				seen[id] = true
			}
			list = append(list, item)
		}
		return list
	}
	m := map[string]any{}
	if n.Embedded {
		m["apiVersion"], m["kind"] = "v1", "Pod"
		if rng.IntN(2) == 0 {
			m["metadata"] = map[string]any{"name": "a", "labels": map[string]any{"b": "c"}}
		}
	}
	for _, f := range n.Struct.AllFields() {
		if rng.IntN(4) > 0 || f.Presence == schemas.Required {
			m[f.Name] = value(rng, f.Schema)
		}
	}
	for _, p := range n.Struct.Patterns {
		for range rng.IntN(4) {
			m[[...]string{"a", "b", "c"}[rng.IntN(3)]] = value(rng, p.Value)
		}
	}
	return m
}

// Expressions see the same values as in Kubernetes' API server, whose adapter of unstructured objects is
// the reference.
func TestValuesAreKubernetes(t *testing.T) {
	of := celtype.Of("test.Thing", thing)
	env := environment.MustBaseEnvSet(version.MajorMinor(1, 37)).NewExpressionsEnv()
	provided, err := apiservercel.NewDeclTypeProvider(of.Declaration()).EnvOptions(env.CELTypeProvider())
	if err != nil {
		t.Fatal(err)
	}
	if env, err = env.Extend(append(provided, cel.Variable("self", of.CEL()))...); err != nil {
		t.Fatal(err)
	}
	programs := make([]cel.Program, len(expressions))
	for i, e := range expressions {
		ast, issues := env.Compile(e)
		if issues.Err() != nil {
			t.Fatalf("%s: %v", e, issues.Err())
		}
		if programs[i], err = env.Program(ast); err != nil {
			t.Fatal(err)
		}
	}
	rng := rand.New(rand.NewPCG(1, 2))
	values, faults := 0, 0
	for range 500 {
		object := value(rng, thing)
		theirs, ours := openapi.UnstructuredToVal(object, structural.Of(thing)), of.Value(object)
		for i, e := range expressions {
			want, wantErr := evaluate(programs[i], theirs)
			got, gotErr := evaluate(programs[i], ours)
			if (wantErr == nil) != (gotErr == nil) || wantErr == nil && got.Equal(want).Value() != true {
				t.Fatalf("%s of %v is %v, %v; in Kubernetes it is %v, %v", e, object, got, gotErr, want, wantErr)
			}
			if wantErr == nil {
				values++
			} else {
				faults++
			}
		}
	}
	if values < 10_000 || faults < 1_000 {
		t.Errorf("%d values and %d errors: the test asks too little", values, faults)
	}
}

func evaluate(p cel.Program, self ref.Val) (ref.Val, error) {
	v, _, err := p.Eval(map[string]any{"self": self})
	return v, err
}
