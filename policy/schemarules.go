package policy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"stele.dev/stele/policy/expr"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/celtype"
	"stele.dev/stele/schemas/wording"
)

// rulePath leads from the root of an object to the values that a rule checks.
type rulePath []ruleStep

// ruleStep leads into a field, or into each item of a list or value of a map.
type ruleStep struct {
	name string
	each bool
	// keys are the fields that identify the items of a list, by which an item's old value is found.
	keys []string
}

// ParseRulePath parses the path of a rule: names with dots, and [*] for each item or value.
func ParseRulePath(text string) (path rulePath, err error) {
	rest := strings.TrimPrefix(text, ".")
	for rest != "" {
		switch after, each := strings.CutPrefix(rest, "[*]"); {
		case each && len(path) > 0:
			path, rest = append(path, ruleStep{each: true}), after
		case strings.HasPrefix(rest, `["`):
			var name string
			d := json.NewDecoder(strings.NewReader(rest[1:]))
			if err := d.Decode(&name); err != nil {
				return nil, fmt.Errorf("%q is no path", text)
			}
			after, ok := strings.CutPrefix(rest[1+d.InputOffset():], "]")
			if !ok {
				return nil, fmt.Errorf("%q is no path", text)
			}
			path, rest = append(path, ruleStep{name: name}), after
		default:
			end := strings.IndexAny(rest, ".[")
			if end < 0 {
				end = len(rest)
			}
			if end == 0 || strings.ContainsAny(rest[:end], "]*") {
				return nil, fmt.Errorf("%q is no path", text)
			}
			path, rest = append(path, ruleStep{name: rest[:end]}), rest[end:]
		}
		if after, dot := strings.CutPrefix(rest, "."); dot {
			if rest = after; rest == "" || rest[0] == '[' {
				return nil, fmt.Errorf("%q is no path", text)
			}
		} else if rest != "" && rest[0] != '[' {
			return nil, fmt.Errorf("%q is no path", text)
		}
	}
	return path, nil
}

// Type returns the type of the values at the path. items is set if the path leads through a list
// whose items have no keys.
func (p rulePath) Type(k *schemas.Kind, v *schemas.Version) (t *celtype.Type, items bool, err error) {
	n, items, err := p.resolve(v.Schema)
	if err != nil {
		return nil, items, err
	}
	return p.typeOf(k, v, n), items, nil
}

// typeOf returns the type of the values at the path, of which resolve has found the node.
func (p rulePath) typeOf(k *schemas.Kind, v *schemas.Version, n *schemas.Node) *celtype.Type {
	name := expr.TypeName(k, v)
	if len(p) == 0 {
		return celtype.Self(name, n)
	}
	return celtype.Of(name+"."+p.String(), n)
}

// resolve returns the node of the values at the path, and notes the keys of the lists on it. items is as in Type.
func (p rulePath) resolve(n *schemas.Node) (_ *schemas.Node, items bool, err error) {
	for i, step := range p {
		switch {
		case !step.each:
			n = fieldOf(n, step.name)
		case n.List != nil && n.Kinds&^schemas.NullKind == schemas.ListKind:
			if n.List.Type == schemas.ListMap {
				p[i].keys = n.List.MapKeys
			} else {
				items = true
			}
			n = n.List.Items
		case n.Struct != nil && n.Kinds&^schemas.NullKind == schemas.StructKind && len(n.Struct.Fields) == 0 && len(n.Struct.Patterns) == 1:
			n = n.Struct.Patterns[0].Value
		default:
			n = nil
		}
		if n == nil {
			return nil, items, fmt.Errorf("the schema says nothing of %s", p[:i+1])
		}
	}
	return n, items, nil
}

// sensitive reports whether the path leads into a secret.
func (p rulePath) sensitive(n *schemas.Node) bool {
	for _, step := range p {
		switch {
		case n == nil || n.Sensitive:
		case !step.each:
			n = fieldOf(n, step.name)
		case n.List != nil:
			n = n.List.Items
		case n.Struct != nil && len(n.Struct.Patterns) == 1:
			n = n.Struct.Patterns[0].Value
		}
	}
	return n != nil && n.Sensitive
}

func fieldOf(n *schemas.Node, name string) *schemas.Node {
	if n == nil || n.Struct == nil {
		return nil
	}
	fields := n.Struct.AllFields()
	i := slices.IndexFunc(fields, func(f schemas.Field) bool { return f.Name == name })
	if i < 0 {
		return nil
	}
	return fields[i].Schema
}

