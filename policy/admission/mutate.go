package admission

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/cel-go/common/types/ref"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/expr"
	"stele.dev/stele/policy/patches"
	"stele.dev/stele/schemas/celtype"
	"stele.dev/stele/schemas/openapi"
)

// Mutation is a rule of mutating admission that may be about writes of a version.
type Mutation struct {
	*mutation
	as *policy.Version // in which the rule sees objects
}

// mutation is a policy.Mutation with its expressions loaded.
type mutation struct {
	*policy.Mutation
	*rule
	programs []*expr.Program // of its steps
}

func newMutation(p *policy.Policy, r *policy.Mutation) (*mutation, error) {
	common, err := newRuleWith((*policy.Expression).LoadPatch, &r.Match, r.Params, r.Variables)
	if err != nil {
		return nil, err
	}
	err = common.reads(p, r.Objects, r.ParamSource)
	m, errs := &mutation{Mutation: r, rule: common}, []error{err}
	for i := range r.Mutations {
		program, err := common.load((*policy.Expression).LoadPatch, &r.Mutations[i].Expression)
		m.programs, errs = append(m.programs, program), append(errs, err)
	}
	return m, errors.Join(errs...)
}

// Mutations returns the mutations that may be about writes of a subresource, in their order. The caller must not change
// them.
func (r Rules) Mutations(v *policy.Version, subresource string, operation policy.Operation) []Mutation {
	return r.mutations[subject{v, subresource, operation}]
}

// Applied is what a step of a mutation changed.
type Applied struct {
	Step *policy.MutationStep
	// Changes are what it changed; none if all that it set was dropped.
	Changes []patches.Change
	// Unknown are fields that it set and that the schema does not have. They were dropped.
	Unknown []string
}

// Changed reports whether steps of mutations changed an object.
func Changed(applied []Applied) bool {
	return slices.ContainsFunc(applied, func(a Applied) bool { return len(a.Changes) > 0 })
}

// Prepare drops what the schema does not have from the content of an object, and fills in defaults. It returns the fields
// that it dropped.
type Prepare func(content map[string]any) (unknown []string, err error)

// MutationError says which step of a mutation cannot be evaluated or applied.
type MutationError struct {
	Rule, Source string
	Err          error
}

func (e *MutationError) Error() string { return e.Err.Error() }

func (e *MutationError) Unwrap() error { return e.Err }

// Mutating is the object of a write while mutations change it. It is for one goroutine.
type Mutating struct {
	vars    variables
	prepare Prepare
	doc     *patches.Document // nil until a mutation changes the object
	meta    *metav1.ObjectMeta
	stale   bool // meta is older than the document
	dirty   bool // a step changed the document
}

// Mutate begins to change the object of a write. prepare drops what the schema does not have and fills in defaults: it is
// called after each step that changed the object, as in Kubernetes. The evaluations end with the context; see
// [expr.Limited].
func (r Rules) Mutate(ctx context.Context, v *policy.Version, a *Attributes, prepare Prepare) *Mutating {
	m := &Mutating{prepare: prepare, meta: a.Object.Meta}
	m.vars = variables{p: r.policy, v: v, a: a, ctx: ctx, mutating: m}
	return m
}

// Run runs a mutation. asked says whether the mutation is about the write as it is now. It returns the steps that changed
// something. The error is a [*MutationError], or that of prepare; a rule whose failure policy is Ignore goes on with its
// next step.
func (m *Mutating) Run(rule *Mutation) (applied []Applied, asked bool, err error) {
	vars := &m.vars
	vars.begin(rule.rule, rule.as)
	if rule.Match.ObjectSelector != nil || rule.Match.NamespaceSelector != nil {
		if err := m.refresh(); err != nil {
			return nil, false, err
		}
	}
	if !rule.selects(vars.v, vars.a, &rule.Match) {
		vars.a.consider(rule.ID, rule.Source.String(), policy.VerdictUnselected)
		return nil, false, nil
	}
	missing := rule.forEachParam(vars, rule.ID, func() {
		if err != nil {
			return
		}
		var was bool
		applied, was, err = m.runWith(rule, applied)
		asked = asked || was
	})
	if missing != nil && err == nil {
		vars.consider(rule.ID, rule.ParamSource.Source.String(), "its params cannot be found")
		if asked = true; !rule.Ignore {
			err = &MutationError{rule.ID, rule.ParamSource.Source.String(), missing}
		}
	}
	return applied, asked, err
}

