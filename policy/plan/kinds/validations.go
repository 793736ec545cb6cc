package kinds

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/plan"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/samples"
)

// validations compares the CEL rules of two versions. Rules that decide the same correspond, then those of the same
// name.
func (c *comparison) validations() {
	was, is := slices.Clone(c.was.Rules), slices.Clone(c.is.Rules)
	pair := func(alike func(a, b *schemas.Rule) bool) {
		was = slices.DeleteFunc(was, func(a schemas.Rule) bool {
			i := slices.IndexFunc(is, func(b schemas.Rule) bool { return alike(&a, &b) })
			if i < 0 {
				return false
			}
			c.validation(&a, &is[i])
			is = slices.Delete(is, i, i+1)
			return true
		})
	}
	pair(func(a, b *schemas.Rule) bool { return a.Name == b.Name && decidesSame(a, b) })
	pair(decidesSame)
	pair(func(a, b *schemas.Rule) bool { return a.Name == b.Name })
	for i := range was {
		r := &was[i]
		c.add(validationPlace(r), difference{rule: "VALIDATION_REMOVED", way: gains, before: ruleText(r), was: r.Source, message: "The rule is no longer checked."})
	}
	for i := range is {
		r := &is[i]
		d := difference{rule: "VALIDATION_ADDED", way: loses, after: ruleText(r), is: r.Source, message: "The rule is checked in each write."}
		if r.Transition {
			d.message = "The rule is checked in each update."
		}
		d.details = []string{"An update that does not change a value that violates the rule gets a warning, and is not refused, unless the rule reads oldSelf."}
		c.add(validationPlace(r), d)
	}
}

func validationPlace(r *schemas.Rule) place {
	return place{route: route{text: "validations/" + r.Name}}
}

// decidesSame reports whether two rules decide the same about the same value.
func decidesSame(a, b *schemas.Rule) bool {
	return a.Path == b.Path && clean(a.Rule) == clean(b.Rule) && a.OptionalOldSelf == b.OptionalOldSelf
}

func ruleText(r *schemas.Rule) string {
	if r.Path == "" {
		return short(clean(r.Rule))
	}
	return short(clean(r.Rule) + " (self is " + r.Path + ")")
}

// validation compares two rules that correspond.
func (c *comparison) validation(a, b *schemas.Rule) {
	d := difference{rule: "VALIDATION_CHANGED", was: position(a.RuleSource, a.Source), is: position(b.RuleSource, b.Source)}
	if decidesSame(a, b) {
		said := func(r *schemas.Rule) string {
			return strings.Join([]string{clean(r.Message), clean(r.MessageExpression), cmp.Or(r.Reason, "FieldValueInvalid"), r.FieldPath}, "\x00")
		}
		if said(a) == said(b) {
			return
		}
		text := func(r *schemas.Rule) string {
			return short(strings.Join(slices.DeleteFunc([]string{clean(r.Message), clean(r.MessageExpression), r.Reason, r.FieldPath}, func(s string) bool { return s == "" }), ", "))
		}
		d.before, d.after, d.message = text(a), text(b), "The rule decides the same, and its refusals say something else."
		c.as(plan.Looks, validationPlace(b), d)
		return
	}
	d.before, d.after, d.message = ruleText(a), ruleText(b), "The rule is another one."
	if d.before == d.after {
		d.before, d.after = fmt.Sprintf("optionalOldSelf: %t", a.OptionalOldSelf), fmt.Sprintf("optionalOldSelf: %t", b.OptionalOldSelf)
	}
	c.decideRule(d, a, b)
}

// decideRule adds a changed rule. Generated objects that the schemas of both versions accept tell its direction.
func (c *comparison) decideRule(d difference, a, b *schemas.Rule) {
	found, counterexample := c.searchRules(a, b)
	evidence := plan.Shown
	switch d.way = found; {
	case found == unknown:
		evidence = plan.Possible
		d.details = []string{incomparable}
	case found != loses|gains:
		d.details = []string{"It is told from generated objects, none of which shows the opposite."}
	}
	f := c.add(validationPlace(b), d)
	f.Evidence, f.Counterexample = evidence, counterexample
}

// maxRuleTries is the number of objects, or pairs of them, for which a changed rule is evaluated.
const maxRuleTries = 120