// Node returns the schema of the values at the path; nil if it is not known.
func (p rulePath) Node(n *schemas.Node) *schemas.Node {
	for _, step := range p {
		switch {
		case n == nil:
			return nil
		case step.each && n.List != nil:
			n = n.List.Items
		case step.each && n.Struct != nil && len(n.Struct.Patterns) == 1:
			n = n.Struct.Patterns[0].Value
		case step.each || n.Struct == nil:
			return nil
		default:
			i := slices.IndexFunc(n.Struct.Fields, func(f schemas.Field) bool { return f.Name == step.name })
			if i < 0 {
				return nil
			}
			n = n.Struct.Fields[i].Schema
		}
	}
	return n
}

// Unknown returns the first field of the path that the schema does not have, and the fields that it
// has there.
func (p rulePath) Unknown(n *schemas.Node) (name string, known []string) {
	for _, step := range p {
		next := fieldOf(n, step.name)
		if next == nil {
			if n != nil && n.Struct != nil {
				for _, f := range n.Struct.Fields {
					known = append(known, f.Name)
				}
			}
			return step.name, known
		}
		n = next
	}
	return "", nil
}

func (p rulePath) String() string {
	var b strings.Builder
	for _, step := range p {
		switch {
		case step.each:
			b.WriteString("[*]")
		case step.name == "" || strings.ContainsAny(step.name, `.[]*"\`):
			text, _ := json.Marshal(step.name) // a string always encodes
			b.WriteString("[" + string(text) + "]")
		case b.Len() > 0:
			b.WriteString("." + step.name)
		default:
			b.WriteString(step.name)
		}
	}
	return b.String()
}

// RuleID returns the id of a CEL rule of a kind.
func RuleID(k *schemas.Kind, r *schemas.Rule) string {
	return k.Resource() + "/validations/" + r.Name
}

// schemaRule is a CEL rule of a schema, loaded.
type schemaRule struct {
	*schemas.Rule
	path    rulePath
	self    func() *celtype.Type // made at the first evaluation; rules of the same path share it
	program *expr.Program
	message *expr.Program
	field   []string // from the rule's value to the field that errors name
	secret  bool     // the value is not shown in errors
}

func newSchemaRules(k *schemas.Kind, v *schemas.Version) (rules []*schemaRule, err error) {
	types := map[string]func() *celtype.Type{}
	for i := range v.Rules {
		r := &schemaRule{Rule: &v.Rules[i]}
		if r.path, err = ParseRulePath(r.Path); err != nil {
			return nil, err
		}
		n, _, err := r.path.resolve(v.Schema)
		if err != nil {
			return nil, err
		}
		if r.self = types[r.Path]; r.self == nil {
			r.self = sync.OnceValue(func() *celtype.Type { return r.path.typeOf(k, v, n) })
			types[r.Path] = r.self
		}
		r.field = fieldSteps(r.FieldPath)
		r.secret = r.path.sensitive(v.Schema)
		if r.program, err = expr.Load(r.Checked, r.Rule.Rule); err != nil {
			return nil, err
		}
		if r.MessageExpression != "" {
			if r.message, err = expr.Load(r.CheckedMessage, r.MessageExpression); err != nil {
				return nil, err
			}
		}
		rules = append(rules, r)
	}
	return rules, nil
}

// Object is a decoded object: its metadata, and its whole content.
type Object struct {
	Meta    *metav1.ObjectMeta
	Content map[string]any // without apiVersion, kind and metadata
}

// HasRules reports whether the schema has CEL rules. Those that its constraints of an object's name became do not count.
func (v *Version) HasRules() bool {
	return slices.ContainsFunc(v.rules, func(r *schemaRule) bool { return !r.OfName() })
}

// ValidateRules returns the errors of the schema's CEL rules (x-kubernetes-validations, KEP-2876)
// for an object. old is the object before the write, nil for a create. The object must be valid
// otherwise. An unchanged value gives a warning instead of an error (KEP-4008).
func (v *Version) ValidateRules(ctx context.Context, object, old *Object) (errs field.ErrorList, warnings []string) {
	if len(v.rules) == 0 {
		return nil, nil
	}
	ctx, cancel := expr.Limited(ctx)
	defer cancel()
	return v.ValidateRulesFully(ctx, object, old)
}

// ValidateNames is ValidateRules for the constraints of an object's name alone. The object may be invalid otherwise.
func (v *Version) ValidateNames(ctx context.Context, object, old *Object) (errs field.ErrorList, warnings []string) {
	if !slices.ContainsFunc(v.rules, func(r *schemaRule) bool { return r.OfName() }) {
		return nil, nil
	}
	ctx, cancel := expr.Limited(ctx)
	defer cancel()
	return v.validateRules(ctx, object, old, (*schemas.Rule).OfName)
}

// ValidateRulesFully is ValidateRules without a limit of time.
func (v *Version) ValidateRulesFully(ctx context.Context, object, old *Object) (errs field.ErrorList, warnings []string) {
	return v.validateRules(ctx, object, old, func(*schemas.Rule) bool { return true })
}

func (v *Version) validateRules(ctx context.Context, object, old *Object, which func(*schemas.Rule) bool) (errs field.ErrorList, warnings []string) {
	e := &ruleEvaluation{ctx: ctx, v: v, object: object, old: old, budget: expr.NewBudget()}
	e.consider, _ = ctx.Value(consideringKey{}).(func(Considered))
	for _, r := range v.rules {
		if !which(r.Rule) {
			continue
		}
		var before any
		if old != nil {
			before = old.Content
		}
		e.walk(r, r.path, nil, object.Content, before, old != nil)
	}
	return e.errs, e.warnings
}

// Violated returns the CEL rules of the schema that reject a new object, in their order. The object must be valid
// otherwise.
func (v *Version) Violated(ctx context.Context, object *Object) (rules []*schemas.Rule) {
	ctx, cancel := expr.Limited(ctx)
	defer cancel()
	for _, r := range v.rules {
		e := &ruleEvaluation{ctx: ctx, v: v, object: object, budget: expr.NewBudget()}
		if e.walk(r, r.path, nil, object.Content, nil, false); len(e.errs) > 0 && ctx.Err() == nil {
			rules = append(rules, r.Rule)
		}
	}
	return rules
}

// ruleEvaluation evaluates all rules for one object.
type ruleEvaluation struct {
	ctx         context.Context
	v           *Version
	object, old *Object
	budget      expr.Budget
	errs        field.ErrorList
	warnings    []string
	done        bool             // no more errors are needed or possible
	consider    func(Considered) // may be nil
}

// maxRuleErrors limits the number of errors for one object.
const maxRuleErrors = 100

// walk follows the rest of a rule's path. known says whether before is the old value.
func (e *ruleEvaluation) walk(r *schemaRule, path rulePath, at *field.Path, value, before any, known bool) {
	if e.done {
		return
	}
	if len(path) == 0 {
		e.check(r, at, value, before, known)
		e.done = e.done || len(e.errs) >= maxRuleErrors
		return
	}
	step, rest := path[0], path[1:]
	switch value := value.(type) {
	case map[string]any:
		old, _ := before.(map[string]any)
		if !step.each {
			if next, ok := value[step.name]; ok {
				before, had := old[step.name]
				e.walk(r, rest, at.Child(step.name), next, before, known && had)
			}
			return
		}
		for _, key := range slices.Sorted(maps.Keys(value)) {
			before, had := old[key]
			e.walk(r, rest, at.Key(key), value[key], before, known && had)
		}
	case []any:
		if step.each {
			for i, next := range value {
				old, had := step.oldItem(next, before)
				e.walk(r, rest, at.Index(i), next, old, known && had)
			}
		}
	}
}

// oldItem returns the old value of a list item, which it finds by the keys.
func (s *ruleStep) oldItem(item, list any) (any, bool) {
	old, _ := list.([]any)
	is, ok := item.(map[string]any)
	if len(s.keys) == 0 || !ok {
		return nil, false
	}
	for _, x := range old {
		was, ok := x.(map[string]any)
		if ok && !slices.ContainsFunc(s.keys, func(key string) bool { return !reflect.DeepEqual(is[key], was[key]) }) {
			return was, true
		}
	}
	return nil, false
}

// fieldSteps returns the names in a path such as .a['b.c']. The path's syntax has been checked.
func fieldSteps(path string) (names []string) {
	for path != "" {
		if quoted, ok := strings.CutPrefix(path, "['"); ok {
			name, rest, _ := strings.Cut(quoted, "']")
			names, path = append(names, name), rest
			continue
		}
		path = strings.TrimPrefix(path, ".")
		end := strings.IndexAny(path, ".[")
		if end < 0 {
			end = len(path)
		}
		if names = append(names, path[:end]); end == 0 && path != "" {
			return names // unknown syntax
		}
		path = path[end:]
	}
	return names
}

// check evaluates a rule for a value. The messages are those of kube-apiserver.
func (e *ruleEvaluation) check(r *schemaRule, at *field.Path, value, before any, known bool) {
	if value == nil || r.Transition && !r.OptionalOldSelf && (!known || before == nil) {
		return // without an old value, transition rules apply only with optionalOldSelf
	}
	vars := &selfVars{e: e, r: r, value: value, before: before, known: known}
	holds, err := r.program.Bool(e.ctx, vars, &e.budget)
	e.considered(r, holds && err == nil)
	switch {
	case holds && err == nil:
		return
	case errors.Is(err, expr.ErrBudget) || e.ctx.Err() != nil:
		e.done = true
		e.errs = append(e.errs, field.Invalid(at, field.OmitValueType{}, "validation failed due to running out of cost budget, no further validation rules will be run"+r.suffix()))
		return
	case err != nil:
		e.errs = append(e.errs, field.Invalid(at, field.OmitValueType{}, fmt.Sprintf("%v evaluating rule: %s%s", errors.Unwrap(err), r.text(), r.suffix())))
		return
	}
	detail := ""
	if r.message != nil {
		detail = r.message.Message(e.ctx, vars, &e.budget)
	}
	if detail == "" {
		if detail = strings.TrimSpace(r.Message); detail == "" {
			detail = "failed rule: " + r.text()
		}
	}
	shown := value
	switch value.(type) {
	case map[string]any, []any:
		shown = field.OmitValueType{}
	}
	if r.secret {
		shown = field.OmitValueType{}
	}
	detail += r.suffix()
	for _, name := range r.field {
		at = at.Child(name)
	}
	var fault *field.Error
	switch r.Reason {
	case "FieldValueForbidden":
		fault = field.Forbidden(at, detail)
	case "FieldValueRequired":
		fault = field.Required(at, detail)
	case "FieldValueDuplicate":
		fault = field.Duplicate(at, shown)
	default:
		fault = field.Invalid(at, shown, detail)
	}
	if !r.Transition && known && len(r.path) > 0 && reflect.DeepEqual(value, before) {
		e.warnings = append(e.warnings, fault.Error())
		return
	}
	e.errs = append(e.errs, fault)
}

// considered records a rule and whether it holds for a value.
func (e *ruleEvaluation) considered(r *schemaRule, holds bool) {
	if e.consider == nil {
		return
	}
	verdict := VerdictHolds
	if !holds {
		verdict = VerdictFails
	}
	e.consider(Considered{Rule: RuleID(e.v.Kind.Kind, r.Rule), Source: r.Source.String(), Verdict: verdict})
}

func (r *schemaRule) text() string {
	if r.Message != "" {
		return strings.TrimSpace(r.Message)
	}
	return strings.TrimSpace(r.Rule.Rule)
}

// suffix returns the rule's position, for messages.
func (r *schemaRule) suffix() string { return wording.At(r.Source.String()) }

// selfVars are the CEL variables of a schema rule.
type selfVars struct {
	e             *ruleEvaluation
	r             *schemaRule
	value, before any
	known         bool
}

func (v *selfVars) Parent() interpreter.Activation { return nil }

func (v *selfVars) ResolveName(name string) (any, bool) {
	switch {
	case name == expr.VarSelf:
		return v.selfOf(v.e.object, v.value), true
	case name == expr.VarOldSelf && v.r.OptionalOldSelf:
		if !v.known || v.before == nil {
			return types.OptionalNone, true
		}
		return types.OptionalOf(v.selfOf(v.e.old, v.before)), true
	case name == expr.VarOldSelf && v.known:
		return v.selfOf(v.e.old, v.before), true
	}
	return nil, false
}

func (v *selfVars) selfOf(o *Object, value any) ref.Val {
	if len(v.r.path) > 0 {
		return v.r.self().Value(value)
	}
	gvk := v.e.v.GroupVersionKind()
	return v.r.self().Object(gvk.GroupVersion().String(), gvk.Kind, o.Meta, o.Content)
}