// runWith runs a mutation with the params in its variables, and adds the steps that changed something to applied.
func (m *Mutating) runWith(rule *Mutation, applied []Applied) (_ []Applied, asked bool, err error) {
	vars := &m.vars
	met, broken := rule.meets(vars, rule.ID, &rule.Match)
	if broken != nil && !rule.Ignore {
		return applied, true, &MutationError{rule.ID, broken.at.Source.String(), fmt.Errorf("condition %s: %w", broken.at.Name, broken.err)}
	}
	if !met {
		return applied, broken != nil, nil
	}
	for i := range rule.Mutations {
		step := &rule.Mutations[i]
		clear(vars.known) // variables are evaluated on the object that the step sees
		changes, unknown, err := m.step(step, rule.programs[i])
		switch {
		case rule.Ignore && errors.As(err, new(*MutationError)):
			vars.consider(step.ID, step.Source.String(), "is ignored: "+err.Error())
			continue
		case err != nil:
			vars.consider(step.ID, step.Source.String(), policy.VerdictFails)
			return applied, true, err
		case len(changes)+len(unknown) == 0:
			vars.consider(step.ID, step.Source.String(), policy.VerdictUnchanged)
			continue
		}
		if vars.a.Considered != nil {
			vars.consider(step.ID, step.Source.String(), described(changes, unknown))
		}
		applied = append(applied, Applied{step, changes, unknown})
	}
	return applied, true, nil
}

// described says what changed, for an explanation, or which fields were dropped if nothing did.
func described(changes []patches.Change, unknown []string) string {
	if len(changes) == 0 {
		return "sets what the kind does not have, and is dropped: " + strings.Join(unknown, ", ")
	}
	list := make([]string, len(changes))
	for i, c := range changes {
		switch {
		case c.Old == nil:
			list[i] = c.Path + " to " + short(c.New)
		case c.New == nil:
			list[i] = c.Path + ", which is removed"
		default:
			list[i] = c.Path + " from " + short(c.Old) + " to " + short(c.New)
		}
	}
	return policy.VerdictChanges + strings.Join(list, ", ")
}

// short returns the beginning of a value as JSON.
func short(x any) string {
	text, err := json.Marshal(x)
	if err != nil {
		return "?"
	}
	const most = 60
	if len(text) > most {
		return strings.ToValidUTF8(string(text[:most]), "") + "…"
	}
	return string(text)
}

