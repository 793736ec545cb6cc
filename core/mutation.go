package core

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"stele.dev/stele/core/call"
	"stele.dev/stele/core/commit"
	"stele.dev/stele/core/decide"
	"stele.dev/stele/core/status"
	"stele.dev/stele/eventlog/logpb"
	"stele.dev/stele/policy/admission"
	"stele.dev/stele/policy/expr"
	"stele.dev/stele/schemas/builtin"
	"stele.dev/stele/schemas/crd/definitions"
	"stele.dev/stele/schemas/jsonvalue"
	"stele.dev/stele/schemas/wording"
)

// mutator is one party of mutating admission that a write concerns: a rule of the policy, a plugin or a webhook.
type mutator struct {
	id, source string
	// order is the number in the bundle. No two mutators of a policy have the same.
	order int64
	// reinvoked says that the mutator is asked again if a later one changed the object: its reinvocationPolicy is IfNeeded.
	reinvoked bool
	// rule is the rule of the policy; nil for a plugin or a webhook.
	rule *admission.Mutation
	// run changes the object by [edit.Draft.Replace], and records the change by [Request.mutated]. asked says whether the
	// object is one that the mutator is about, changed whether it was changed. It is nil for a rule.
	run func(ctx context.Context, r *Request, round int) (asked, changed bool, err error)
}

// mutation lets mutators change the object, each after those of a lower order. As in kube-apiserver, a mutator may be asked
// a second time, once, to see what others changed.
func (p *Pipeline) mutation(ctx context.Context, r *Request) error {
	r.mutations, r.reviews, r.SawNamespace = nil, nil, nil
	if r.write != nil || r.Mistyped != nil {
		return nil
	}
	all := p.mutators(r)
	if len(all) == 0 {
		return nil
	}
	if r.replay != nil && r.replay.unread && slices.ContainsFunc(all, func(m *mutator) bool { return m.rule != nil && m.rule.Reads() }) {
		r.replay.unanswered = decide.Unread
		return errUnanswered
	}
	slices.SortStableFunc(all, func(a, b *mutator) int { return cmp.Compare(a.order, b.order) })
	rules := &ruleMutator{Request: r}
	defer rules.end()
	err := admission.InOrder(len(all), func(i int) bool { return all[i].reinvoked }, func(i, round int) (asked, changed bool, err error) {
		return rules.mutate(ctx, all[i], round)
	})
	if err != nil {
		return err
	}
	return rules.replace()
}

// mutators returns the mutators that may be about a write.
func (p *Pipeline) mutators(r *Request) (all []*mutator) {
	rules := admission.MustOf(r.Tip.Policy).Mutations(r.Kind, r.Info.Subresource, r.operation())
	for i := range rules {
		m := &rules[i]
		all = append(all, &mutator{id: m.ID, source: m.Source.String(), order: m.Order, reinvoked: m.Reinvoke, rule: m})
	}
	return append(all, p.mutatingReviewers(r)...)
}

// ruleMutator runs the rules of the policy. The rules between two other mutators change one copy of the object, which
// becomes the object of the write at their end.
type ruleMutator struct {
	*Request
	object *admission.Mutating // nil if no rule has run since the object was replaced
	asked  *admission.Attributes
	cancel context.CancelFunc // ends the time of the rules between two other mutators
	ctx    context.Context
}

func (m *ruleMutator) mutate(ctx context.Context, of *mutator, round int) (asked, changed bool, err error) {
	if of.rule == nil {
		if err := m.replace(); err != nil {
			return false, false, err
		}
		m.end() // a webhook or a plugin has its own time, and what it takes is not that of later rules
		return of.run(ctx, m.Request, round)
	}
	if m.object == nil {
		if err := m.begin(ctx); err != nil {
			return false, false, err
		}
	}
	applied, asked, err := m.object.Run(of.rule)
	if m.replay != nil {
		m.replay.applied = append(m.replay.applied, applied...)
	}
	for i := range applied {
		a := &applied[i]
		for _, name := range a.Unknown {
			m.Warn("mutation " + a.Step.ID + wording.At(a.Step.Source.String()) + `: unknown field "` + name + `"`)
		}
		paths := make([]string, len(a.Changes))
		for i := range a.Changes {
			paths[i] = a.Changes[i].Path
		}
		if len(paths) > 0 {
			m.mutated(logpb.Mutator_MUTATOR_RULE, a.Step.ID, a.Step.Source.String(), paths, round)
		}
	}
	if failed := new(admission.MutationError); errors.As(err, &failed) {
		err = m.notMutated(failed)
	}
	return asked, admission.Changed(applied), err
}

// mutated records what changed the object. paths are JSON pointers into the object as it is then.
func (r *Request) mutated(by logpb.Mutator, id, source string, paths []string, round int) {
	for i := range paths {
		paths[i] = call.UTF8(paths[i])
	}
	r.mutations = append(r.mutations, &logpb.Mutation{Rule: id, Source: source, Paths: paths, By: by, Reinvoked: round > 0})
}

