package counterexamples

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/admission"
	"stele.dev/stele/policy/expr"
	"stele.dev/stele/policy/patches"
	"stele.dev/stele/schemas/builtin"
	"stele.dev/stele/schemas/wording"
)

// Limits of the trial of mutations.
const (
	perMutation = 300    // writes for one mutation of one version, or for two of them together
	perTrial    = 20_000 // writes of all
	maxCrossed  = 8      // writes that only one of two mutations is about
	maxVersions = 12     // versions that are tried
	maxPairs    = 45     // of mutations of one version, of which all are tried; of more, those that changed the same fields
)

// Mutated is what is wrong with the changes of a step of a mutation, shown by a write.
type Mutated struct {
	Step *policy.MutationStep
	// Other is the earlier step that sets the same field to another value; nil if there is none.
	Other *policy.MutationStep
	// By is what refuses the result: the id of a validation, or "" for the schema. Source is its line.
	By, Source string
	// What says it in words.
	What string
	// Tried is the number of writes that show it, all of those that the mutation is about.
	Tried int
	// Sample is one of the writes.
	Sample string
}

// Mutations are the results of a trial of the mutations of a policy.
type Mutations struct {
	Fights  []Mutated // two mutations set a field to different values, each again after the other
	Repeats []Mutated // a mutation that is reinvoked changes its own result
	Refused []Mutated // what a mutation makes is refused each time, and would not be without it
	Fails   []Mutated // a mutation can never be made
	Dropped []Mutated // a step changes only fields that the writes cannot change or the kind does not have
	// Cut says that not all was tried.
	Cut bool
}

// Mutations tries the mutations of the new side on generated writes. Rules that read stored objects are left out, and so
// are webhooks and plugins.
func (s *Search) Mutations(ctx context.Context) (*Mutations, error) {
	t := &mutationTrial{Search: s, rules: admission.MustOf(s.to), found: &Mutations{}, seen: map[string]bool{}, effective: map[string]bool{}, dropped: map[string]Mutated{}}
	t.left = perTrial
	var versions []*policy.Version
	for _, k := range s.to.Kinds() {
		for _, v := range k.Versions {
			if v.Served && k.Of == nil && v.Program != nil && slices.ContainsFunc(subresources, func(s string) bool { return t.concerns(v, s) }) {
				versions = append(versions, v)
			}
		}
	}
	slices.SortStableFunc(versions, func(a, b *policy.Version) int { return cmp.Compare(kindRank(a), kindRank(b)) })
	t.found.Cut = len(versions) > maxVersions
	for _, v := range versions[:min(len(versions), maxVersions)] {
		for _, t.subresource = range subresources {
			if t.concerns(v, t.subresource) {
				t.version(ctx, v)
			}
		}
	}
	t.ineffective()
	t.found.Cut = t.found.Cut || t.left <= 0
	return t.found, ctx.Err()
}

// subresources are those whose writes are tried.
var subresources = []string{"", "status", "scale"}

// mutationTrial tries mutations.
type mutationTrial struct {
	*Search
	rules       admission.Rules
	found       *Mutations
	seen        map[string]bool
	subresource string             // of the writes that are tried now
	effective   map[string]bool    // steps that changed a field that a write can change, by id
	dropped     map[string]Mutated // a write of which all changes of a step were dropped, by the id of the step
}

// concerns reports whether a mutation is about writes of a subresource.
func (t *mutationTrial) concerns(v *policy.Version, subresource string) bool {
	return v.Serves(subresource) && len(t.rules.Mutations(v, subresource, policy.Create))+len(t.rules.Mutations(v, subresource, policy.Update)) > 0
}

// ineffective reports the steps of which all changes were dropped.
func (t *mutationTrial) ineffective() {
	for _, id := range slices.Sorted(maps.Keys(t.dropped)) {
		if !t.effective[id] {
			t.add(&t.found.Dropped, t.dropped[id])
		}
	}
}

