package counterexamples

import (
	"cmp"
	"context"
	"slices"

	"stele.dev/stele/policy"
	"stele.dev/stele/policy/admission"
	"stele.dev/stele/policy/expr"
)

// Rule searches for writes that an admission rule accepts on one side only. Both sides have the rule, by its id.
func (s *Search) Rule(ctx context.Context, was, is *policy.Validation) (*Result, error) {
	r := &Result{}
	h := newHints()
	h.validation(was)
	h.validation(is)
	who := h.requesters(nil, nil)
	tried := s.versions(is.ID, was.ID)
	for _, t := range tried {
		s.writes(t.was, t.is, t.subresource, t.operations, h, who, min(perRule/len(tried)+1, s.left), func(w *write) bool {
			if subresource := w.request.Subresource; subresource != "" {
				w.ofSubresource()
			}
			s.decide(ctx, w, was.ID, is.ID, r)
			return !r.done() && ctx.Err() == nil
		})
	}
	return r, ctx.Err()
}

// decide lets both sides decide a write by a rule, on generated states: without other objects; with those that rules look for; with others
// of these kinds.
func (s *Search) decide(ctx context.Context, w *write, was, is string, r *Result) {
	compare := func(st *store) (settled bool) {
		s.left--
		before, after := s.judge(ctx, s.from, w.was, w, was, st), s.judge(ctx, s.to, w.is, w, is, st)
		r.record(w, before, after, st)
		return r.done()
	}
	empty := newStore(w)
	if compare(empty) || len(empty.read) == 0 {
		return
	}
	found := s.with(ctx, empty, w, r.Tried, false)
	if found != nil && compare(found) {
		return
	}
	if found != nil && len(found.read) > len(empty.read) { // what a rule reads may depend on what it has read
		if more := s.with(ctx, found, w, r.Tried, false); more != nil && compare(more) {
			return
		}
	}
	if others := s.with(ctx, empty, w, r.Tried, true); others != nil {
		compare(others)
	}
}

// target is a version of both policies for which a rule is asked.
type target struct {
	was, is     *policy.Version
	subresource string
	operations  []policy.Operation
}

// versions returns the versions that both policies serve, and whose writes one of the rules is asked about.
func (s *Search) versions(ids ...string) (list []target) {
	for _, k := range s.to.Kinds() {
		for _, v := range k.Versions {
			was := s.from.Version(v.GroupVersionResource())
			if !v.Served || was == nil {
				continue
			}
			for _, subresource := range []string{"", "status"} {
				t := target{was: was, is: v, subresource: subresource}
				for _, operation := range []policy.Operation{policy.Create, policy.Update, policy.Delete} {
					by := append(admission.MustOf(s.to).ValidatedBy(v, subresource, operation), admission.MustOf(s.from).ValidatedBy(was, subresource, operation)...)
					if subresource != "" && operation != policy.Update {
						continue
					}
					if slices.ContainsFunc(ids, func(id string) bool { return slices.Contains(by, id) }) {
						t.operations = append(t.operations, operation)
					}
				}
				if len(t.operations) > 0 {
					list = append(list, t)
				}
			}
		}
	}
	// The kinds of the bundle come first: they are what the rules are about.
	slices.SortStableFunc(list, func(a, b target) int { return cmp.Compare(kindRank(a.is), kindRank(b.is)) })
	return list[:min(len(list), maxKinds)]
}

// kindRank returns a number that is higher for built-in kinds.
func kindRank(v *policy.Version) int {
	if v.Kind.Builtin {
		return 1
	}
	return 0
}

// Condition is the condition of a binding, or the exception of a deny, and the requests that it is asked about.
type Condition struct {
	Is         *policy.Condition
	Rules      []policy.Rule
	Namespaces []string
	Subjects   []policy.Subject
}

// Conditions searches for requests for which two conditions differ.
func (s *Search) Conditions(ctx context.Context, was, is Condition) (*Result, error) {
	r := &Result{}
	before, err := policy.LoadCondition(was.Is)
	if err != nil {
		return r, err
	}
	after, err := policy.LoadCondition(is.Is)
	if err != nil {
		return r, err
	}
	h := newHints()
	h.expression(&was.Is.Expression)
	h.expression(&is.Is.Expression)
	who := h.requesters(is.Subjects, is.Namespaces)
	decide := func(c *policy.ConditionProgram, v *policy.Version, w *write) opinion {
		ctx, cancel := expr.Limited(ctx)
		defer cancel()
		switch holds, err := c.Holds(ctx, v, &w.request, w.object.value(), w.old.value()); {
		case err != nil:
			return opinion{asked: true, text: "it cannot be evaluated: " + err.Error()}
		case !holds:
			return opinion{asked: true, text: "the condition does not hold"}
		}
		return opinion{asked: true, text: accepted}
	}
	tried := s.conditional(is.Rules)
	for _, t := range tried {
		s.writes(t.was, t.is, t.subresource, t.operations, h, who, min(perRule/len(tried)+1, s.left), func(w *write) bool {
			s.left--
			r.record(w, decide(before, w.was, w), decide(after, w.is, w), nil)
			return !r.done() && ctx.Err() == nil
		})
	}
	return r, ctx.Err()
}

// conditional returns the versions and operations that rules name.
func (s *Search) conditional(rules []policy.Rule) (list []target) {
	for _, k := range s.to.Kinds() {
		v := k.Storage()
		was := s.from.Version(v.GroupVersionResource())
		if !v.Served || was == nil || k.Of != nil {
			continue
		}
		t := target{was: was, is: v}
		for operation, verbs := range map[policy.Operation][]string{policy.Create: {"create"}, policy.Update: {"update", "patch"}, policy.Delete: {"delete", "deletecollection"}} {
			if slices.ContainsFunc(rules, func(r policy.Rule) bool { return names(&r, k, verbs) }) {
				t.operations = append(t.operations, operation)
			}
		}
		if slices.Sort(t.operations); len(t.operations) > 0 {
			list = append(list, t)
		}
	}
	slices.SortStableFunc(list, func(a, b target) int { return cmp.Compare(kindRank(a.is), kindRank(b.is)) })
	return list[:min(len(list), maxKinds)]
}

// names reports whether a rule names a kind and one of the verbs.
func names(r *policy.Rule, k *policy.Kind, verbs []string) bool {
	has := func(list []string, word string) bool {
		return slices.Contains(list, word) || slices.Contains(list, "*")
	}
	return has(r.APIGroups, k.Group) && has(r.Resources, k.Plural) && slices.ContainsFunc(verbs, func(v string) bool { return has(r.Verbs, v) })
}
