package kinds

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"stele.dev/stele/policy/plan"
	"stele.dev/stele/schemas"
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
	f := c.add(validationPlace(b), d)
	f.Evidence = plan.Possible
	f.Details = append(f.Details, incomparable)
}