// mutationsOf returns the mutations of writes of a version that read no stored objects.
func (t *mutationTrial) mutationsOf(v *policy.Version, operation policy.Operation) (list []admission.Mutation) {
	for _, m := range t.rules.Mutations(v, t.subresource, operation) {
		if !m.Reads() {
			list = append(list, m)
		}
	}
	return list
}

// version tries all mutations of a version, each alone, and then two together.
func (t *mutationTrial) version(ctx context.Context, v *policy.Version) {
	operations := map[string][]policy.Operation{}
	var all []*policy.Mutation
	for _, operation := range []policy.Operation{policy.Create, policy.Update} {
		if t.subresource != "" && operation == policy.Create {
			continue
		}
		for _, m := range t.mutationsOf(v, operation) {
			if operations[m.ID] == nil {
				all = append(all, m.Mutation)
			}
			operations[m.ID] = append(operations[m.ID], operation)
		}
	}
	slices.SortFunc(all, func(a, b *policy.Mutation) int { return cmp.Compare(a.Order, b.Order) })
	changed := make([]map[string]bool, len(all))
	for i, m := range all {
		changed[i] = t.tryOne(ctx, v, m, operations[m.ID])
	}
	for i, m := range all {
		for j := range i {
			both := slices.DeleteFunc(slices.Clone(operations[m.ID]), func(o policy.Operation) bool { return !slices.Contains(operations[all[j].ID], o) })
			if len(all)*(len(all)-1)/2 <= maxPairs || shares(changed[i], changed[j]) {
				t.tryPair(ctx, v, all[j], m, both)
			}
		}
	}
}

// shares reports whether two sets of paths have one in common, or one that is below another.
func shares(a, b map[string]bool) bool {
	for p := range a {
		for q := range b {
			if p == q || strings.HasPrefix(p, q+"/") || strings.HasPrefix(q, p+"/") {
				return true
			}
		}
	}
	return false
}

// hintsOf returns what mutations say about writes.
func hintsOf(rules ...*policy.Mutation) *hints {
	h := newHints()
	for _, r := range rules {
		h.rule(&r.Match, r.Params, r.Variables)
		for i := range r.Mutations {
			h.expression(&r.Mutations[i].Expression)
		}
	}
	h.path([]string{"metadata", "labels", "app"})
	h.path([]string{"metadata", "annotations", "app"})
	return h
}

// users returns the users and namespaces of writes that are tried: only one if no expression reads them.
func (h *hints) users() []requester {
	all := h.requesters(nil, nil)
	if !h.request && len(h.labels) == 1 {
		return all[:1]
	}
	return all
}

// tried is what became of the writes that a mutation is about.
type tried struct {
	asked, failed int
	failure       Mutated
	changed       map[string]bool
	refused       map[string]*Mutated // by what refuses all of the results so far; nil before the first
	made          int
}

// tryOne tries a mutation. It returns the paths that it changes.
func (t *mutationTrial) tryOne(ctx context.Context, v *policy.Version, m *policy.Mutation, operations []policy.Operation) map[string]bool {
	r := &tried{changed: map[string]bool{}}
	h := hintsOf(m)
	for i := range t.to.Form().Validations {
		if x := &t.to.Form().Validations[i]; len(operations) > 0 && slices.Contains(t.rules.ValidatedBy(v, t.subresource, operations[0]), x.ID) {
			h.validation(x)
		}
	}
	t.writes(v, v, t.subresource, operations, h, h.users(), min(perMutation, t.left), func(w *write) bool {
		t.left--
		w.ofSubresource()
		t.tryWrite(ctx, w, m, r)
		return ctx.Err() == nil
	})
	if r.asked > 0 && r.failed == r.asked {
		r.failure.Tried = r.asked
		t.add(&t.found.Fails, r.failure)
	}
	for _, id := range slices.Sorted(maps.Keys(r.refused)) {
		refused := *r.refused[id]
		refused.Tried = r.made
		t.add(&t.found.Refused, refused)
	}
	return r.changed
}

func (t *mutationTrial) add(to *[]Mutated, m Mutated) {
	key := m.Step.ID + "\x00" + m.By
	if m.Other != nil {
		key += "\x00" + m.Other.ID
	}
	if !t.seen[key] {
		t.seen[key] = true
		*to = append(*to, m)
	}
}

