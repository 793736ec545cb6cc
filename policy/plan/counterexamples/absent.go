package counterexamples

import (
	"context"
	"slices"

	"stele.dev/stele/policy"
	"stele.dev/stele/policy/admission"
)

// Absent searches for creates that leave a field out and that a condition, or else an admission rule, decides
// differently because the sides fill in different defaults. v is the version of the new side.
func (s *Search) Absent(ctx context.Context, v *policy.Version, path []string, c *Condition, rule *policy.Validation) (*Result, error) {
	r := &Result{}
	was := s.from.Version(v.GroupVersionResource())
	if was == nil {
		return r, nil
	}
	h := newHints()
	var who []requester
	var program *policy.ConditionProgram
	if c != nil {
		var err error
		if program, err = policy.LoadCondition(c.Is); err != nil {
			return r, err
		}
		h.expression(&c.Is.Expression)
		who = h.requesters(c.Subjects, c.Namespaces)
	} else {
		h.validation(rule)
		who = h.requesters(nil, nil)
	}
	decide := func(p *policy.Policy, v *policy.Version, w *write, st *store) opinion {
		if program == nil {
			return s.judge(ctx, p, v, w, rule.ID, st)
		}
		holds, err := program.Holds(ctx, v, &w.request, w.object.value(), nil)
		switch {
		case err != nil:
			return opinion{asked: true, text: "it cannot be evaluated: " + err.Error()}
		case !holds:
			return opinion{asked: true, text: "the condition does not hold"}
		}
		return opinion{asked: true, text: accepted}
	}
	// Requests that are as a user would write them come first, so each requester tries the first object.
	s.writes(was, v, "", []policy.Operation{policy.Create}, h, who, min(perRule, s.left), func(w *write) bool {
		s.left--
		sent := w.object.copy()
		sent.set(path, absent{})
		before, after := *w, *w
		before.object, after.object = sent.copy(), sent.copy()
		was.Program.Prepare(before.object.content)
		v.Program.Prepare(after.object.content)
		if len(was.Program.Validate(before.object.content)) > 0 || len(v.Program.Validate(after.object.content)) > 0 {
			return true
		}
		st := newStore(w)
		a, b := decide(s.from, was, &before, st), decide(s.to, v, &after, st)
		if a.asked && b.asked {
			w.object = sent
			r.record(w, a, b, st)
		}
		return !r.done() && ctx.Err() == nil
	})
	return r, ctx.Err()
}

// Named returns the storage versions of the kinds that rules let be written.
func Named(p *policy.Policy, rules []policy.Rule) (list []*policy.Version) {
	writing := []string{"create", "update", "patch", "delete", "deletecollection"}
	for _, k := range p.Kinds() {
		if k.Of == nil && slices.ContainsFunc(rules, func(r policy.Rule) bool { return names(&r, k, writing) }) {
			list = append(list, k.Storage())
		}
	}
	return list
}

// Admitted returns the served versions whose writes an admission rule is asked about.
func Admitted(p *policy.Policy, id string) (list []*policy.Version) {
	for _, k := range p.Kinds() {
		for _, v := range k.Versions {
			if v.Served && slices.ContainsFunc([]policy.Operation{policy.Create, policy.Update, policy.Delete}, func(o policy.Operation) bool {
				return slices.Contains(admission.MustOf(p).ValidatedBy(v, "", o), id)
			}) {
				list = append(list, v)
			}
		}
	}
	return list
}
