package compile

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"cuelang.org/go/cue"
	"github.com/google/cel-go/cel"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/compile/absent"
	"stele.dev/stele/policy/evaluation"
	"stele.dev/stele/policy/expr"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/celtype"
	"stele.dev/stele/schemas/wording"
)

// scopeOf returns the scope of an expression for objects of a type.
type scopeOf func(objectType) (*expr.Scope, error)

// expression checks a CEL expression for each type that objects can have. at is its position. It
// returns the result for the last type, which stands for all of them, or nil if there is an error.
func (c *compiler) expression(text, path string, at schemas.Position, want *cel.Type, of []objectType, scope scopeOf) (*policy.Expression, []*expr.Checked) {
	checked := make([]*expr.Checked, len(of))
	for i, t := range of {
		s, err := scope(t)
		if err != nil {
			c.Add(at, path, err.Error(), "")
			return nil, nil
		}
		var fault *expr.Fault
		if checked[i], fault = s.Compile(text, want); fault != nil {
			c.fault(fault, text, path, at, t, len(of) > 1)
			return nil, nil
		}
	}
	c.widelyListed(checked[len(of)-1], text, path, at)
	return &policy.Expression{Text: text, Checked: checked[len(of)-1].AST, Source: at}, checked
}

// all appends the type that stands for all types, if there are several.
func all(of []objectType) []objectType {
	if len(of) > 1 {
		return append(of, anyObject)
	}
	return of
}

// fault reports an error in an expression, at its position inside the expression.
func (c *compiler) fault(f *expr.Fault, text, path string, at schemas.Position, of objectType, several bool) {
	message, hint := f.Explain(text)
	message = "in CEL: " + message
	if several && of.name != "" {
		message += " (objects may be " + of.name + ")"
		if of == scaleObject {
			hint = "a Scale has spec.replicas only: name the subresource scale in a rule of its own, without this condition"
		}
	}
	c.Add(c.Within(at, text, f.Line, f.Column), path, message, hint)
}

// condition compiles a `when` or an `unless` for requests that the rules name.
func (c *compiler) condition(v cue.Value, name string, rules []policy.Rule) *policy.Condition {
	x := v.LookupPath(cue.ParsePath(name))
	if !x.Exists() || !c.Sound(x) {
		return nil
	}
	text, err := x.String()
	if err != nil {
		c.Decode(x, &text)
		return nil
	}
	at, path := evaluation.Position(x), x.Path().String()
	var of []objectType
	for i := range rules {
		for _, t := range c.scopes.objectTypes(rules[i].APIGroups, []string{"*"}, rules[i].Resources) {
			if !slices.ContainsFunc(of, func(o objectType) bool { return o.name == t.name }) {
				of = append(of, t)
			}
		}
	}
	if len(of) == 0 || slices.ContainsFunc(of, func(o objectType) bool { return o.name == "" }) {
		of = []objectType{anyObject}
	}
	e, checked := c.expression(text, path, at, cel.BoolType, all(of), c.scopes.forAccess)
	if e == nil {
		return nil
	}
	condition := &policy.Condition{Expression: *e, Object: slices.ContainsFunc(checked[0].Names, isObject)}
	if condition.Object && c.onlyWrites(rules, path, at) {
		absent.CheckCondition(c.Evaluation, condition, rules, path)
	}
	absent.WarnOfFields(c.Evaluation, []policy.Expression{condition.Expression}, nil, []string{path}, absent.Objects(of[0].schema))
	return condition
}

func isObject(name string) bool { return name == expr.VarObject || name == expr.VarOldObject }