// tryWrite tries a mutation on one write.
func (t *mutationTrial) tryWrite(ctx context.Context, w *write, m *policy.Mutation, r *tried) {
	ctx, cancel := expr.Limited(ctx)
	defer cancel()
	rule, ok := t.rule(w, m)
	if !ok {
		return
	}
	object := t.mutate(ctx, w)
	for _, earlier := range t.mutationsOf(w.is, w.operation) {
		if earlier.Order < m.Order {
			_, _, _ = object.Run(&earlier) // what cannot be made is a finding of its own
		}
	}
	changes, dropped, asked, err := t.run(object, w, rule)
	failed := new(admission.MutationError)
	switch {
	case !asked:
		return
	case errors.As(err, &failed):
		r.asked, r.failed = r.asked+1, r.failed+1
		r.failure = Mutated{Step: stepOf(m, failed), What: err.Error(), Sample: w.sample()}
		return
	case err != nil: // CUE could not be asked
		return
	}
	r.asked++
	for _, c := range changes {
		r.changed[c.Path], t.effective[c.step.ID] = true, true
	}
	for _, c := range dropped {
		if t.dropped[c.step.ID].Step == nil {
			t.dropped[c.step.ID] = Mutated{Step: c.step, What: c.dropped(), Sample: w.sample()}
		}
		if identifies(c.Path) { // not dropped, but refused
			t.effective[c.step.ID], changes = true, append(changes, c)
		}
	}
	if m.Reinvoke {
		if again, _, _, err := t.run(object, w, rule); err == nil && len(again) > 0 {
			t.add(&t.found.Repeats, Mutated{Step: again[0].step, What: again[0].words(), Sample: w.sample()})
		}
	}
	if len(changes) > 0 {
		t.refusals(ctx, w, m, changes[0].step, r)
	}
}

// identifies reports whether a change of a path makes the object another one.
func identifies(path string) bool { return path == "/metadata/name" || path == "/metadata/namespace" }

// refusals notes what refuses the result of all mutations and not that of the others. What refused all results before and not
// this one is dropped.
func (t *mutationTrial) refusals(ctx context.Context, w *write, m *policy.Mutation, step *policy.MutationStep, r *tried) {
	with, ok1 := t.verdicts(ctx, w, "")
	without, ok2 := t.verdicts(ctx, w, m.ID)
	if !ok1 || !ok2 {
		return
	}
	r.made++
	if r.refused == nil {
		r.refused = with
		for id := range without {
			delete(r.refused, id) // it refuses also what the mutation did not make
		}
		for _, x := range r.refused {
			x.Step, x.Sample = step, w.sample()
		}
		return
	}
	for id := range r.refused {
		if with[id] == nil {
			delete(r.refused, id)
		}
	}
}

// rule returns a mutation as it is about a write.
func (t *mutationTrial) rule(w *write, m *policy.Mutation) (*admission.Mutation, bool) {
	list := t.mutationsOf(w.is, w.operation)
	i := slices.IndexFunc(list, func(x admission.Mutation) bool { return x.ID == m.ID })
	if i < 0 {
		return nil, false
	}
	return &list[i], true
}

// mutate returns the object of a write, to be changed by mutations.
func (t *mutationTrial) mutate(ctx context.Context, w *write) *admission.Mutating {
	if t.subresource == "scale" {
		return t.rules.Mutate(ctx, w.is, w.attributes(w.object.copy().value()), nil)
	}
	object := w.object.copy()
	return t.rules.Mutate(ctx, w.is, w.attributes(object.value()), func(content map[string]any) ([]string, error) {
		if w.is.Kind.Builtin {
			builtin.Prepare(w.is.Kind.Kind.Kind, content, nil)
		}
		unknown, _, err := w.is.Program.TryPrepare(content)
		if err != nil {
			return unknown, err
		}
		return unknown, nil
	})
}