// lasting returns the mutations that changed something that the write can change, with their paths in the stored object.
func (r *Request) lasting() (list []*logpb.Mutation) {
	for _, m := range r.mutations {
		var paths []string
		for _, path := range m.Paths {
			switch {
			case !admission.Writes(r.Kind, r.Info.Subresource, path):
			case r.Scales():
				paths = append(paths, r.Kind.Scale.Pointer())
			default:
				paths = append(paths, path)
			}
		}
		if len(paths) > 0 {
			list = append(list, &logpb.Mutation{Rule: m.Rule, Source: m.Source, Paths: paths, By: m.By, Reinvoked: m.Reinvoked})
		}
	}
	return list
}

// begin makes a copy of the object for the rules.
func (m *ruleMutator) begin(ctx context.Context) (err error) {
	if m.asked, err = m.attributes(); err != nil {
		return err
	}
	if m.ctx == nil {
		m.ctx, m.cancel = expr.Limited(ctx)
	}
	var prepare admission.Prepare
	if !m.Scales() {
		prepare = m.prepareMutated
	}
	m.object = admission.MustOf(m.Tip.Policy).Mutate(m.ctx, m.Kind, m.asked, prepare)
	return nil
}

// prepareMutated drops the fields that the schema does not have, fills in defaults, and returns what it dropped.
func (r *Request) prepareMutated(content map[string]any) (unknown []string, err error) {
	if r.Kind.Kind.Defines() {
		return definitions.Prepare(content), nil
	}
	if b := r.Kind.Kind.Brought; b != nil {
		return b.Prepare(content), nil
	}
	if r.Kind.Kind.Builtin {
		defer r.KeepFinalizers(content)()
		builtin.Prepare(r.Kind.Kind.Kind.Kind, content, r.OldContent)
	}
	prepare := r.Kind.Program.TryPrepare
	if r.Applies() {
		prepare = r.Kind.Program.TryPrepareApplied
	}
	unknown, _, failed := prepare(content)
	if failed != nil {
		return nil, status.Unavailable(failed.Error())
	}
	return unknown, nil
}

// replace makes the copy that the rules changed the object of the write.
func (m *ruleMutator) replace() error {
	if m.object == nil {
		return nil
	}
	if m.asked.AskedNamespace() {
		m.SawNamespace = m.Tip.Objects.Get(commit.Namespaces, "", m.Key.Namespace)
	}
	o, err := m.object.Object()
	m.object = nil
	if err == nil && o != nil {
		err = m.Replace(o)
	}
	return m.unfit(err)
}

// unfit returns the error for an object that mutations made and that cannot be that of the write. Its first cause is the
// last mutation.
func (r *Request) unfit(err error) error {
	err = r.madeBad(err)
	if st := new(status.Error); errors.As(err, &st) && st.ErrStatus.Details != nil && len(r.mutations) > 0 {
		last := r.mutations[len(r.mutations)-1]
		st.ErrStatus.Details.Causes = slices.Insert(st.ErrStatus.Details.Causes, 0, metav1.StatusCause{Type: metav1.CauseType(last.Rule), Message: "changed by mutation " + last.Rule, Field: last.Source})
	}
	return err
}

// end ends the time of the rules. Rules that run later have a time of their own.
func (m *ruleMutator) end() {
	if m.cancel != nil {
		m.cancel()
	}
	m.ctx, m.cancel = nil, nil
}

// notMutated returns the error for a mutation that cannot be evaluated or applied. It is that of a
// MutatingAdmissionPolicy, whose reason is Invalid and whose code is 403, with the id and the line of the rule.
func (r *Request) notMutated(e *admission.MutationError) error {
	err := status.Refused(r.Resource(), r.Key.Name, fmt.Errorf("mutation %s%s failed: %w", e.Rule, wording.At(e.Source), e.Err))
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseType(e.Rule), Message: e.Err.Error() + " (mutation " + e.Rule + ")", Field: e.Source}}
	err.ErrStatus.Reason = metav1.StatusReasonInvalid
	return err
}

// madeBad adds to an error about the object that mutations made which ones they were.
func (r *Request) madeBad(err error) error {
	if len(r.mutations) == 0 || err == nil {
		return err
	}
	var texts []string
	for _, m := range r.mutations {
		if text := m.Rule + wording.At(m.Source); !slices.Contains(texts, text) {
			texts = append(texts, text)
		}
	}
	text := " (the object was changed by " + strings.Join(texts, ", ") + ")"
	if st := new(status.Error); errors.As(err, &st) {
		st.ErrStatus.Message += text
		return err
	}
	return fmt.Errorf("%w%s", err, text)
}

// nameMutations adds to each error the mutation that made the field, or part of it.
func (r *Request) nameMutations(errs field.ErrorList) {
	for _, e := range errs {
		at := jsonvalue.FieldSteps(strings.TrimPrefix(e.Field, "<nil>"))
		for _, m := range slices.Backward(r.mutations) {
			text := ""
			for _, pointer := range m.Paths {
				switch path, _ := jsonvalue.PointerSteps(pointer); {
				case prefix(path, at):
					text = "made by mutation " + m.Rule + wording.At(m.Source)
				case text == "" && prefix(at, path):
					text = "mutation " + m.Rule + wording.At(m.Source) + " changed " + pointer
				}
			}
			if text != "" {
				e.Detail = strings.TrimPrefix(e.Detail+" ("+text+")", " ")
				break
			}
		}
	}
}

func prefix(path, of []string) bool {
	return len(path) <= len(of) && slices.Equal(path, of[:len(path)])
}
