package admission

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "sigs.k8s.io/json"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/expr"
	"stele.dev/stele/schemas/celtype"
)

// Attributes describe a write to admission rules. They must be used by one goroutine only.
type Attributes struct {
	Request   *policy.Request
	Operation policy.Operation
	DryRun    bool
	// Object is the object to be written, nil for a delete. Old is the current object, nil for a
	// create. For requests to the scale subresource both are Scales.
	Object, Old *policy.Object
	// Namespace returns the object's namespace, or nil if it has none. It is called at most once.
	Namespace func() *policy.Object
	// Stored reads stored objects; nil if they are not known. Then rules that read them are not evaluated, and their ids are added
	// to Undecided.
	Stored    Stored
	Undecided []string
	// Options returns the options of the request, such as a CreateOptions; nil if they are not known.
	Options func() map[string]any
	// Considered, if not nil, is called with each rule and its verdict.
	Considered func(policy.Considered)
	// Annotations are what validations add to the audit log, in the order in which they did. The values of one key are joined.
	Annotations []Annotation

	object, old, request, namespace any // as CEL values
	asked                           *policy.Object
	hasAsked                        bool
	options                         bool // a rule reads request.options
}

// AskedNamespace reports whether a rule read the namespace.
func (a *Attributes) AskedNamespace() bool { return a.hasAsked }

func (a *Attributes) inNamespace() *policy.Object {
	if !a.hasAsked {
		a.asked, a.hasAsked = a.Namespace(), true
	}
	return a.asked
}

func (a *Attributes) consider(rule, source, verdict string) {
	if a.Considered != nil {
		a.Considered(policy.Considered{Rule: rule, Source: source, Verdict: verdict})
	}
}

// consider tells the verdict of a part of a rule, with what it has read of stored objects so far.
func (v *variables) consider(rule, source, verdict string) {
	if v.a.Considered != nil {
		v.a.Considered(policy.Considered{Rule: rule, Source: source, Verdict: verdict, Read: v.read})
		v.read = nil
	}
}

// Rules are the admission rules of a policy, ready to be evaluated.
type Rules struct {
	policy *policy.Policy // of which expressions ask the authorizers
	*loaded
}

// loaded are the rules of a form. Copies of a policy with other authorizers share them.
type loaded struct {
	validations map[subject][]matchedValidation
	mutations   map[subject][]Mutation // in their order
	reviewers   map[subject][]Reviewer
	reads       []schema.GroupResource // sorted
}

// subject is what a write is about: the rules that may match it are indexed by it, so that a write does not get slower
// with rules for other kinds.
type subject struct {
	version     *policy.Version
	subresource string
	operation   policy.Operation
}

// matchedValidation is a rule that applies to a version, and the version in which it sees objects.
type matchedValidation struct {
	*validation
	as *policy.Version
}

type keptRules struct{}

// Of returns the rules of a policy. They are loaded by the first call. The error says which rule of the form cannot be
// loaded.
func Of(p *policy.Policy) (Rules, error) {
	type result struct {
		loaded *loaded
		err    error
	}
	r := p.Keep(keptRules{}, func() any {
		loaded, err := load(p)
		return result{loaded, err}
	}).(result)
	return Rules{p, r.loaded}, r.err
}

// Reads returns the resources of the stored objects that rules read, sorted. The caller must not change them.
func (r Rules) Reads() []schema.GroupResource { return r.reads }

// MustOf is [Of] for a policy that the committer has put in force: that requires its rules to load.
func MustOf(p *policy.Policy) Rules {
	r, err := Of(p)
	if err != nil {
		panic(err)
	}
	return r
}

func load(p *policy.Policy) (*loaded, error) {
	r := &loaded{validations: map[subject][]matchedValidation{}, mutations: map[subject][]Mutation{}}
	form := p.Form()
	for i := range form.Validations {
		rule, err := newValidation(p, &form.Validations[i])
		if err != nil {
			return nil, fmt.Errorf("policy: %s: %w", form.Validations[i].ID, err)
		}
		r.read(rule.rule)
		for s, as := range subjects(p, &rule.Match) {
			r.validations[s] = append(r.validations[s], matchedValidation{rule, as})
		}
	}
	for i := range form.Mutations {
		rule, err := newMutation(p, &form.Mutations[i])
		if err != nil {
			return nil, fmt.Errorf("policy: %s: %w", form.Mutations[i].ID, err)
		}
		r.read(rule.rule)
		for s, as := range subjects(p, &rule.Match) {
			if s.operation != policy.Delete { // it has no object
				r.mutations[s] = append(r.mutations[s], Mutation{rule, as})
			}
		}
	}
	return r, r.loadReviewers(p)
}

