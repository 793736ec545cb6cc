package counterexamples

import (
	"context"
	"errors"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/admission"
	"stele.dev/stele/schemas/builtin"
	"stele.dev/stele/schemas/program"
)

// outside stands for an authorizer outside of a policy, which a search does not ask. It notes that it was to be asked.
type outside struct{ asked *bool }

// Authorize implements [policy.Authorizer].
func (o outside) Authorize(context.Context, *policy.Request) policy.Opinion {
	*o.asked = true
	return policy.Opinion{}
}

// ByName implements [policy.Authorizer].
func (outside) ByName(*policy.Request) bool { return false }

// unasked returns a policy whose outside authorizers are not asked.
func (s *Search) unasked(p *policy.Policy) *policy.Policy {
	if p == nil || len(p.Form().Outside()) == 0 {
		return p
	}
	return p.WithAuthorizers(func(string) policy.Authorizer { return outside{&s.outside} })
}

// opinion is what one side says to a write by one admission rule.
type opinion struct {
	// text is accepted, or the message of the refusal.
	text string
	// asked reports whether the rule is about the write.
	asked bool
	// unknown says why it cannot be told; empty if it can. Then the rest holds.
	unknown string
	// otherwise says why the side may refuse the write all the same, if the rule accepts it: another rule, or a webhook that is not asked. It
	// is empty if the side accepts the write. nil is the same.
	otherwise func() string
}

func (o *opinion) accepts() bool { return o.text == accepted }

// verdict returns the verdict in words, and whether it is that of the whole side.
func (o *opinion) verdict() (text string, whole bool) {
	if o.accepts() && o.otherwise != nil {
		if but := o.otherwise(); but != "" {
			return "accepted by this rule, and " + but, false
		}
	}
	return o.text, true
}

// judge lets a side decide a write by one rule, on stored objects. The write passes mutation, the schema and the other rules, too, as it
// does in the server.
func (s *Search) judge(ctx context.Context, p *policy.Policy, v *policy.Version, w *write, id string, st *store) (is opinion) {
	s.outside, st.unreadable = false, ""
	defer func() {
		switch {
		case s.outside:
			is = opinion{unknown: "it depends on an authorizer outside of the policy"}
		case st.unreadable != "":
			is = opinion{unknown: st.unreadable}
		}
	}()
	rules := admission.MustOf(p)
	one, old := w.prepared(v), w.old
	result := one.object.value()
	if result != nil {
		made, err := mutate(ctx, rules, v, &one, st)
		switch {
		case errors.Is(err, errFailed):
			return opinion{unknown: "a mutation refuses it"}
		case err != nil:
			return opinion{unknown: err.Error()}
		}
		result = made
		if errs := v.Program.Validate(result.Content); len(errs) > 0 {
			if program.Retryable(errs) {
				return opinion{unknown: "CUE was not evaluated"}
			}
			return opinion{unknown: "the schema refuses it"}
		}
	}
	a := one.attributes(result)
	a.Stored = st
	findings, asked := rules.ValidateBy(ctx, v, a, id)
	is = opinion{text: accepted, asked: asked}
	if len(a.Undecided) > 0 {
		return opinion{unknown: "the rule reads what is not known"}
	}
	if len(findings) > 0 {
		is.text = findings[0].Message
		return is
	}
	is.otherwise = func() string { return s.otherwise(ctx, rules, v, &one, result, old, id, st) }
	return is
}

// otherwise says why a side may refuse a write that one rule accepts; empty if it accepts it.
func (s *Search) otherwise(ctx context.Context, rules admission.Rules, v *policy.Version, w *write, result *policy.Object, old *object, id string, st *store) string {
	s.outside = false
	if result != nil {
		if errs, _ := v.ValidateRules(ctx, result, old.value()); len(errs) > 0 {
			return "refused by the kind: " + errs[0].Error()
		}
	}
	a := w.attributes(result)
	a.Stored = st
	for _, f := range rules.Validate(ctx, v, a) {
		if rule := f.Rule; f.Denies() && rule != id && !strings.HasPrefix(rule, id+"/") {
			return "refused by " + rule
		}
	}
	for _, x := range rules.Reviewers(v, w.request.Subresource, w.operation) {
		if is, err := rules.Concerns(ctx, &x, v, w.attributes(result)); err != nil || is {
			return "perhaps not by the " + x.What() + " " + x.ID + ", which is not asked"
		}
	}
	if s.outside || st.unreadable != "" {
		return "perhaps not by others, which read what is not known here"
	}
	return ""
}

// prepared returns the write as a side decodes it: without what its schema does not have, with its defaults, and with the status as it is.
func (w *write) prepared(v *policy.Version) write {
	one := *w
	if w.object == nil {
		return one
	}
	one.object = w.object.copy()
	if v.Status && w.request.Subresource == "" {
		var is map[string]any
		if w.old != nil {
			is = w.old.content
		}
		one.object.content = admission.WithStatus(one.object.content, is)
	}
	prepare(v, one.object.content)
	return one
}

func prepare(v *policy.Version, content map[string]any) {
	if v.Kind.Builtin {
		builtin.Prepare(v.Kind.Kind.Kind, content, nil)
	}
	v.Program.Prepare(content)
}

// errFailed says that a mutation refuses a write.
var errFailed = errors.New("a mutation refuses it")

// mutate returns what the rules of mutate make of the object of a write. Webhooks and plugins are not asked.
func mutate(ctx context.Context, rules admission.Rules, v *policy.Version, w *write, st *store) (*policy.Object, error) {
	list := rules.Mutations(v, w.request.Subresource, w.operation)
	is := w.object.value()
	if len(list) == 0 {
		return is, nil
	}
	a := w.attributes(w.object.copy().value())
	a.Stored = st
	m := rules.Mutate(ctx, v, a, func(content map[string]any) ([]string, error) {
		if v.Kind.Builtin {
			builtin.Prepare(v.Kind.Kind.Kind, content, nil)
		}
		unknown, _, err := v.Program.TryPrepare(content)
		if err != nil {
			return unknown, err
		}
		return unknown, nil
	})
	if _, err := m.RunAll(list); err != nil {
		if errors.As(err, new(*admission.MutationError)) {
			return nil, errFailed
		}
		return nil, err
	}
	made, err := m.Object()
	switch {
	case err != nil:
		return nil, errFailed
	case made == nil:
		return is, nil
	case made.Meta.Name != is.Meta.Name || made.Meta.Namespace != is.Meta.Namespace:
		return nil, errFailed
	}
	kept := *w
	kept.is = v
	return kept.stored(&policy.Object{Meta: made.Meta, Content: runtime.DeepCopyJSON(made.Content)}), nil
}
