package plans

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"stele.dev/stele/core/commit"
	"stele.dev/stele/core/decide"
	"stele.dev/stele/limits/batches"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/admission"
	"stele.dev/stele/policy/plan"
	"stele.dev/stele/policy/plan/kinds"
	"stele.dev/stele/policy/quotas"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/jsonvalue"
	"stele.dev/stele/schemas/wording"
)

// kindTrial tries the objects of one kind under both policies.
type kindTrial struct {
	resource schema.GroupResource
	was, is  *policy.Kind
	from, to *bench
	// rendered reports whether the JSON of the source follows the older policy.
	rendered bool
	// sameForm reports whether both policies show an object alike.
	sameForm bool
	// secret reports whether the kind has secret fields under either policy or the one in force, secrets has their paths.
	secret  bool
	secrets [][]string
	bounds  *schemaBounds
	o       *Options
	of      int
	// findings are those of the plan before the objects are tried, places which of them explain a failure.
	findings []plan.Finding
	places   sync.Map // of causes: int
}

// A cause is what a failure is explained by.
type cause struct {
	path, rule string
	fault      field.ErrorType
	admission  bool
}

// keyOf returns what a failure is counted by.
func (t *kindTrial) keyOf(f *failure) key {
	of := cause{f.path, f.rule, f.fault, f.admission}
	at, known := t.places.Load(of)
	if !known {
		at, _ = t.places.LoadOrStore(of, t.findingOf(f))
	}
	if i := at.(int); i >= 0 {
		return key{finding: i}
	}
	return key{-1, f.path, f.rule}
}

// tryObjects tries all objects that the change could concern, and adds what it finds to the plan.
func tryObjects(ctx context.Context, s plan.Sides, o *Options, p *plan.Plan) error {
	if err := removedKinds(ctx, s, o, p); err != nil {
		return err
	}
	trials, err := newTrials(ctx, s, o, p)
	if err != nil {
		return err
	}
	p.Notes = append(p.Notes, unread(trials)...)
	total := 0
	for _, t := range trials {
		total += t.of
	}
	p.Checked.Of += total
	done := new(atomic.Int64)
	for _, t := range trials {
		t.findings = p.Findings
		found, err := t.run(ctx, func(n int) {
			if sum := done.Add(int64(n)); o.Progress != nil {
				o.Progress(int(sum), total)
			}
		})
		if err != nil {
			return err
		}
		if found.outside > 0 {
			p.Notes = append(p.Notes, fmt.Sprintf("%d of %d %s could not be tried: rules ask authorizers outside of the policy about them.", found.outside, t.of, t.resource))
		}
		p.Checked.Objects += t.of - found.outside
		t.attach(p, found)
	}
	return nil
}

