package program

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/jsonvalue"
	"stele.dev/stele/schemas/wording"
)

// A unionCheck is a compiled union.
type unionCheck struct {
	form   *schemas.Union
	arms   []*check
	values [][]any // of the discriminator, per arm

	preferred *check // one of arms, or nil

	ambiguous *check // evaluates the union in CUE; nil if not needed
}

func (c *check) addUnion(u *schemas.Union, b building) error {
	if len(u.Arms) < 2 || c.object == nil {
		return fmt.Errorf("schemas: a union of %d structs", len(u.Arms))
	}
	c.union = &unionCheck{form: u}
	for i := range u.Arms {
		a := &u.Arms[i]
		arm, err := b.check(&schemas.Node{Kinds: schemas.StructKind, Struct: a.Struct, Source: a.Source})
		if err != nil {
			return err
		}
		if arm.object == nil {
			return fmt.Errorf("schemas: a union with an arm that says nothing")
		}
		values, err := jsonvalue.DecodeAll(a.Values)
		if err != nil {
			return err
		}
		c.union.arms = append(c.union.arms, arm)
		if a.Preferred {
			c.union.preferred = arm
		}
		c.union.values = append(c.union.values, values)
		c.acts = c.acts || arm.acts
		c.refers = c.refers || arm.refers
	}
	if u.Ambiguous != nil {
		ask, err := b.fallback(u.Ambiguous)
		if err != nil {
			return err
		}
		c.union.ambiguous = &check{node: c.node, kinds: schemas.StructKind, object: c.object, fallbackCheck: ask}
	}
	return nil
}

// chosen returns the arm that the discriminator selects. ok is false if the discriminator is missing or
// unknown.
func (u *unionCheck) chosen(m map[string]any) (arm *check, ok bool) {
	if u.form.Discriminator == "" {
		return nil, false
	}
	x, ok := m[u.form.Discriminator]
	if !ok {
		return nil, false
	}
	for i, values := range u.values {
		if slices.ContainsFunc(values, func(y any) bool { return jsonvalue.SameScalar(x, y) }) {
			return u.arms[i], true
		}
	}
	return nil, true
}

// remaining returns the arms that m does not contradict, or only the preferred one if it is among them. An arm remains if m only lacks
// fields.
func (u *unionCheck) remaining(m map[string]any, root bool, scopes []scope, p **patience) (arms []*check) {
	if u.preferred != nil && !contradicts(u.preferred, m, root, scopes, p) {
		return []*check{u.preferred}
	}
	for _, arm := range u.arms {
		if arm != u.preferred && !contradicts(arm, m, root, scopes, p) {
			arms = append(arms, arm)
		}
	}
	return arms
}

// contradicts reports whether m stays invalid whatever fields are added.
func contradicts(c *check, m map[string]any, root bool, scopes []scope, p **patience) bool {
	v := inspections.Get().(*inspection)
	defer inspections.Put(v)
	v.path, v.quiet, v.lenient, v.failed, v.patience = v.path[:0], 1, true, false, *p
	v.scopes = append(v.scopes[:0], scopes...)
	v.object(c, m, root)
	contradicted := v.failed
	*p = v.patience
	v.quiet, v.lenient, v.failed, v.patience = 0, false, false, nil
	return contradicted
}

// lacks reports whether an error is about a missing value.
func lacks(e *field.Error) bool { return e.Type == field.ErrorTypeRequired }

// choose validates m against the arm that fits.
func (v *inspection) choose(c *check, m map[string]any, root bool) {
	u := c.union
	if arm, ok := u.chosen(m); ok {
		if arm == nil {
			v.noSuchArm(c, m[u.form.Discriminator])
			return
		}
		v.object(arm, m, root)
		return
	}
	arms := u.remaining(m, root, v.scopes, &v.patience)
	switch len(arms) {
	case 0:
		v.noArm(c, m, root)
	case 1:
		v.object(arms[0], m, root)
	default:
		v.ambiguous(c, m, root)
	}
}

func (v *inspection) noSuchArm(c *check, x any) {
	if v.hush() {
		return
	}
	var values []json.RawMessage
	for i := range c.union.form.Arms {
		values = append(values, c.union.form.Arms[i].Values...)
	}
	secret := v.secret
	if of := c.child(c.union.form.Discriminator); of != nil && of.node.Sensitive {
		v.secret++
	}
	defer func() { v.secret = secret }()
	v.push(step{name: c.union.form.Discriminator})
	v.fail(&field.Error{Type: field.ErrorTypeNotSupported, BadValue: shortValue(x), Detail: withLine("supported values: "+wording.Values(values), c.union.form.Source)})
	v.pop()
}

// noArm reports the errors of m for the arm with the fewest errors.
func (v *inspection) noArm(c *check, m map[string]any, root bool) {
	if v.hush() {
		return
	}
	var nearest field.ErrorList
	var which schemas.Position
	for i, arm := range c.union.arms {
		run := inspection{path: slices.Clone(v.path), scopes: slices.Clone(v.scopes), secret: v.secret, patience: v.patience}
		run.object(arm, m, root)
		v.patience = run.patience
		if i == 0 || len(run.errs) < len(nearest) {
			nearest, which = run.errs, c.union.form.Arms[i].Source
		}
	}
	v.fail(&field.Error{Type: field.ErrorTypeInvalid, BadValue: field.OmitValueType{},
		Detail: withLine("is none of the alternatives; the nearest is that of "+which.String(), c.union.form.Source)})
	for _, e := range nearest {
		v.report(e)
	}
}

// ambiguous handles an m that fits several arms.
func (v *inspection) ambiguous(c *check, m map[string]any, root bool) {
	u := c.union.form
	if ask := c.union.ambiguous; ask != nil {
		if said := ask.fallbackCheck.evaluate(content(m, root), &v.patience); said.Valid() {
			return
		} else if said.Failed != "" {
			v.fallback(ask, content(m, root))
			return
		}
	}
	if v.quiet > 0 { // fields added later may decide
		v.failed = v.failed || !v.lenient
		return
	}
	if u.Discriminator != "" {
		var values []json.RawMessage
		for i := range u.Arms {
			values = append(values, u.Arms[i].Values...)
		}
		v.push(step{name: u.Discriminator})
		v.fail(&field.Error{Type: field.ErrorTypeRequired, BadValue: "", Detail: withLine("must be one of "+wording.Values(values), u.Source)})
		v.pop()
		return
	}
	var said []string
	for i := range u.Arms {
		said = append(said, u.Arms[i].Source.String())
	}
	v.fail(&field.Error{Type: field.ErrorTypeInvalid, BadValue: field.OmitValueType{},
		Detail: withLine("fits more than one alternative: "+strings.Join(slices.Compact(said), ", "), u.Source)})
}

// choose prunes the fields that no arm has, and then prepares m with the arm that fits.
func (p *preparation) choose(c *check, m map[string]any, root bool) {
	fill := p.fill
	p.fill = false
	p.object(c.object, m, root)
	if p.fill = fill; !fill {
		return
	}
	arm, ok := c.union.chosen(m)
	if !ok {
		switch arms := c.union.remaining(m, root, p.scopes, &p.patience); {
		case len(arms) == 1:
			arm = arms[0]
		case len(arms) > 1 && c.union.ambiguous != nil:
			p.prepareByCUE(c.union.ambiguous, m, root)
		}
	}
	if arm != nil {
		p.object(arm.object, m, root)
	}
}