// searchRules looks for objects for which two rules decide otherwise.
func (c *comparison) searchRules(a, b *schemas.Rule) (found direction, counterexample *plan.Counterexample) {
	path, err := policy.ParseRulePath(b.Path)
	if err != nil || c.ctx.Err() != nil || asksCUE(c.was.Schema) || asksCUE(c.is.Schema) || a.Source.IsZero() || b.Source.IsZero() {
		return unknown, nil
	}
	objects := c.objects(stepsOf(b.Path), path.Node(c.is.Schema), literals(a.Rule+" "+b.Rule))
	try := func(object, old *policy.Object) {
		was, is := refusal(c.was, a, object, old), refusal(c.is, b, object, old)
		if (was == "") == (is == "") {
			return
		}
		way, example := loses, &plan.Counterexample{Object: encoded(object), Old: encoded(old), Before: cmp.Or(was, acceptance(c.was, object, old)), After: cmp.Or(is, acceptance(c.is, object, old))}
		if was != "" {
			way = gains
		}
		if found&way == 0 && (counterexample == nil || way == loses) {
			counterexample = example
		}
		found |= way
	}
	tries := 0
	for i, object := range objects {
		if !a.Transition && !b.Transition {
			try(object, nil)
			continue
		}
		for j := range objects {
			if i != j && tries < maxRuleTries*4 && found != loses|gains {
				tries++
				try(object, objects[j])
			}
		}
	}
	return found, counterexample
}

// acceptance says that a rule accepts an object, and whether the other rules of the kind do.
func acceptance(v *policy.Version, object, old *policy.Object) string {
	if errs, _ := v.ValidateRules(context.Background(), object, old); len(errs) > 0 {
		return "accepted by this rule, and refused by another one: " + errs[0].Error()
	}
	return "accepted"
}

// refusal returns why a rule refuses an object, or "".
func refusal(v *policy.Version, r *schemas.Rule, object, old *policy.Object) string {
	errs, _ := v.ValidateRules(context.Background(), object, old)
	for _, e := range errs {
		if strings.Contains(e.Detail, r.Source.String()) {
			return e.Error()
		}
	}
	return ""
}

// objects returns generated objects that the schemas of both versions accept, with some of the values at a path.
func (c *comparison) objects(steps []string, at *schemas.Node, values []any) (all []*policy.Object) {
	b := &builder{Maker: samples.Maker{Rand: rand.New(rand.NewPCG(19, 23)), Full: 70}}
	add := func(candidate any) {
		object, ok := candidate.(map[string]any)
		if !ok || len(all) >= maxRuleTries {
			return
		}
		c.is.Program.Prepare(object)
		if len(verdict(c.was.Program, object)) == 0 && len(c.is.Program.Validate(object)) == 0 {
			all = append(all, &policy.Object{Meta: &metav1.ObjectMeta{Name: "example", Namespace: "example"}, Content: object})
		}
	}
	if at != nil && len(steps) > 0 {
		for _, value := range values {
			for _, candidate := range b.build(c.is.Schema, steps, value, 0) {
				add(candidate)
			}
		}
	}
	for i := range 2 * maxRuleTries {
		base, ok := plain(b.Witness(c.is.Schema))
		if !ok {
			continue
		}
		if i%2 == 1 && len(values) > 0 {
			base = b.sprinkled(base, values)
		}
		add(base)
	}
	return all
}

// sprinkled replaces some scalars of a value by others of the same type.
func (b *builder) sprinkled(x any, values []any) any {
	switch x := x.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(x)) {
			x[key] = b.sprinkled(x[key], values)
		}
	case []any:
		for i := range x {
			x[i] = b.sprinkled(x[i], values)
		}
	default:
		if v := values[b.IntN(len(values))]; b.Chance(50) && schemas.KindOf(v) == schemas.KindOf(x) {
			return v
		}
	}
	return x
}

var (
	numberLiteral = regexp.MustCompile(`\b[0-9]{1,15}\b`)
	stringLiteral = regexp.MustCompile(`'[^'\\]*'|"[^"\\]*"`)
)

// literals returns the constants in an expression, and the integers next to them.
func literals(expression string) (all []any) {
	for _, text := range numberLiteral.FindAllString(expression, 20) {
		if n, err := strconv.ParseInt(text, 10, 64); err == nil {
			all = append(all, n, n-1, n+1)
		}
	}
	for _, text := range stringLiteral.FindAllString(expression, 20) {
		all = append(all, text[1:len(text)-1])
	}
	return all
}

// stepsOf returns the names of the path of a rule, with [schemas.Any] for items and values.
func stepsOf(path string) (steps []string) {
	for _, name := range strings.Split(strings.ReplaceAll(path, "[*]", "."+schemas.Any), ".") {
		if name != "" {
			steps = append(steps, name)
		}
	}
	return steps
}

func encoded(o *policy.Object) json.RawMessage {
	if o == nil {
		return nil
	}
	text, err := json.Marshal(o.Content)
	if err != nil {
		return nil
	}
	return text
}
