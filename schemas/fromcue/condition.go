package fromcue

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"regexp/syntax"
	"slices"
	"strings"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/token"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/fromcue/cuesyntax"
	"stele.dev/stele/schemas/fromcue/verify"
	"stele.dev/stele/schemas/jsonvalue"
	"stele.dev/stele/schemas/program"
	"stele.dev/stele/schemas/samples"
)

// maxWitnesses is the maximum number of combinations of test values that are tried.
const maxWitnesses = 4096

// conditions compiles the conditions of a struct with the value v. It reads the added fields from
// variants of v in which the tested fields have values. It returns why that is impossible, or "".
func (c *Compiler) conditions(result *schemas.Struct, v cue.Value, at *place) string {
	if len(at.pending) == 0 {
		return ""
	}
	fields := map[string]schemas.Field{}
	for _, p := range at.pending {
		for _, t := range cuesyntax.Tests(p.When) {
			f, ok := schemas.FieldNamed(result, t.Field)
			if !ok || !testable(t, f) || slices.ContainsFunc(at.pending, func(q *cuesyntax.Condition) bool { return slices.Contains(q.Body, t.Field) }) {
				return "a condition on the field " + t.Field
			}
			fields[t.Field] = f
		}
	}
	variants, ok := c.variants(at.pending, fields)
	if !ok {
		return "conditions on many values"
	}
	guards := make([]*program.Guard, len(at.pending))
	for i, p := range at.pending {
		var err error
		if guards[i], err = program.NewGuard(p.When, 0); err != nil {
			return "a condition"
		}
	}
	c.withoutConditions(result, v, guards, variants, at)
	var settled cue.Value
	for i, p := range at.pending {
		witness := slices.IndexFunc(variants, func(w map[string]any) bool {
			if holds, missing := guards[i].Holds(lookupIn(w)); !holds || missing != "" {
				return false
			}
			// No other condition may declare the same field or be undecided.
			for j, q := range at.pending {
				holds, missing := guards[j].Holds(lookupIn(w))
				if missing != "" || j != i && holds && slices.ContainsFunc(q.Body, func(name string) bool { return slices.Contains(p.Body, name) }) {
					return false
				}
			}
			return true
		})
		if witness < 0 {
			return "a condition that no value was found for"
		}
		variant := v.Unify(c.data(variants[witness]))
		condition := schemas.Condition{When: p.When, Source: c.position(p.Node, at)}
		for _, name := range p.Body {
			f, ok := c.variantField(variant, name, at)
			if !ok {
				return "a condition that adds what cannot be seen"
			}
			condition.Fields = append(condition.Fields, f)
		}
		result.Conditions = append(result.Conditions, condition)
		settled = variant
	}
	if key, ok := samples.UnknownKey(result); ok {
		c.settled[result] = settled.Allows(cue.Str(key))
	}
	if _, ok := c.related[result]; !ok {
		c.related[result] = claim{value: v, at: at, order: len(c.related)}
	}
	return ""
}

// withoutConditions recompiles declared fields to which conditions also contribute, from a variant in
// which no condition holds. If a default decides a test, v already includes what the condition adds.
func (c *Compiler) withoutConditions(result *schemas.Struct, v cue.Value, guards []*program.Guard, variants []map[string]any, at *place) {
	seen := map[string]bool{}
	for _, p := range at.pending {
		for _, name := range p.Body {
			if seen[name] {
				continue
			}
			seen[name] = true
			i := slices.IndexFunc(result.Fields, func(f schemas.Field) bool { return f.Name == name })
			if i < 0 {
				continue
			}
			without := slices.IndexFunc(variants, func(w map[string]any) bool {
				for j, q := range at.pending {
					if holds, missing := guards[j].Holds(lookupIn(w)); missing != "" || holds && slices.Contains(q.Body, name) {
						return false
					}
				}
				return true
			})
			if without >= 0 {
				if f, ok := c.variantField(v.Unify(c.data(variants[without])), name, at); ok {
					result.Fields[i] = f
					continue
				}
			}
			result.Fields = slices.Delete(result.Fields, i, i+1)
		}
	}
}