// step evaluates and applies one step.
func (m *Mutating) step(s *policy.MutationStep, program *expr.Program) (changes []patches.Change, unknown []string, err error) {
	vars := &m.vars
	failed := func(err error) error { return &MutationError{s.ID, s.Source.String(), err} }
	result, err := program.Eval(vars.ctx, vars, &vars.budget)
	if err != nil {
		return nil, nil, failed(err)
	}
	if m.doc == nil {
		m.doc = patches.New(vars.asMap(vars.a.Object))
	}
	p, err := patchOf(s.PatchType, result)
	if err != nil {
		return nil, nil, failed(fmt.Errorf("the %s cannot be applied: %w", s.PatchType, err))
	}
	doc, kind := m.doc, vars.v.Kind
	differs := vars.differs()
	switch {
	case differs:
		root, err := converted(doc.Root(), func(content map[string]any) (map[string]any, error) { return vars.v.Converted(content, vars.as) })
		if err != nil {
			return nil, nil, failed(err)
		}
		doc = patches.New(root)
	case kind.Builtin || !p.plain(): // the step may be undone
		doc = patches.New(doc.Root())
	}
	if changes, err = m.apply(doc, p); err != nil {
		return nil, nil, failed(fmt.Errorf("the %s cannot be applied: %w", s.PatchType, err))
	}
	if len(changes) == 0 {
		return nil, nil, nil
	}
	if differs {
		root, err := converted(doc.Root(), func(content map[string]any) (map[string]any, error) {
			return vars.v.Unconverted(content, vars.as, m.doc.Root())
		})
		if err != nil {
			return nil, nil, failed(err)
		}
		doc = patches.New(root)
	}
	if unknown, err = m.prepared(doc, changes); err != nil {
		return nil, nil, err
	}
	if kind.Builtin && len(unknown) > 0 { // as in Kubernetes, which decodes it into a Go type
		return nil, nil, failed(fmt.Errorf("strict decoding error: unknown field %q", unknown[0]))
	}
	m.doc = doc
	m.changed(changes)
	if len(unknown) > 0 && !differs {
		changes = doc.Lasting(changes)
	}
	return changes, unknown, nil
}

// checkMetadata checks the types of metadata that a JSON patch changed.
func checkMetadata(root map[string]any, changes []patches.Change) error {
	if !slices.ContainsFunc(changes, inMetadata) {
		return nil
	}
	fields, ok := root["metadata"].(map[string]any)
	if !ok {
		return errors.New("metadata must be a struct")
	}
	for _, name := range []string{"labels", "annotations"} {
		entries, ok := fields[name].(map[string]any)
		if !ok && fields[name] != nil {
			return fmt.Errorf("metadata.%s must be a map", name)
		}
		for key, value := range entries {
			if _, ok := value.(string); !ok {
				return fmt.Errorf("metadata.%s[%s] must be a string, and is %v", name, key, value)
			}
		}
	}
	if !slices.ContainsFunc(changes, func(c patches.Change) bool { return inMetadata(c) && !isTextual(c.Path) }) {
		return nil
	}
	_, err := metadataOf(fields)
	return err
}

// isTextual reports whether a path is that of a label or an annotation, which are the usual changes of metadata.
func isTextual(path string) bool {
	return strings.HasPrefix(path, "/metadata/labels/") || strings.HasPrefix(path, "/metadata/annotations/")
}

func inMetadata(c patches.Change) bool {
	return c.Path == "" || c.Path == "/metadata" || strings.HasPrefix(c.Path, "/metadata/")
}

