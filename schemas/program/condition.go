package program

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/jsonvalue"
)

// A conditionCheck is a compiled condition.
type conditionCheck struct {
	form   *schemas.Condition
	when   *Guard
	fields []fieldCheck
}

// A Guard is a compiled [schemas.Guard].
type Guard struct {
	form  *schemas.Guard
	of    []*Guard
	value any
	match *regexp.Regexp
}

// NewGuard compiles a guard. depth is the number of guards around it.
func NewGuard(g *schemas.Guard, depth int) (*Guard, error) {
	if g == nil || depth > schemas.MaxDepth {
		return nil, fmt.Errorf("schemas: a guard that is missing or too deep")
	}
	c := &Guard{form: g}
	for _, of := range g.Of {
		sub, err := NewGuard(of, depth+1)
		if err != nil {
			return nil, err
		}
		c.of = append(c.of, sub)
	}
	var err error
	switch g.Op {
	case "then", "and", "or":
		if len(c.of) == 0 {
			return nil, fmt.Errorf("schemas: a guard %q of nothing", g.Op)
		}
	case "not":
		if len(c.of) != 1 {
			return nil, fmt.Errorf("schemas: a guard %q of %d", g.Op, len(c.of))
		}
	case "present", "absent":
	case "==", "!=", "<", "<=", ">", ">=", "=~", "!~":
		if c.value, err = jsonvalue.Decode(g.Value); err != nil {
			return nil, err
		}
		if g.Op == "=~" || g.Op == "!~" {
			text, _ := c.value.(string)
			if c.match, err = regexp.Compile(text); err != nil {
				return nil, fmt.Errorf("schemas: %w", err)
			}
		}
	default:
		return nil, fmt.Errorf("schemas: unknown guard %q", g.Op)
	}
	return c, nil
}

// Holds evaluates the guard. get returns the value of a field. missing is the name of a field that the
// guard needs and get does not find.
func (g *Guard) Holds(get func(string) (any, bool)) (holds bool, missing string) {
	switch g.form.Op {
	case "then": // in order, until one does not hold
		for _, of := range g.of {
			if holds, missing = of.Holds(get); !holds || missing != "" {
				return false, missing
			}
		}
		return true, ""
	case "and", "or": // all are evaluated
		and := g.form.Op == "and"
		holds = and
		for _, of := range g.of {
			h, m := of.Holds(get)
			if m != "" {
				return false, m
			}
			if and {
				holds = holds && h
			} else {
				holds = holds || h
			}
		}
		return holds, ""
	case "not":
		h, m := g.of[0].Holds(get)
		return !h && m == "", m
	}
	x, ok := get(g.form.Field)
	switch {
	case g.form.Op == "present":
		return ok, ""
	case g.form.Op == "absent":
		return !ok, ""
	case !ok:
		return false, g.form.Field
	}
	switch g.form.Op {
	case "==":
		return jsonvalue.SameScalar(x, g.value), ""
	case "!=":
		return !jsonvalue.SameScalar(x, g.value), ""
	case "=~", "!~":
		s, _ := x.(string)
		return g.match.MatchString(s) == (g.form.Op == "=~"), ""
	}
	return compares(g.form.Op, x, g.value), ""
}

// compares reports whether "x op y" holds for two numbers.
func compares(op string, x, y any) bool {
	order, ok := compareNumbers(x, y)
	if !ok {
		return false
	}
	switch op {
	case "<":
		return order < 0
	case "<=":
		return order <= 0
	case ">":
		return order > 0
	case ">=":
		return order >= 0
	case "!=":
		return order != 0
	}
	return false
}

// compareNumbers compares two numbers exactly. A float without a fraction is compared as an integer. A
// float with a fraction is so small that an integer can be converted to a float without loss.
func compareNumbers(x, y any) (order int, ok bool) {
	a, aInt := asInteger(x)
	b, bInt := asInteger(y)
	if aInt && bInt {
		return cmp.Compare(a, b), true
	}
	f, ok1 := asFloat(x)
	g, ok2 := asFloat(y)
	return cmp.Compare(f, g), ok1 && ok2
}

func asInteger(x any) (int64, bool) {
	switch x := x.(type) {
	case int64:
		return x, true
	case float64:
		return jsonvalue.Int64(x)
	}
	return 0, false
}

func asFloat(x any) (float64, bool) {
	switch x := x.(type) {
	case int64:
		return float64(x), true
	case float64:
		return x, true
	}
	return 0, false
}

// addRelations compiles the comparisons and conditions of a struct.
func (o *objectCheck) addRelations(s *schemas.Struct, b building) error {
	for i := range s.Comparisons {
		rule := &s.Comparisons[i]
		a, ok1 := o.index[rule.Field]
		b, ok2 := o.index[rule.Other]
		if !ok1 || !ok2 || !slices.Contains([]string{"<", "<=", ">", ">=", "!="}, rule.Op) {
			return fmt.Errorf("schemas: a comparison %s %s %s", rule.Field, rule.Op, rule.Other)
		}
		o.comparisons = append(o.comparisons, comparisonCheck{rule, &o.fields[a], &o.fields[b]})
	}
	for i := range s.Conditions {
		condition := &s.Conditions[i]
		when, err := NewGuard(condition.When, 0)
		if err != nil {
			return err
		}
		c := conditionCheck{form: condition, when: when}
		for _, f := range condition.Fields {
			fc, err := b.field(f)
			if err != nil {
				return err
			}
			c.fields = append(c.fields, fc)
			if _, ok := o.index[f.Name]; !ok {
				o.index[f.Name] = conditional
			}
		}
		o.conditions = append(o.conditions, c)
	}
	return nil
}