// newTrials returns the trials of the kinds that the change could concern: their schemas, validations or scales differ,
// or a rule of admission that applies to them, or what resource quotas can limit. The plan says which of them are not tried.
func newTrials(ctx context.Context, s plan.Sides, o *Options, p *plan.Plan) (trials []*kindTrial, err error) {
	if s.From == nil {
		return nil, nil
	}
	concerned := map[schema.GroupResource]bool{}
	for _, r := range kinds.KindsToTry(s) {
		concerned[r] = true
	}
	if !s.From.Quotas().Same(s.To.Quotas()) {
		concerned[quotas.Quotas] = true // what their specs can name
	}
	from, to := decide.Unasked(s.From), decide.Unasked(s.To)
	spaces := &namespaces{source: o.Objects, known: map[string]*policy.Object{}}
	readBefore, readAfter, err := readables(ctx, from, to, o)
	if err != nil {
		return nil, err
	}
	for _, is := range s.To.Kinds() {
		r := is.GroupResource()
		was := s.From.Kind(r)
		if was == nil || is.Of != nil || was.Of != nil || was.Namespaced != is.Namespaced || !was.StoredAs(is.Kind) {
			continue
		}
		if !concerned[r] && sameAdmission(admission.MustOf(s.From), admission.MustOf(s.To), was.Storage(), is.Storage()) {
			continue
		}
		why, err := o.unread(ctx, r, today, s.From, s.To)
		if err != nil {
			return nil, err
		}
		if k := s.From.Kind(commit.Namespaces); why == "" && is.Namespaced && !o.Objects.Has(k) && o.Objects.Len(is) > 0 && (readsNamespaces(s.From, r) || readsNamespaces(s.To, r)) {
			why = fmt.Sprintf("rules for %s read their namespaces, and the file has none of them", r)
		}
		if why != "" {
			p.Leave(r.String(), fmt.Sprintf("The %s were not tried, because %s. What the change means for stored ones is not known.", r, why))
			continue
		}
		t := &kindTrial{
			resource: r, was: was, is: is, from: newBench(from, was, spaces), to: newBench(to, is, spaces),
			rendered: o.Objects.Shown() == nil || o.Objects.Shown().Digest() == s.From.Digest(), sameForm: was.SameForm(is.Kind),
			bounds: &schemaBounds{root: is.Storage().Schema}, o: o, of: o.Objects.Len(is),
		}
		t.from.reading, t.to.reading = readBefore, readAfter
		t.secrets = slices.Concat(was.Storage().Program.SensitivePaths(), is.Storage().Program.SensitivePaths(), o.secretPaths(r))
		t.secret = len(t.secrets) > 0
		if t.of > 0 {
			trials = append(trials, t)
		}
	}
	return trials, nil
}

// secretPaths returns the secret fields of a kind under the policy in force.
func (o *Options) secretPaths(r schema.GroupResource) (paths [][]string) {
	if o.InForce == nil || o.InForce.Kind(r) == nil {
		return nil
	}
	for _, v := range o.InForce.Kind(r).Versions {
		paths = append(paths, v.Program.SensitivePaths()...)
	}
	return paths
}

// sameAdmission reports whether the same rules of admission apply to a version before and after a change.
func sameAdmission(from, to admission.Rules, was, is *policy.Version) bool {
	for _, subresource := range []string{"", "status"} {
		for _, operation := range []policy.Operation{policy.Create, policy.Update} {
			x, y := from.Validations(was, subresource, operation), to.Validations(is, subresource, operation)
			if !slices.EqualFunc(x, y, sameRule) || !sameMutations(from.Mutations(was, subresource, operation), to.Mutations(is, subresource, operation)) {
				return false
			}
		}
	}
	return true
}

// sameRule reports whether two rules are equal but for their lines.
func sameRule[T policy.Validation | policy.Mutation](a, b *T) bool {
	return reflect.DeepEqual(plan.Plain(a), plan.Plain(b))
}