// metadataOf decodes metadata.
func metadataOf(fields map[string]any) (*metav1.ObjectMeta, error) {
	meta := &metav1.ObjectMeta{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(fields, meta, true); err != nil {
		return nil, fmt.Errorf("metadata: %w", err)
	}
	return meta, nil
}

// patch is the result of the expression of a step: operations or a configuration.
type patch struct {
	operations    []patches.Operation
	configuration map[string]any
}

func patchOf(patchType string, result ref.Val) (p patch, err error) {
	if patchType == policy.JSONPatch {
		p.operations, err = expr.Operations(result)
	} else {
		p.configuration, err = expr.Configuration(result)
	}
	return p, err
}

// plain reports whether what the patch makes of metadata is surely of the right types.
func (p *patch) plain() bool {
	return !slices.ContainsFunc(p.operations, func(o patches.Operation) bool {
		_, text := o.Value.(string)
		simple := text && (o.Op == "add" || o.Op == "replace") && isTextual(o.Path)
		return !simple && (!strings.HasPrefix(o.Path, "/spec") || strings.HasPrefix(o.From, "/metadata"))
	})
}

// apply applies a patch.
func (m *Mutating) apply(doc *patches.Document, p patch) (changes []patches.Change, err error) {
	if p.configuration == nil {
		if changes, err = doc.JSON(p.operations); errors.Is(err, patches.ErrTest) {
			return nil, nil // as in Kubernetes, the patch is not applied
		}
		if err == nil && !p.plain() {
			err = checkMetadata(doc.Root(), changes)
		}
	} else {
		for _, name := range []string{"apiVersion", "kind"} {
			if is, has := p.configuration[name]; has && is != doc.Root()[name] {
				return nil, fmt.Errorf("%s cannot be changed", name)
			}
		}
		changes, err = doc.Apply(mergeType(m.vars.as.Seen(m.vars.a.Request.Subresource)), p.configuration)
	}
	if err != nil {
		return nil, err
	}
	return changes, doc.Keep(changes, "apiVersion", "kind")
}

// changed notes that the object is another one.
func (m *Mutating) changed(changes []patches.Change) {
	m.dirty = true
	m.vars.a.object, m.vars.a.request = nil, nil
	m.stale = m.stale || slices.ContainsFunc(changes, inMetadata)
}

// prepared prepares the content of a document.
func (m *Mutating) prepared(doc *patches.Document, changes []patches.Change) (unknown []string, err error) {
	if m.prepare == nil || !slices.ContainsFunc(changes, func(c patches.Change) bool { return !strings.HasPrefix(c.Path, "/metadata/") }) {
		return nil, nil
	}
	root := doc.Own()
	metadata, has := root["metadata"]
	delete(root, "metadata")
	unknown, err = m.prepare(root)
	if has {
		root["metadata"] = metadata
	}
	return unknown, err
}

// refresh makes the object of the attributes that of the document, for its metadata.
func (m *Mutating) refresh() error {
	if !m.stale {
		return nil
	}
	fields, _ := m.doc.Root()["metadata"].(map[string]any)
	meta, err := metadataOf(fields)
	if err != nil {
		return err
	}
	m.meta, m.stale = meta, false
	m.vars.a.Object = &policy.Object{Meta: meta, Content: m.vars.a.Object.Content}
	return nil
}

// Object returns the object as it is now; nil if nothing has changed it. The error says what is wrong with its metadata.
func (m *Mutating) Object() (*policy.Object, error) {
	if !m.dirty {
		return nil, nil
	}
	if err := m.refresh(); err != nil {
		return nil, err
	}
	content := make(map[string]any, len(m.doc.Root()))
	for name, value := range m.doc.Root() {
		if name != "metadata" {
			content[name] = value
		}
	}
	return &policy.Object{Meta: m.meta.DeepCopy(), Content: content}, nil
}

// converted returns a whole object whose content a function converts to another version.
func converted(root map[string]any, convert func(content map[string]any) (map[string]any, error)) (map[string]any, error) {
	content := make(map[string]any, len(root))
	for name, value := range root {
		if name != "metadata" {
			content[name] = value
		}
	}
	next := map[string]any{}
	in, err := convert(content)
	if err != nil {
		return nil, err
	}
	for name, value := range in {
		next[name] = value
	}
	next["metadata"] = root["metadata"]
	return next, nil
}

// asMap returns an object as one map.
func (v *variables) asMap(o *policy.Object) map[string]any {
	gvk := v.v.Seen(v.a.Request.Subresource).GroupVersionKind()
	root := make(map[string]any, len(o.Content)+3)
	for name, value := range o.Content {
		root[name] = value
	}
	root["apiVersion"], root["kind"] = gvk.GroupVersion().String(), gvk.Kind
	root["metadata"] = celtype.MetadataJSON(o.Meta)
	return root
}

type mergeKey struct{}

// mergeType returns the type of a version's objects for apply configurations. A Scale has no program.
func mergeType(v *policy.Version) typed.ParseableType {
	if v.Program != nil {
		return v.MergeType()
	}
	return v.Keep(mergeKey{}, func() any { return openapi.MergeType(v.Schema) }).(typed.ParseableType)
}
