package program_test

import (
	"strings"
	"testing"

	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/program"
)

// holding returns a program for objects with a field v.
func holding(t *testing.T, n *schemas.Node) *program.Program {
	t.Helper()
	p, err := program.New(&schemas.Node{Kinds: schemas.StructKind, Struct: &schemas.Struct{
		Fields: []schemas.Field{{Name: "v", Presence: schemas.Optional, Schema: n}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestMultiplesAreExact(t *testing.T) {
	const number = schemas.IntegerKind | schemas.NumberKind
	for _, tc := range []struct {
		of    string
		value any
		want  bool
	}{
		{"0.1", 0.3, true}, {"0.1", 0.35, false}, {"0.1", int64(7), true}, {"0.25", 1e300, true}, {"2", int64(1) << 62, true},
		{"2", int64(1<<62 + 1), false}, {"1.5", int64(3), true}, {"1.5", int64(4), false}, {"3", int64(0), true}, {"3", int64(-6), true},
		{"1e30", 3e30, true}, {"1e30", int64(7), false},
	} {
		p := holding(t, &schemas.Node{Kinds: number, Scalars: []schemas.Scalar{{Kinds: number, MultipleOf: &schemas.Bound{Value: tc.of}}}})
		errs := p.Validate(map[string]any{"v": tc.value})
		if (len(errs) == 0) != tc.want {
			t.Errorf("%v of %s: %v", tc.value, tc.of, errs)
		}
		if len(errs) > 0 && !strings.Contains(errs[0].Detail, "must be a multiple of "+tc.of) {
			t.Errorf("%v of %s: it says %s", tc.value, tc.of, errs[0].Detail)
		}
	}
}

func TestItemsThatMustDiffer(t *testing.T) {
	struct1 := func(kv ...any) map[string]any {
		m := map[string]any{}
		for i := 0; i < len(kv); i += 2 {
			m[kv[i].(string)] = kv[i+1]
		}
		return m
	}
	many := func(last any) (items []any) {
		for i := range 40 {
			items = append(items, int64(i))
		}
		return append(items, last)
	}
	for name, tc := range map[string]struct {
		list  schemas.List
		items []any
		want  string
	}{
		"scalars":             {schemas.List{Type: schemas.ListSet}, []any{"a", "b", "1", int64(1)}, ""},
		"a scalar twice":      {schemas.List{Type: schemas.ListSet}, []any{"a", "b", "a", "a"}, "v[2]"},
		"numbers by value":    {schemas.List{Type: schemas.ListSet}, []any{int64(1), 1.0}, "v[1]"},
		"many":                {schemas.List{Type: schemas.ListSet}, many(int64(40)), ""},
		"one of many":         {schemas.List{Type: schemas.ListSet}, many(int64(7)), "v[40]"},
		"structs":             {schemas.List{Type: schemas.ListSet}, []any{struct1("a", "x", "b", "y"), struct1("b", "y", "a", "x")}, "v[1]"},
		"text like a struct":  {schemas.List{Type: schemas.ListSet}, []any{struct1("a", "x"), `map[string]interface {} {"a":"x"}`}, ""},
		"keys":                {schemas.List{Type: schemas.ListMap, MapKeys: []string{"k"}}, []any{struct1("k", "a"), struct1("k", "b")}, ""},
		"a key twice":         {schemas.List{Type: schemas.ListMap, MapKeys: []string{"k"}}, []any{struct1("k", "a", "x", int64(1)), struct1("k", "a")}, "v[1]"},
		"no key twice":        {schemas.List{Type: schemas.ListMap, MapKeys: []string{"k"}}, []any{struct1(), struct1("k", "a"), struct1()}, "v[2]"},
		"one of two keys":     {schemas.List{Type: schemas.ListMap, MapKeys: []string{"k", "l"}}, []any{struct1("k", "a", "l", "x"), struct1("k", "a", "l", "y")}, ""},
		"both keys":           {schemas.List{Type: schemas.ListMap, MapKeys: []string{"k", "l"}}, []any{struct1("k", "a", "l", "x"), struct1("l", "x", "k", "a")}, "v[1]"},
		"what has no key":     {schemas.List{Type: schemas.ListMap, MapKeys: []string{"k"}}, []any{struct1("k", "a"), "a"}, "v[1]"},
		"an atomic list":      {schemas.List{Type: schemas.ListAtomic}, []any{"a", "a"}, ""},
		"a list without type": {schemas.List{}, []any{"a", "a"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := holding(t, &schemas.Node{Kinds: schemas.ListKind, List: &tc.list})
			var said []string
			for _, e := range p.Validate(map[string]any{"v": tc.items}) {
				said = append(said, e.Field)
			}
			if got := strings.Join(said, " "); got != tc.want {
				t.Errorf("it blames %q, want %q", got, tc.want)
			}
		})
	}
}

func TestLogicSaysWhatIsNearest(t *testing.T) {
	text := func(pattern string) *schemas.Node {
		return &schemas.Node{Kinds: schemas.AnyKind, Scalars: []schemas.Scalar{{Kinds: schemas.StringKind, Patterns: []schemas.Pattern{{Regexp: pattern}}}}}
	}
	both := text("^a")
	both.Scalars[0].MinRunes = &schemas.Limit{Count: 3}
	for name, tc := range map[string]struct {
		logic schemas.Logic
		want  string
	}{
		"all":     {schemas.Logic{AllOf: []*schemas.Node{text("^x"), text("y$")}}, "must match y$"},
		"any":     {schemas.Logic{AnyOf: []*schemas.Node{both, text("^b")}}, "must validate at least one schema (anyOf); must match ^b"},
		"one":     {schemas.Logic{OneOf: []*schemas.Node{text("^a"), text("^b")}}, "must validate one and only one schema (oneOf), and validates none; must match ^a"},
		"several": {schemas.Logic{OneOf: []*schemas.Node{text("^x"), text("x$")}}, "must validate one and only one schema (oneOf), and validates several"},
		"not":     {schemas.Logic{Not: text("^x")}, "must not validate the schema (not)"},
		"nested":  {schemas.Logic{Not: &schemas.Node{Kinds: schemas.AnyKind, Logic: &schemas.Logic{AnyOf: []*schemas.Node{text("^a"), text("^x")}}}}, "must not validate the schema (not)"},
		"valid":   {schemas.Logic{AnyOf: []*schemas.Node{text("^a"), text("^x")}, Not: text("^a")}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := holding(t, &schemas.Node{Kinds: schemas.StringKind, Logic: &tc.logic})
			var said []string
			for _, e := range p.Validate(map[string]any{"v": "x"}) {
				said = append(said, e.Detail)
			}
			if got := strings.Join(said, "; "); got != tc.want {
				t.Errorf("it says %q, want %q", got, tc.want)
			}
		})
	}
}

func TestLogicNamesTheLineOfTheSchemaAroundIt(t *testing.T) {
	none := &schemas.Node{Kinds: schemas.IntegerKind}
	for name, logic := range map[string]schemas.Logic{
		"any": {AnyOf: []*schemas.Node{none}}, "one": {OneOf: []*schemas.Node{none}}, "not": {Not: &schemas.Node{Kinds: schemas.AnyKind}},
	} {
		p := holding(t, &schemas.Node{Kinds: schemas.StringKind, Logic: &logic, Source: schemas.Position{File: "kind.yaml", Line: 7}})
		if errs := p.Validate(map[string]any{"v": "x"}); len(errs) == 0 || !strings.HasSuffix(errs[0].Detail, " (kind.yaml:7)") {
			t.Errorf("%s: it says %v", name, errs)
		}
	}
}

// Validation of a valid object allocates nothing.
func TestOpenAPIsRulesAllocateNothing(t *testing.T) {
	item := &schemas.Node{Kinds: schemas.StructKind, Struct: &schemas.Struct{Open: true, MaxFields: &schemas.Limit{Count: 2}}}
	p := holding(t, &schemas.Node{
		Kinds: schemas.ListKind, List: &schemas.List{Items: item, Type: schemas.ListMap, MapKeys: []string{"k"}},
		Logic: &schemas.Logic{AnyOf: []*schemas.Node{{Kinds: schemas.AnyKind, List: &schemas.List{MinItems: &schemas.Limit{Count: 1}}}}},
	})
	object := map[string]any{"v": []any{map[string]any{"k": "a"}, map[string]any{"k": "b"}, map[string]any{"k": "c"}}}
	if n := testing.AllocsPerRun(100, func() { p.Validate(object) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestAnUpdateOfAFieldThatOnlyAConditionAdds(t *testing.T) {
	p := holding(t, &schemas.Node{Kinds: schemas.StructKind, Struct: &schemas.Struct{
		Fields: []schemas.Field{{Name: "a", Presence: schemas.Optional, Schema: &schemas.Node{Kinds: schemas.StringKind}}},
		Conditions: []schemas.Condition{{
			When:   &schemas.Guard{Op: "present", Field: "a"},
			Fields: []schemas.Field{{Name: "b", Presence: schemas.Required, Schema: &schemas.Node{Kinds: schemas.StringKind}}},
		}},
	}})
	object := func(b any) map[string]any { return map[string]any{"v": map[string]any{"a": "x", "b": b}} }
	if errs := p.ValidateUpdate(object(int64(1)), object("x")); len(errs) != 1 || errs[0].Field != "v.b" {
		t.Errorf("a new violation: %v", errs)
	}
	if errs := p.ValidateUpdate(object(int64(1)), object(int64(1))); len(errs) != 0 {
		t.Errorf("an old violation: %v", errs)
	}
}