// run tries all objects of the kind, on all processors.
func (t *kindTrial) run(ctx context.Context, progress func(n int)) (*results, error) {
	parts, err := batches.Do(ctx, batches.AllGood(t.o.Objects.Objects(t.is)), func() *results { return newResults(t.o.Samples) }, func(ctx context.Context, batch []*Object, to *results) error {
		for _, o := range batch {
			if err := t.object(ctx, o, to); err != nil {
				return err
			}
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
		}
		progress(len(batch))
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("%s cannot be tried: %w", t.resource, err)
	}
	all := parts[0]
	for _, part := range parts[1:] {
		all.add(part)
	}
	return all, nil
}

// object tries one object in all ways, and counts what the change introduces.
func (t *kindTrial) object(ctx context.Context, o *Object, to *results) error {
	wasText := o.JSON
	written := o.JSON
	if o.Written != nil {
		written = o.Written
	}
	var err error
	if !t.rendered {
		if wasText, err = t.from.stored(written); err != nil {
			return err
		}
	}
	was, err := decode(wasText)
	if err != nil {
		return err
	}
	is := was
	if !t.sameForm {
		text, err := t.to.stored(written)
		if err != nil {
			return err
		}
		if !bytes.Equal(text, wasText) {
			if is, err = decode(text); err != nil {
				return err
			}
			t.differ(o, was, is, to)
		}
	}
	failed := map[key]*outcome{}
	ctx, outside := decide.Noting(ctx)
	for w := recreated; w < ways; w++ {
		if w == statusWritten && !t.to.version.Status {
			continue
		}
		asIs := is
		if w == recreated {
			asIs = was // clients send what they were shown
		}
		found, err := t.to.try(ctx, asIs, w)
		if err != nil {
			return err
		}
		if len(found) == 0 {
			continue
		}
		before, err := t.from.try(ctx, was, w)
		if err != nil {
			return err
		}
		if len(before) > 0 {
			continue // the change does not introduce it
		}
		for i := range found {
			k := t.keyOf(&found[i])
			if failed[k] == nil {
				failed[k] = &outcome{}
			}
			failed[k].failure = earlierFailure(failed[k].failure, &found[i])
			failed[k].ways[w] = true
		}
	}
	if outside() {
		to.outside++
		return nil // whether it fails depends on what was not asked
	}
	for k, x := range failed {
		x.value, x.extent = t.valueAt(was, x.failure)
		if !x.failure.admission && x.extent > 0 {
			x.fix, err = t.fix(ctx, is, x.failure)
			if err != nil {
				return err
			}
		}
		to.tally(k, x.failure).count(o, x, t.sample(o, x))
	}
	return nil
}

// sample returns the sample of an object, without secrets; nil if the plan names none.
func (t *kindTrial) sample(o *Object, x *outcome) *sample {
	if t.o.Samples == 0 {
		return nil
	}
	s := &sample{extent: x.extent, Sample: plan.Sample{Namespace: o.Namespace, Name: o.Name, Stuck: x.ways[labelled]}}
	if x.failure != nil && !t.secret {
		s.Message = x.failure.message
	}
	if x.value != nil && !t.isSecret(x.steps()) {
		if text, err := json.Marshal(x.value); err == nil && len(text) <= maxValue {
			s.Value = text
		}
	}
	return s
}

// maxValue limits the size of a value that a sample shows.
const maxValue = 256

// isSecret reports whether a value is a secret, or may contain or be a part of one.
func (t *kindTrial) isSecret(steps []string) bool {
	return slices.ContainsFunc(t.secrets, func(secret []string) bool {
		for i := range min(len(secret), len(steps)) {
			if secret[i] != steps[i] && secret[i] != schemas.Any {
				return false
			}
		}
		return true
	})
}

// valueAt returns the value that a failure is about, and how far it is outside of the bounds.
func (t *kindTrial) valueAt(o *policy.Object, f *failure) (value any, extent float64) {
	if f.at == "" {
		return nil, 0
	}
	value, found := jsonvalue.At(o.Content, jsonvalue.FieldSteps(f.at)...)
	if !found {
		return nil, 0
	}
	if _, over, outside := t.bounds.nearest(jsonvalue.FieldSteps(f.at), value); outside {
		extent = over
	}
	return value, extent
}

// fix tries to bring a number to the bound that it violates, by an update. It returns the first reason why that is
// refused.
func (t *kindTrial) fix(ctx context.Context, is *policy.Object, f *failure) (*fixed, error) {
	steps := jsonvalue.FieldSteps(f.at)
	value, found := jsonvalue.At(is.Content, steps...)
	if !found {
		return nil, nil
	}
	bound, _, outside := t.bounds.nearest(steps, value)
	if !outside || bound == nil {
		return nil, nil
	}
	next := &policy.Object{Meta: is.Meta.DeepCopy(), Content: copyOf(is.Content)}
	if !jsonvalue.Set(next.Content, steps, bound) {
		return nil, nil
	}
	refused, err := t.to.write(ctx, next, is, "")
	if err != nil {
		return nil, err
	}
	for _, r := range refused {
		if r.rule != "" {
			return &fixed{refused: true, by: r.rule, source: r.source}, nil
		}
	}
	return &fixed{}, nil
}

// attach adds what was found to the findings of the plan.
func (t *kindTrial) attach(p *plan.Plan, found *results) {
	kind := t.is.Resource()
	for i := range p.Findings {
		// The change of the schema concerns stored objects, even if it meets none of them.
		if f := &p.Findings[i]; f.Kind == kind && f.Objects == nil && plan.SectionOf(f.Rule) == plan.Kinds && f.Class != plan.Looks && !strings.HasPrefix(f.Rule, "OBJECTS_") {
			f.Objects = &plan.Objects{Of: t.of}
		}
	}
	for _, k := range found.keys() {
		x := found.tallies[k]
		if k.finding >= 0 {
			t.merge(&p.Findings[k.finding], x)
		} else {
			t.merge(t.newFinding(p, k, x), x)
		}
	}
	t.attachDifferences(p, found)
	t.attachDropped(p, found)
}

// findingOf returns the index of the finding that explains a failure, or -1.
func (t *kindTrial) findingOf(of *failure) int {
	best, rank := -1, 0
	for i := range t.findings {
		if n := t.explains(&t.findings[i], of); n > rank {
			best, rank = i, n
		}
	}
	return best
}

// explains returns how well a finding explains a failure; 0 if it does not.
func (t *kindTrial) explains(f *plan.Finding, k *failure) int {
	section := plan.SectionOf(f.Rule)
	if f.Class == plan.Looks || f.Class == plan.Widens || f.Version != "" && f.Version != t.is.StorageVersion {
		return 0
	}
	if k.rule != "" {
		mine := section == plan.Policy && k.admission || section == plan.Kinds && f.Kind == t.is.Resource() && (strings.HasPrefix(f.Rule, "VALIDATION_") || strings.HasPrefix(f.Rule, "OBJECTS_"))
		switch {
		case !mine || f.Path == "":
			return 0
		case f.Path == k.rule, strings.HasSuffix(k.rule, "/"+f.Path):
			return 300 + weight(f)
		case strings.HasPrefix(k.rule, f.Path+"/"), strings.HasPrefix(f.Path, k.rule+"/"):
			return 200 + weight(f)
		}
		if rule, _, of := strings.Cut(f.Path, "/params."); of && strings.HasPrefix(k.rule, rule+"/") {
			return 100 + weight(f)
		}
		return 0
	}
	if section != plan.Kinds || f.Kind != t.is.Resource() || silent[f.Rule] || f.Path == "" {
		return 0
	}
	n := 0
	switch {
	case f.Path == k.path:
		n = 10000
	case isBelow(k.path, f.Path):
		n = 100 + 10*len(f.Path) // the nearest parent
	default:
		return 0
	}
	if slices.Contains(likely[string(k.fault)], f.Rule) {
		n += 8
	}
	return n + weight(f)
}

// weight prefers findings of the more dangerous classes.
func weight(f *plan.Finding) int { return len(plan.Classes) - slices.Index(plan.Classes, f.Class) }

// isBelow reports whether a path leads into another one.
func isBelow(path, parent string) bool {
	return strings.HasPrefix(path, parent+".") || strings.HasPrefix(path, parent+"[")
}

// silent are the rules of the section of kinds that refuse no object.
var silent = map[string]bool{
	"DEFAULT_ADDED": true, "DEFAULT_CHANGED": true, "DEFAULT_REMOVED": true, "SENSITIVE_ADDED": true, "SENSITIVE_REMOVED": true,
	"SELECTABLE_ADDED": true, "SELECTABLE_REMOVED": true, "CUE_FALLBACK_ADDED": true, "FIELD_REMOVED": true,
}

// likely are the rules of findings that explain an error of a type.
var likely = map[string][]string{
	"FieldValueRequired":     {"FIELD_REQUIRED", "FIELD_ADDED"},
	"FieldValueNotSupported": {"ENUM_VALUE_REMOVED"},
	"FieldValueTypeInvalid":  {"FIELD_TYPE_CHANGED"},
	"FieldValueInvalid":      {"BOUND_TIGHTENED", "PATTERN_CHANGED"},
}

// newFinding adds a finding for objects that no static finding explains.
func (t *kindTrial) newFinding(p *plan.Plan, k key, x *tally) *plan.Finding {
	f := plan.Finding{
		Rule: "OBJECTS_INVALID", Class: plan.Breaks, Kind: t.is.Resource(), Path: cmp.Or(k.rule, k.path), Evidence: plan.Observed, Objects: &plan.Objects{Of: t.of},
	}
	if x.stuck > 0 {
		f.Rule = "OBJECTS_STUCK"
	}
	if x.failure.source != "" {
		// The text is parsed as that of the form: a position without a column has none.
		_ = f.Source.UnmarshalText([]byte(x.failure.source + ":0"))
	}
	p.Findings = append(p.Findings, f)
	return &p.Findings[len(p.Findings)-1]
}

// merge adds a tally to a finding.
func (t *kindTrial) merge(f *plan.Finding, x *tally) {
	if f.Objects == nil {
		f.Objects = &plan.Objects{Of: t.of}
	} else if plan.SectionOf(f.Rule) == plan.Policy && f.Objects.Violating+f.Objects.Stuck+f.Objects.StatusStuck > 0 {
		f.Objects.Of += t.of // a rule that several kinds violate
	}
	f.Class, f.Evidence = plan.Breaks, plan.Observed
	o := f.Objects
	o.Violating += x.violating
	o.Stuck += x.stuck
	o.StatusStuck += x.statusStuck
	for _, s := range x.samples {
		o.Samples = append(o.Samples, s.Sample)
	}
	o.Samples = o.Samples[:min(len(o.Samples), t.o.Samples)]
	f.Details = append(f.Details, x.details(t)...)
}

// details says in sentences what the numbers of a tally mean.
func (x *tally) details(t *kindTrial) (lines []string) {
	if x.stuck == 0 && x.violating > 0 {
		lines = append(lines, "They stay, and can be changed elsewhere: what an update leaves as it is does not stand in its way.")
	}
	if x.stuck > 0 {
		line := fmt.Sprintf("%s neither labelled nor changed.", objectsCan(x.stuck))
		if x.failure.admission {
			line = strings.TrimSuffix(line, ".") + ": a rule of admission is asked in every update."
		}
		switch {
		case x.statusStuck > 0:
			line += fmt.Sprintf(" The status of %d cannot be written either.", x.statusStuck)
		case t.to.version.Status:
			line += " Status can be written."
		}
		lines = append(lines, line)
	} else if x.statusStuck > 0 {
		lines = append(lines, fmt.Sprintf("The status of %d cannot be written.", x.statusStuck))
	}
	if x.violating > 0 {
		lines = append(lines, "Restores of those from Git, stele undelete and stele revert will be refused.")
	}
	switch {
	case x.fixRefused > 0 && x.fixRefused == x.fixTried:
		lines = append(lines, fmt.Sprintf("They cannot be brought into line by setting %[3]s to the bound: %[1]s%[2]s forbids it.", x.fixBy, wording.At(x.fixSource), x.failure.path))
	case x.fixRefused > 0:
		lines = append(lines, fmt.Sprintf("%d of %d cannot be brought into line by setting %[5]s to the bound: %[3]s%[4]s forbids it.", x.fixRefused, x.fixTried, x.fixBy, wording.At(x.fixSource), x.failure.path))
	}
	return lines
}

func objectsCan(n int) string {
	if n == 1 {
		return "1 object can be"
	}
	return fmt.Sprintf("%d objects can be", n)
}