// onlyWrites rejects a condition on the object if a rule allows requests without an object.
func (c *compiler) onlyWrites(rules []policy.Rule, path string, pos schemas.Position) bool {
	for _, r := range rules {
		for _, verb := range r.Verbs {
			switch verb {
			case "create", "update", "patch", "delete", "deletecollection":
				if len(r.NonResourceURLs) == 0 {
					continue
				}
			}
			c.Add(pos, path, fmt.Sprintf("a condition on the object cannot be decided for the verb %q of rule %s%s: there is no object that is written", verb, r.ID, wording.At(r.Source.String())),
				"grant create, update, patch, delete and deletecollection under this condition, and the rest without")
			return false
		}
	}
	return true
}

// admissionParts are the parts that rules of validating and of mutating admission have in common.
type admissionParts struct {
	match       *policy.Match
	params      *json.RawMessage
	paramSource **policy.ParamSource
	objects     *[]policy.StoredKind
	variables   *[]policy.Variable
}

// admissionRule compiles the common parts of an admission rule: match, params, conditions and variables. base is the
// scope of its expressions without params and variables. It returns the types of objects that the rule sees and the
// scope of the other expressions; ok is false if those cannot be checked.
func (c *compiler) admissionRule(v cue.Value, p admissionParts, base scopeOf) (of []objectType, scope scopeOf, ok bool) {
	c.match(v, p.match)
	c.operations(v, p.match)
	of = c.scopes.objectTypes(p.match.APIGroups, p.match.APIVersions, p.match.Resources)
	if len(of) == 0 {
		c.matchesNothing(v.LookupPath(cue.ParsePath("match")), p.match)
		return nil, nil, false
	}
	c.admissionNames(p.match.APIGroups, p.match.Resources, v.LookupPath(cue.ParsePath("match")))
	of = all(of)
	own := map[string]*celtype.Type{}
	if params := v.LookupPath(cue.ParsePath("params")); params.Exists() {
		value, ok := c.constantParams(params, p.params)
		if !ok {
			return nil, nil, false
		}
		own[expr.VarParams] = celtype.OfValue("stele.Params", value)
	}
	params, ok := c.paramSource(v, p.match, p.paramSource)
	if params != nil {
		own[expr.VarParams] = params
	}
	stored, known := c.storedKinds(v, p.match, p.objects)
	if !ok || !known {
		return nil, nil, false
	}
	extended := map[string]*expr.Scope{}
	scope = func(t objectType) (*expr.Scope, error) {
		if extended[t.name] == nil {
			s, err := base(t)
			if err == nil && len(own) > 0 {
				s, err = s.With(own)
			}
			if err == nil && len(stored) > 0 {
				s, err = s.WithObjects(stored)
			}
			if err != nil {
				return nil, err
			}
			extended[t.name] = s
		}
		return extended[t.name], nil
	}
	for id, x := range c.Fields(v, "match.conditions") {
		if e := c.expressionAt(x, cel.BoolType, of, scope); e != nil {
			p.match.Conditions = append(p.match.Conditions, policy.Variable{Name: id, Expression: *e})
		}
	}
	// Without the variables, each expression that uses one would report an error as well.
	return of, scope, c.variables(v, p.variables, of, scope, extended)
}

// constantParams reads the constant params of an admission rule.
func (c *compiler) constantParams(params cue.Value, into *json.RawMessage) (value any, ok bool) {
	raw, err := params.MarshalJSON()
	if err == nil {
		err = kjson.UnmarshalCaseSensitivePreserveInts(raw, &value)
	}
	if err != nil {
		c.Add(evaluation.Position(params), params.Path().String(), err.Error(), "")
		return nil, false
	}
	if *into, err = json.Marshal(value); err != nil {
		panic(err) // it was decoded from JSON
	}
	return value, true
}