// cloud records the fields that a comprehension may add. Without data, CUE may apply it wrongly.
func (p *place) cloud(x *ast.Comprehension) {
	body, ok := x.Value.(*ast.StructLit)
	if !ok {
		p.unsure = append(p.unsure, "*")
		return
	}
	for _, d := range body.Elts {
		f, ok := d.(*ast.Field)
		if ok {
			if name, _, err := ast.LabelName(f.Label); err == nil {
				p.unsure = append(p.unsure, name)
				continue
			}
		}
		p.unsure = append(p.unsure, "*")
	}
}

// unclear reports whether a comprehension may contribute to the field at the place.
func (p *place) unclear() bool { return p.parent != nil && p.parent.clouds(p.name) }

// clouds reports whether a comprehension may contribute to the named field.
func (p *place) clouds(name string) bool {
	return name != "" && (slices.Contains(p.unsure, name) || slices.Contains(p.unsure, "*"))
}

// clouded makes unclear fields of the struct admit any value.
func (p *place) clouded(s *schemas.Struct) {
	for i := range s.Fields {
		if p.clouds(s.Fields[i].Name) {
			s.Fields[i].Schema = &schemas.Node{Kinds: schemas.AnyKind, Sensitive: s.Fields[i].Schema.HasSensitive(), Doc: s.Fields[i].Schema.Doc, Source: s.Fields[i].Schema.Source}
			s.Fields[i].Presence = schemas.Optional
		}
	}
}

// variantField compiles a field of a variant of a struct.
func (c *Compiler) variantField(variant cue.Value, name string, at *place) (schemas.Field, bool) {
	fields, err := variant.Fields(cue.All())
	for err == nil && fields.Next() {
		sel := fields.Selector()
		if sel.LabelType() != cue.StringLabel || sel.Unquoted() != name {
			continue
		}
		presence := presenceOf(sel)
		where := at.field(name, presence)
		where.variant = true
		n := c.node(fields.Value(), where)
		return schemas.Field{Name: name, Presence: presence, Schema: n}, len(where.comparisons) == 0
	}
	return schemas.Field{}, false
}

func lookupIn(m map[string]any) func(string) (any, bool) {
	return func(name string) (any, bool) {
		x, ok := m[name]
		return x, ok
	}
}

// testable reports whether a program and CUE evaluate the test of a field alike.
func testable(t *schemas.Guard, f schemas.Field) bool {
	if t.Op == "present" || t.Op == "absent" {
		return f.Presence == schemas.Optional
	}
	n := f.Schema
	if n.Fallback != nil || n.From != nil {
		return false
	}
	switch schemas.KindOfJSON(t.Value) {
	case schemas.BoolKind:
		return n.Kinds == schemas.BoolKind && (t.Op == "==" || t.Op == "!=")
	case schemas.StringKind:
		return n.Kinds == schemas.StringKind && !strings.ContainsAny(t.Op, "<>")
	case schemas.IntegerKind, schemas.NumberKind, schemas.IntegerKind | schemas.NumberKind:
		return n.Kinds&^(schemas.IntegerKind|schemas.NumberKind) == 0 && !strings.Contains(t.Op, "~")
	}
	return false
}

// variants returns the combinations of values for the tested fields. A combination decides every
// condition, unless a field is missing.
func (c *Compiler) variants(conditions []*cuesyntax.Condition, fields map[string]schemas.Field) ([]map[string]any, bool) {
	names := make([]string, 0, len(fields))
	for name := range fields {
		names = append(names, name)
	}
	slices.Sort(names)
	all := []map[string]any{{}}
	for _, name := range names {
		candidates := candidatesFor(name, fields[name], conditions)
		if len(candidates) == 0 || len(candidates)*len(all) > maxWitnesses {
			return nil, false
		}
		var next []map[string]any
		for _, w := range all {
			for _, x := range candidates {
				m := make(map[string]any, len(w)+1)
				for k, v := range w {
					m[k] = v
				}
				if x != missingValue {
					m[name] = x
				}
				next = append(next, m)
			}
		}
		all = next
	}
	return all, true
}