// read adds what a rule reads to what the rules read.
func (l *loaded) read(r *rule) {
	versions := slices.Collect(maps.Values(r.stored))
	if r.source != nil {
		versions = append(versions, r.source.version)
	}
	for _, v := range versions {
		resource := v.Kind.Stored().GroupResource()
		i, found := slices.BinarySearchFunc(l.reads, resource, func(a, b schema.GroupResource) int { return strings.Compare(a.String(), b.String()) })
		if !found {
			l.reads = slices.Insert(l.reads, i, resource)
		}
	}
}

// rule is what validations and mutations have in common.
type rule struct {
	params     any // as a CEL value
	namespaces labels.Selector
	objects    labels.Selector
	conditions []*expr.Program
	variables  map[string]*expr.Program   // keyed by "variables.name"
	stored     map[string]*policy.Version // keyed by "objects.name"
	source     *paramSource               // nil if the params are constant
	options    bool                       // an expression may read request.options, which takes time to make
}

func newRule(m *policy.Match, params []byte, variables []policy.Variable) (*rule, error) {
	return newRuleWith((*policy.Expression).Load, m, params, variables)
}

// newRuleWith is newRule with the function that loads expressions.
func newRuleWith(load func(*policy.Expression) (*expr.Program, error), m *policy.Match, params []byte, variables []policy.Variable) (*rule, error) {
	r := &rule{variables: map[string]*expr.Program{}, params: celtype.Dynamic.Value(nil)}
	if len(params) > 0 {
		var value any
		if err := kjson.UnmarshalCaseSensitivePreserveInts(params, &value); err != nil {
			return nil, err
		}
		r.params = celtype.OfValue("stele.Params", value).Value(value)
	}
	var errs []error
	selector := func(s *metav1.LabelSelector) labels.Selector {
		if s == nil {
			return labels.Everything()
		}
		parsed, err := metav1.LabelSelectorAsSelector(s)
		errs = append(errs, err)
		return parsed
	}
	r.namespaces, r.objects = selector(m.NamespaceSelector), selector(m.ObjectSelector)
	for i := range m.Conditions {
		program, err := r.load(load, &m.Conditions[i].Expression)
		r.conditions, errs = append(r.conditions, program), append(errs, err)
	}
	for i := range variables {
		program, err := r.load(load, &variables[i].Expression)
		r.variables[expr.VarVariables+variables[i].Name], errs = program, append(errs, err)
	}
	return r, errors.Join(errs...)
}

// load loads an expression of the rule.
func (r *rule) load(load func(*policy.Expression) (*expr.Program, error), e *policy.Expression) (*expr.Program, error) {
	r.options = r.options || strings.Contains(e.Text, "options")
	return load(e)
}

// broken is a match condition that cannot be evaluated.
type broken struct {
	at  *policy.Variable
	err error
}

// meets reports whether a write that a rule selects meets its conditions. If a condition cannot be evaluated, and no other one is
// false, it returns that one.
func (r *rule) meets(vars *variables, id string, m *policy.Match) (bool, *broken) {
	var failed *broken
	for i, c := range r.conditions {
		at := &m.Conditions[i]
		switch met, err := c.Bool(vars.ctx, vars, &vars.budget); {
		case err != nil && failed == nil:
			failed = &broken{at, err}
		case err == nil && !met:
			vars.consider(id, at.Source.String(), "its condition "+at.Name+" does not hold")
			return false, nil
		}
	}
	if failed != nil {
		vars.consider(id, failed.at.Source.String(), "its condition cannot be evaluated")
	}
	return failed == nil, failed
}

// Validates reports whether a validation applies to such writes.
func (r Rules) Validates(v *policy.Version, subresource string, operation policy.Operation) bool {
	return len(r.validations[subject{v, subresource, operation}]) > 0
}

// Validations returns the validations that apply to writes of a subresource, in the order of their ids.
func (r Rules) Validations(v *policy.Version, subresource string, operation policy.Operation) (rules []*policy.Validation) {
	for _, x := range r.validations[subject{v, subresource, operation}] {
		rules = append(rules, x.Validation)
	}
	return rules
}

// ValidatedBy returns the ids of the validations that apply to writes of the version, sorted.
func (r Rules) ValidatedBy(v *policy.Version, subresource string, operation policy.Operation) (ids []string) {
	for _, x := range r.validations[subject{v, subresource, operation}] {
		ids = append(ids, x.ID)
	}
	return slices.Clip(ids)
}