// validation compiles a rule of validating admission.
func (c *compiler) validation(team, name string, v cue.Value) policy.Validation {
	r := policy.Validation{ID: team + "/validate/" + name, Source: evaluation.PositionOfRule(v, "validations")}
	c.ruleAt = r.Source
	defer func() { c.ruleAt = schemas.Position{} }()
	if !c.Sound(v) {
		return r
	}
	said := len(c.Diags)
	of, scope, ok := c.admissionRule(v, admissionParts{&r.Match, &r.Params, &r.ParamSource, &r.Objects, &r.Variables}, c.scopes.forAdmission)
	if !ok {
		return r
	}
	for id, x := range c.Fields(v, "validations") {
		check := policy.ValidationCheck{ID: r.ID + "/" + id, Source: c.positionOf(x)}
		c.DecodeField(x, "message", &check.Message)
		c.oneLine(x.LookupPath(cue.ParsePath("message")), check.Message)
		c.DecodeField(x, "reason", &check.Reason)
		if e := c.expressionAt(x.LookupPath(cue.ParsePath("expression")), cel.BoolType, of, scope); e != nil {
			check.Expression = *e
		}
		if m := x.LookupPath(cue.ParsePath("messageExpression")); m.Exists() {
			check.MessageExpression = c.expressionAt(m, cel.StringType, of, scope)
		}
		r.Validations = append(r.Validations, check)
	}
	for key, x := range c.Fields(v, "auditAnnotations") {
		if e := c.annotation(x.LookupPath(cue.ParsePath("valueExpression")), of, scope); e != nil {
			r.Annotations = append(r.Annotations, policy.Variable{Name: key, Expression: *e})
		}
	}
	c.DecodeField(v, "validationActions", &r.Actions)
	r.Ignore = c.ignores(v)
	if len(r.Validations) == 0 && len(r.Annotations) == 0 {
		c.Add(r.Source, v.Path().String(), "a rule without validations", "add validations: name: expression: …")
	} else {
		c.actions(v, &r)
	}
	if len(c.Diags) == said {
		absent.CheckValidation(c.Evaluation, v, &r)
		absent.WarnOfFieldsIn(c.Evaluation, &r, v.Path().String(), schemasOf(of))
		c.paramsOf(v, r.Expressions())
		c.unreadObjects(r.Objects, r.Expressions())
	}
	return r
}

// actions checks validationActions as Kubernetes does.
func (c *compiler) actions(v cue.Value, r *policy.Validation) {
	for i, action := range r.Actions {
		if slices.Index(r.Actions, action) < i {
			c.Add(element(v, "validationActions", i), fmt.Sprintf("%s.validationActions.%d", v.Path(), i), action+" is there twice", "leave one out")
			return
		}
	}
	switch {
	case len(r.Actions) == 0:
		c.Add(r.Source, v.Path().String(), "a rule without validationActions has no effect", "write Deny, Warn or Audit")
	case slices.Contains(r.Actions, "Deny") && slices.Contains(r.Actions, "Warn"):
		c.Add(r.Source, v.Path().String(), "Deny and Warn together would say the same thing twice", "leave Warn out")
	}
}

// oneLine rejects a message that has several lines or is blank, as Kubernetes does: no warning can have several lines.
func (c *compiler) oneLine(x cue.Value, message string) {
	switch trimmed := strings.TrimSpace(message); {
	case strings.ContainsAny(trimmed, "\r\n"):
		c.Add(evaluation.Position(x), x.Path().String(), "a message is one line", "write it in one, or leave it out: the expression is shown then")
	case message != "" && trimmed == "":
		c.Add(evaluation.Position(x), x.Path().String(), "a message of spaces says nothing", "leave it out: the expression is shown then")
	}
}

// annotation checks the expression of an audit annotation, whose value is a text or null.
func (c *compiler) annotation(x cue.Value, of []objectType, scope scopeOf) *policy.Expression {
	text, err := x.String()
	if err != nil {
		c.Decode(x, &text)
		return nil
	}
	at, path := evaluation.Position(x), x.Path().String()
	e, checked := c.expression(text, path, at, nil, of, scope)
	for _, one := range checked {
		if t := one.Type; !t.IsExactType(cel.StringType) && !t.IsExactType(cel.NullType) && !t.IsExactType(cel.DynType) {
			c.Add(at, path, fmt.Sprintf("in CEL: its value is of type %s, and must be a text or null", cel.FormatCELType(t)), "string(…)")
			return nil
		}
	}
	return e
}