// missingValue stands for an absent field, anyValueThere for a present field with an unknown value.
const (
	missingValue  = valueMark("missing")
	anyValueThere = valueMark("any")
)

type valueMark string

// candidatesFor returns values of a field that make its tests true and values that make them false.
func candidatesFor(name string, f schemas.Field, conditions []*cuesyntax.Condition) (values []any) {
	admits, err := program.NewChecker(verify.WithoutAttributes(f.Schema))
	if err != nil {
		return nil
	}
	add := func(x any) {
		if len(admits.Validate(x)) == 0 && !slices.ContainsFunc(values, func(y any) bool { return jsonvalue.SameScalar(x, y) }) {
			values = append(values, x)
		}
	}
	var ops []string
	for _, p := range conditions {
		for _, t := range cuesyntax.Tests(p.When) {
			if t.Field != name {
				continue
			}
			ops = append(ops, t.Op)
			if x, err := jsonvalue.Decode(t.Value); err == nil && len(t.Value) > 0 {
				add(x)
				addNear(add, t.Op, x)
			}
		}
	}
	tested := slices.ContainsFunc(ops, func(op string) bool { return op != "present" && op != "absent" })
	composite := f.Schema.Kinds&(schemas.ListKind|schemas.StructKind) != 0
	if tested || !composite {
		for _, s := range f.Schema.Scalars {
			for _, text := range s.Enum {
				if x, err := jsonvalue.Decode(text); err == nil {
					add(x)
				}
			}
		}
		g := samples.Maker{Rand: rand.New(rand.NewPCG(7, 8)), Unknown: 0, Keys: nil, Full: 0}
		for range 8 {
			add(g.Witness(f.Schema))
		}
	}
	switch {
	case !tested && composite:
		values = append(values, anyValueThere, missingValue)
	case !tested && len(values) > 0:
		values = []any{values[0], missingValue}
	case f.Presence == schemas.Optional && len(values) > 0:
		values = append(values, missingValue)
	}
	return values
}

// addNear adds values on both sides of the bound of a test.
func addNear(add func(any), op string, x any) {
	switch x := x.(type) {
	case bool:
		add(!x)
	case int64:
		add(x + 1)
		add(x - 1)
	case float64:
		add(x + 1)
		add(x - 1)
	case string:
		if op != "=~" && op != "!~" {
			add(x + "x")
			return
		}
		if re, err := syntax.Parse(x, syntax.Perl); err == nil {
			var b strings.Builder
			samples.Text(&b, re.Simplify(), rand.New(rand.NewPCG(1, 2)), 1)
			add(b.String())
		}
		for _, s := range []string{"", "x", "0", "X y"} {
			add(s)
		}
	}
}

// data returns the fields of m as a CUE value.
func (c *Compiler) data(m map[string]any) cue.Value {
	s := &ast.StructLit{}
	for name, x := range m {
		value := top()
		if x != anyValueThere {
			value = literal(x)
		}
		s.Elts = append(s.Elts, &ast.Field{Label: ast.NewString(name), Value: value})
	}
	return c.scratch.BuildExpr(s)
}

// literal returns a scalar as CUE syntax.
func literal(x any) ast.Expr {
	text, err := json.Marshal(x)
	if err != nil {
		return top()
	}
	switch {
	case bytes.HasPrefix(text, []byte(`"`)):
		return ast.NewString(fmt.Sprint(x))
	case string(text) == "true", string(text) == "false":
		return ast.NewBool(string(text) == "true")
	}
	kind := token.INT
	if bytes.ContainsAny(text, ".eE") {
		kind = token.FLOAT
	}
	if text[0] == '-' {
		return &ast.UnaryExpr{Op: token.SUB, X: ast.NewLit(kind, string(text[1:]))}
	}
	return ast.NewLit(kind, string(text))
}