// conditional is the index of a field that only conditions declare.
const conditional = -1

type comparisonCheck struct {
	form         *schemas.Comparison
	field, other *fieldCheck
}

// get returns a function that looks up fields of m as they will be after defaulting.
func (o *objectCheck) get(m map[string]any) func(string) (any, bool) {
	return func(name string) (any, bool) {
		if i, ok := o.index[name]; ok && i >= 0 {
			return o.fields[i].value(m)
		}
		x, ok := m[name]
		return x, ok
	}
}

func (f *fieldCheck) value(m map[string]any) (any, bool) {
	x, ok := m[f.name]
	if f.fills && (!ok || x == nil && f.check.fillsNull) {
		return f.absent, true
	}
	return x, ok
}

// active returns the fields that conditions add to m. missing are the fields that guards need and that m
// does not have.
func (o *objectCheck) active(m map[string]any) (fields []*fieldCheck, missing []string) {
	get := o.get(m)
	for i := range o.conditions {
		c := &o.conditions[i]
		holds, lacking := c.when.Holds(get)
		if lacking != "" {
			missing = append(missing, lacking)
			continue
		}
		if holds {
			for j := range c.fields {
				fields = append(fields, &c.fields[j])
			}
		}
	}
	return fields, missing
}

// compare checks the comparisons between fields of m.
func (v *inspection) compare(o *objectCheck, m map[string]any) {
	for i := range o.comparisons {
		c := &o.comparisons[i]
		x, ok := c.field.value(m)
		if !ok {
			continue
		}
		y, ok := c.other.value(m)
		switch {
		case !ok:
			v.push(step{name: c.form.Other})
			v.fail(&field.Error{Type: field.ErrorTypeRequired, BadValue: "", Detail: withLine("is needed, for "+c.form.Field+" must be "+c.phrase(), c.form.Source)})
			v.pop()
		case isNumber(x) && isNumber(y) && !compares(c.form.Op, x, y):
			v.push(step{name: c.form.Field})
			c.refuse(v, x, y)
			v.pop()
		}
	}
}

// refuse reports that x does not compare with y as the schema demands. It does not show secrets.
func (c *comparisonCheck) refuse(v *inspection, x, y any) {
	detail := fmt.Sprintf("must be %s, which is %v", c.phrase(), y)
	if c.other.check.node.Sensitive {
		detail = "must be " + c.phrase()
	}
	if c.field.check.node.Sensitive {
		x = field.OmitValueType{}
	}
	v.invalid(x, detail, c.form.Source)
}

func (c *comparisonCheck) phrase() string {
	op := map[string]string{"<": "less than", "<=": "at most", ">": "greater than", ">=": "at least", "!=": "other than"}[c.form.Op]
	return op + " " + c.form.Other
}

func isNumber(x any) bool {
	switch x.(type) {
	case int64, float64:
		return true
	}
	return false
}

// added checks the fields that conditions add, and returns their names.
func (v *inspection) added(o *objectCheck, m map[string]any) (names map[string]bool) {
	fields, missing := o.active(m)
	for _, name := range missing {
		v.push(step{name: name})
		v.fail(&field.Error{Type: field.ErrorTypeRequired, BadValue: "", Detail: "is needed, for other fields depend on it"})
		v.pop()
	}
	names = make(map[string]bool, len(fields))
	for _, f := range fields {
		names[f.name] = true
		x, ok := m[f.name]
		if !ok {
			if f.presence == schemas.Required || f.presence == schemas.Regular && !f.fills {
				v.missing(f)
			}
			continue
		}
		v.push(step{name: f.name})
		v.value(f.check, x)
		v.pop()
	}
	// Report fields that only a condition that does not hold would admit.
	for i := range o.conditions {
		for j := range o.conditions[i].fields {
			f := &o.conditions[i].fields[j]
			if _, ok := m[f.name]; !ok || names[f.name] || o.index[f.name] != conditional || o.open || o.matches(f.name) {
				continue
			}
			names[f.name] = true // report each field once
			v.push(step{name: f.name})
			v.fail(&field.Error{Type: field.ErrorTypeForbidden, BadValue: "",
				Detail: withLine("may be there only if "+o.conditions[i].when.String(), o.conditions[i].form.Source)})
			v.pop()
		}
	}
	return names
}

func (o *objectCheck) matches(key string) bool {
	return slices.ContainsFunc(o.patterns, func(p patternCheck) bool { return p.key.admitsKey(key) })
}

// String returns the guard as shown in error messages.
func (g *Guard) String() string {
	join := func(word string) (s string) {
		for i, of := range g.of {
			if i > 0 {
				s += word
			}
			s += of.String()
		}
		return s
	}
	switch g.form.Op {
	case "then", "and":
		return join(" and ")
	case "or":
		return "(" + join(" or ") + ")"
	case "not":
		return "not " + g.of[0].String()
	case "present":
		return g.form.Field + " is there"
	case "absent":
		return g.form.Field + " is not there"
	}
	return g.form.Field + " " + g.form.Op + " " + string(g.form.Value)
}