// ignores reports whether the failure policy of a rule is Ignore.
func (c *compiler) ignores(v cue.Value) bool {
	failure := ""
	c.DecodeField(v, "failurePolicy", &failure)
	return failure == "Ignore"
}

// operations rejects an admission rule that no request matches.
func (c *compiler) operations(v cue.Value, match *policy.Match) {
	at := v.LookupPath(cue.ParsePath("match.operations"))
	if !c.Sound(at) || slices.ContainsFunc(match.Operations, func(o string) bool { return o != "CONNECT" }) {
		return
	}
	c.Add(evaluation.Position(at), at.Path().String(), "it matches no request", "there are CREATE, UPDATE and DELETE, and * for all of them")
}

// matchesNothing rejects a rule whose match names no kind.
func (c *compiler) matchesNothing(m cue.Value, match *policy.Match) {
	s := policy.ResourcesOf(c.scopes.kinds, nil)
	for i, name := range match.Resources {
		if !s.HasAny(match.APIGroups, name) {
			c.Add(element(m, "resources", i), fmt.Sprintf("%s.resources.%d", m.Path(), i), fmt.Sprintf("no kind is matched: %q is not served in these apiGroups", name),
				wording.DidYouMean(name, s.In(match.APIGroups), "there are"))
			return
		}
	}
	c.Add(evaluation.Position(m), m.Path().String(), "no kind is matched", "its apiGroups, apiVersions and resources name none of the bundle's")
}

func (c *compiler) match(v cue.Value, match *policy.Match) {
	m := v.LookupPath(cue.ParsePath("match"))
	c.DecodeField(m, "apiGroups", &match.APIGroups)
	c.DecodeField(m, "apiVersions", &match.APIVersions)
	c.DecodeField(m, "resources", &match.Resources)
	c.DecodeField(m, "operations", &match.Operations)
	c.DecodeField(m, "resourceNames", &match.ResourceNames)
	scope, equivalent := "", ""
	c.DecodeField(m, "scope", &scope)
	c.DecodeField(m, "matchPolicy", &equivalent)
	if match.Exact = equivalent == "Exact"; scope != "*" {
		match.Scope = scope
	}
	c.excludes(m, match)
	match.NamespaceSelector = c.selector(m, "namespaceSelector")
	match.ObjectSelector = c.selector(m, "objectSelector")
}

func (c *compiler) selector(v cue.Value, name string) *metav1.LabelSelector {
	x := v.LookupPath(cue.ParsePath(name))
	if !x.Exists() {
		return nil
	}
	raw, err := x.MarshalJSON()
	s := &metav1.LabelSelector{}
	if err == nil {
		var strict []error
		if strict, err = kjson.UnmarshalStrict(raw, s); err == nil && len(strict) > 0 {
			err = strict[0]
		}
	}
	if err == nil {
		_, err = metav1.LabelSelectorAsSelector(s)
	}
	if err != nil {
		c.Add(evaluation.Position(x), x.Path().String(), err.Error(), "a selector has matchLabels and matchExpressions")
	}
	return s
}

// positionOf returns the position of a value in an admission rule: its own, or that of the rule, if a package of the program wrote
// the value.
func (c *compiler) positionOf(x cue.Value) schemas.Position {
	if pos := evaluation.Position(x); !pos.IsZero() {
		return pos
	}
	return c.ruleAt
}

// expressionAt checks the expression in a value.
func (c *compiler) expressionAt(x cue.Value, want *cel.Type, of []objectType, scope scopeOf) *policy.Expression {
	text, err := x.String()
	if err != nil {
		c.Decode(x, &text)
		return nil
	}
	e, _ := c.expression(text, x.Path().String(), c.positionOf(x), want, of, scope)
	return e
}