// comparison records x as a comparison, if x is a bound on the value of a sibling field and applies to
// every value of the field. It reports whether it did.
func (c *Compiler) comparison(x ast.Expr, at *place) bool {
	u, ok := x.(*ast.UnaryExpr)
	if !ok || at.passing || at.within > 0 || at.parent == nil || at.name == "" {
		return false
	}
	id, ok := cuesyntax.Unparen(u.X).(*ast.Ident)
	if !ok || cuesyntax.MeaningOf(id) != cuesyntax.IsField {
		return false
	}
	if _, sibling := at.parent.declares(id); !sibling || !slices.Contains([]string{"<", "<=", ">", ">=", "!="}, u.Op.String()) {
		return false
	}
	at.comparisons = append(at.comparisons, schemas.Comparison{Field: at.name, Op: u.Op.String(), Other: id.Name, Source: c.position(x, at)})
	at.dropped = append(at.dropped, x)
	return true
}

// remaining returns v without the bounds that became comparisons. ok is false if v is not a conjunction.
func (c *Compiler) remaining(v cue.Value, at *place) (rest cue.Value, ok bool) {
	var kept []cue.Value
	var flatten func(v cue.Value)
	dropped := 0
	flatten = func(v cue.Value) {
		switch op, args := v.Expr(); { // the source of a conjunction is that of its first part
		case op == cue.AndOp:
			for _, a := range args {
				flatten(a)
			}
		case slices.Contains(at.dropped, cuesyntax.SyntaxOf(v.Source())):
			dropped++
		default:
			kept = append(kept, v)
		}
	}
	flatten(v)
	if dropped < len(at.dropped) {
		return v, false
	}
	if at.matched != nil {
		kept = append(kept, *at.matched)
	}
	if len(kept) == 0 {
		return c.scratch.BuildExpr(ast.NewIdent("number")), at.from == nil
	}
	rest = kept[0]
	for _, k := range kept[1:] {
		rest = rest.Unify(k)
	}
	return rest, true
}

// relate adds comparisons between fields to a struct. It returns why that is impossible, or "".
func (c *Compiler) relate(result *schemas.Struct, comparisons []schemas.Comparison, v cue.Value, at *place) string {
	for _, cmp := range comparisons {
		for _, name := range []string{cmp.Field, cmp.Other} {
			f, ok := schemas.FieldNamed(result, name)
			conditional := slices.ContainsFunc(at.pending, func(p *cuesyntax.Condition) bool { return slices.Contains(p.Body, name) })
			if !ok || cmp.Field == cmp.Other || f.Schema.Kinds&^(schemas.IntegerKind|schemas.NumberKind) != 0 || f.Schema.Fallback != nil || f.Schema.From != nil || conditional {
				return fmt.Sprintf("a bound on %s that is the field %s", cmp.Field, cmp.Other)
			}
		}
	}
	if result.Comparisons = comparisons; len(comparisons) > 0 {
		c.related[result] = claim{value: v, at: at, order: len(c.related)}
	}
	return ""
}

// probeRelated compares structs that have conditions or comparisons with CUE.
func (c *Compiler) probeRelated() {
	for _, s := range inOrder(c.related) {
		claim := c.related[s]
		if structEscapes(s, 0) {
			continue // the enclosing struct is compared as a whole
		}
		for i := range s.Conditions {
			for _, f := range s.Conditions[i].Fields {
				f.Schema.Visit("", func(_ string, n *schemas.Node) {
					if n.Struct == nil {
						return
					}
					if key, ok := samples.UnknownKey(n.Struct); ok && !samples.AdmitsEveryKey(n.Struct) && c.claims[n.Struct].value.Exists() {
						n.Struct.Open = c.claims[n.Struct].value.Allows(cue.Str(key))
					}
				})
			}
		}
		n := &schemas.Node{Kinds: schemas.StructKind, Struct: s}
		if value, how := verify.Disagreement(claim.value, n, 150, 20); how != "" {
			c.force(claim.at, "fields that depend on each other, of which CUE makes something else than they say, as for "+value)
		}
	}
}