// madeChange is a change that a step made.
type madeChange struct {
	patches.Change
	step    *policy.MutationStep
	unknown string // a field that it set and that the kind does not have; then there is no change
}

func (c *madeChange) words() string {
	switch {
	case c.unknown != "":
		return "sets " + c.unknown + ", which the kind does not have"
	case c.Old == nil:
		return fmt.Sprintf("sets %s to %s", c.Path, brief(c.New))
	case c.New == nil:
		return "removes " + c.Path
	}
	return fmt.Sprintf("changes %s from %s to %s", c.Path, brief(c.Old), brief(c.New))
}

// dropped says why nothing comes of the change.
func (c *madeChange) dropped() string {
	if c.unknown != "" {
		return c.words()
	}
	return c.words() + ", which the write cannot change"
}

// brief returns the beginning of a value as JSON.
func brief(x any) string {
	const most = 80
	text, err := json.Marshal(x)
	if err != nil {
		return "?"
	}
	return wording.Cut(string(text), most)
}

// run runs a mutation. It returns the changes of fields that the write can change, and those of others and of fields that the
// kind does not have, which are dropped.
func (t *mutationTrial) run(object *admission.Mutating, w *write, m *admission.Mutation) (changes, dropped []madeChange, asked bool, err error) {
	applied, asked, err := object.Run(m)
	for _, a := range applied {
		for _, name := range a.Unknown {
			dropped = append(dropped, madeChange{step: a.Step, unknown: name})
		}
		for _, c := range a.Changes {
			to := &dropped
			if admission.Writes(w.is, t.subresource, c.Path) {
				to = &changes
			}
			*to = append(*to, madeChange{Change: c, step: a.Step})
		}
	}
	return changes, dropped, asked, err
}

// stepOf returns the step of a mutation that failed.
func stepOf(m *policy.Mutation, failed *admission.MutationError) *policy.MutationStep {
	for i := range m.Mutations {
		if m.Mutations[i].ID == failed.Rule {
			return &m.Mutations[i]
		}
	}
	return &policy.MutationStep{ID: m.ID, Source: m.Source}
}

// verdicts returns what refuses the result of all mutations but one: the schema, rules of the kind, and validations that
// deny. It is not known if a mutation fails.
func (t *mutationTrial) verdicts(ctx context.Context, w *write, without string) (refused map[string]*Mutated, known bool) {
	object := t.mutate(ctx, w)
	rules := slices.DeleteFunc(t.mutationsOf(w.is, w.operation), func(m admission.Mutation) bool { return m.ID == without })
	if _, err := object.RunAll(rules); err != nil {
		return nil, false
	}
	result, err := object.Object()
	if err != nil {
		return nil, false
	}
	if result == nil {
		result = w.object.copy().value()
	}
	refused = map[string]*Mutated{}
	if is := &w.object.meta; result.Meta.Name != is.Name || result.Meta.Namespace != is.Namespace {
		refused["identity"] = &Mutated{What: "admission cannot change the name or the namespace"}
	}
	seen := result
	if result = w.stored(result); result == nil {
		return refused, true
	}
	for _, e := range w.is.Program.Validate(result.Content) {
		refused["schema "+e.Field] = &Mutated{What: e.Error()}
	}
	if len(refused) > 0 {
		return refused, true
	}
	errs, _ := w.is.ValidateRules(ctx, result, w.storedBefore())
	for _, e := range errs {
		refused["schema "+e.Field+e.Detail] = &Mutated{What: e.Error()}
	}
	if t.subresource != "scale" {
		seen = result
	}
	for _, f := range t.rules.Validate(ctx, w.is, w.attributes(seen)) {
		if f.Denies() {
			refused[f.Rule] = &Mutated{By: f.Rule, Source: f.Source, What: f.Message}
		}
	}
	return refused, true
}