// variables compiles the variables of a rule, each after those it uses, and declares them in the
// rule's scopes.
func (c *compiler) variables(v cue.Value, into *[]policy.Variable, of []objectType, scope scopeOf, scopes map[string]*expr.Scope) bool {
	type variable struct {
		name  string
		value cue.Value
	}
	var todo []variable
	for name, x := range c.Fields(v, "variables") {
		todo = append(todo, variable{name, x})
	}
	names := make([]string, len(todo))
	for i, x := range todo {
		names[i] = x.name
	}
	for len(todo) > 0 {
		progress := false
		for i := 0; i < len(todo); i++ {
			x := todo[i]
			text, err := x.value.String()
			if err != nil {
				c.Decode(x.value, &text)
				return false
			}
			if waits := slices.ContainsFunc(todo, func(o variable) bool { return expr.Names(text, expr.VarVariables+o.name) }); waits {
				continue
			}
			e, checked := c.expression(text, x.value.Path().String(), c.positionOf(x.value), nil, of, scope)
			if e == nil {
				return false
			}
			*into = append(*into, policy.Variable{Name: x.name, Expression: *e})
			for j, t := range of {
				if scopes[t.name], err = scopes[t.name].Declare(expr.VarVariables+x.name, checked[j]); err != nil {
					c.Add(evaluation.Position(x.value), x.value.Path().String(), err.Error(), "")
					return false
				}
			}
			todo = slices.Delete(todo, i, i+1)
			i--
			progress = true
		}
		if !progress {
			c.Add(evaluation.Position(todo[0].value), todo[0].value.Path().String(), "the variable names itself, by way of others", "")
			return false
		}
	}
	return true
}

// schemaRules checks the CEL rules of a kind and sets their programs.
func (c *compiler) schemaRules(k *schemas.Kind) {
	for i := range k.Versions {
		v := &k.Versions[i]
		for j := range v.Rules {
			c.schemaRule(k, v, &v.Rules[j])
		}
	}
}

func (c *compiler) schemaRule(k *schemas.Kind, v *schemas.Version, r *schemas.Rule) {
	id := policy.RuleID(k, r)
	path, err := policy.ParseRulePath(r.Path)
	if err != nil {
		c.Add(r.PathSource, id+".path", err.Error(), "write names of fields with dots between them, and [*] for what is in a list or a map")
		return
	}
	t, items, err := path.Type(k, v)
	if err != nil {
		name, known := path.Unknown(v.Schema)
		c.Add(r.PathSource, id+".path", err.Error(), wording.DidYouMean(name, known, ""))
		return
	}
	scope := func(objectType) (*expr.Scope, error) {
		old := t
		if r.OptionalOldSelf {
			old = celtype.OptionalOf(t)
		}
		return expr.Root().With(map[string]*celtype.Type{expr.VarSelf: t, expr.VarOldSelf: old})
	}
	e, checked := c.expression(r.Rule, id+".rule", r.RuleSource, cel.BoolType, []objectType{anyObject}, scope)
	if e == nil {
		return
	}
	r.Checked = e.Checked
	part := path.Node(v.Schema)
	absent.WarnOfFields(c.Evaluation, []policy.Expression{*e}, nil, []string{id + ".rule"}, map[string]*schemas.Node{expr.VarSelf: part, expr.VarOldSelf: part})
	names := slices.Contains(checked[0].Names, expr.VarOldSelf)
	if r.Transition = names; names && items {
		c.Add(r.RuleSource, id+".rule", "oldSelf cannot be used for the items of a list: nothing tells which item it was before", "put the rule on the list, or on what encloses it")
	}
	if r.MessageExpression != "" {
		if e, _ := c.expression(r.MessageExpression, id+".messageExpression", r.MessageSource, cel.StringType, []objectType{anyObject}, scope); e != nil {
			r.CheckedMessage = e.Checked
		}
	}
}