// tryPair tries two mutations, of which the first has the lower order. If no generated write shows that they fight, it tries
// writes with the fields that the later one reads from a write which that is about, in writes that the first is about.
func (t *mutationTrial) tryPair(ctx context.Context, v *policy.Version, first, later *policy.Mutation, operations []policy.Operation) {
	h := hintsOf(first, later)
	var ofFirst, ofLater []write
	found := false
	t.writes(v, v, t.subresource, operations, h, h.users(), min(perMutation, t.left), func(w *write) bool {
		t.left--
		w.ofSubresource()
		var a, b bool
		a, b, found = t.fight(ctx, w, first, later)
		switch {
		case a && !b && len(ofFirst) < maxCrossed:
			ofFirst = append(ofFirst, *w)
		case b && !a && len(ofLater) < maxCrossed:
			ofLater = append(ofLater, *w)
		}
		return !found && ctx.Err() == nil
	})
	read := hintsOf(later).paths
	for i := range ofFirst {
		for j := range ofLater {
			if w := crossed(&ofFirst[i], &ofLater[j], read); w != nil && !found && ctx.Err() == nil && t.left > 0 {
				t.left--
				_, _, found = t.fight(ctx, w, first, later)
			}
		}
	}
}

// crossed returns a write with fields of another one; nil if that is not valid, or if it is a write of a subresource.
func crossed(w, from *write, fields [][]string) *write {
	if w.operation != from.operation || w.request.Subresource != "" {
		return nil
	}
	both := *w
	both.object = w.object.copy()
	for _, path := range fields {
		both.object.set(path, from.object.get(path))
	}
	both.is.Program.Prepare(both.object.content)
	if len(both.is.Program.Validate(both.object.content)) > 0 {
		return nil
	}
	return &both
}

// fight runs two mutations on a write, and the first once more. They fight if the later one changes a field, and the first changes it
// back. a and b say whether the mutations are about the write.
func (t *mutationTrial) fight(ctx context.Context, w *write, first, later *policy.Mutation) (a, b, found bool) {
	ctx, cancel := expr.Limited(ctx)
	defer cancel()
	one, ok1 := t.rule(w, first)
	two, ok2 := t.rule(w, later)
	if !ok1 || !ok2 {
		return false, false, false
	}
	object := t.mutate(ctx, w)
	_, _, a, err1 := t.run(object, w, one)
	theirs, _, b, err2 := t.run(object, w, two)
	again, _, _, err3 := t.run(object, w, one)
	if err1 != nil || err2 != nil || err3 != nil {
		return a, b, false
	}
	for _, x := range theirs {
		i := slices.IndexFunc(again, func(y madeChange) bool {
			return y.Path == x.Path && reflect.DeepEqual(y.New, x.Old) && reflect.DeepEqual(y.Old, x.New)
		})
		if i >= 0 {
			t.add(&t.found.Fights, Mutated{Step: x.step, Other: again[i].step, What: x.words(), Sample: w.sample()})
			return a, b, true
		}
	}
	return a, b, false
}

// attributes returns a write of an object as admission rules see it.
func (w *write) attributes(object *policy.Object) *admission.Attributes {
	r := w.request
	return &admission.Attributes{Request: &r, Operation: w.operation, Object: object, Old: w.old.value(), Namespace: func() *policy.Object {
		if r.Namespace == "" {
			return nil
		}
		labels := map[string]string{corev1.LabelMetadataName: r.Namespace}
		for k, x := range w.labels {
			if k != corev1.LabelMetadataName {
				labels[k] = x
			}
		}
		return &policy.Object{Meta: &metav1.ObjectMeta{Name: r.Namespace, Labels: labels}, Content: map[string]any{
			"apiVersion": "v1", "kind": "Namespace", "spec": map[string]any{"finalizers": []any{"kubernetes"}}, "status": map[string]any{"phase": "Active"},
		}}
	}, Options: func() map[string]any {
		kind := map[policy.Operation]string{policy.Create: "CreateOptions", policy.Update: "UpdateOptions", policy.Delete: "DeleteOptions"}[w.operation]
		return map[string]any{"apiVersion": "meta.k8s.io/v1", "kind": kind}
	}}
}

// sample describes the write and its object.
func (w *write) sample() string {
	return w.String() + ": " + string(w.object.json(w.is.Seen(w.request.Subresource)))
}
