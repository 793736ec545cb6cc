package compile

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"cuelang.org/go/cue"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/interpreter"
	kjson "sigs.k8s.io/json"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/evaluation"
	"stele.dev/stele/policy/expr"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/celtype"
)

// An expression that looks into an object where there is none cannot be evaluated: of a
// delete object is null, of a create oldObject. A rule that does so whatever the request
// is refuses, or grants nothing, for ever, and nobody would know before the first such
// request. So expressions are evaluated when they are compiled, with null for the one
// and everything that depends on the request unknown.

// unknown is CEL's value for what is not known: what comes of it is unknown as well,
// unless it does not matter.
var unknown = types.NewUnknown(0, nil)

// trial is such an evaluation.
type trial struct {
	ctx       context.Context
	null      string // which of the objects there is not; "" if both may be there
	request   map[string]any
	params    any
	variables map[string]*expr.Program
	known     map[string]any // variables that were evaluated
}

// without is a trial of requests of a type that lack one of the objects. known is what
// all of them have in common.
func without(ctx context.Context, null string, of *celtype.Type, known map[string]any) *trial {
	t := &trial{ctx: ctx, null: null, request: map[string]any{}, known: map[string]any{}}
	for _, name := range append(of.FieldNames(), "namespace") {
		t.request[name] = unknown
	}
	for name, value := range known {
		t.request[name] = value
	}
	return t
}

func (t *trial) Parent() interpreter.Activation { return nil }

func (t *trial) ResolveName(name string) (any, bool) {
	switch name {
	case t.null:
		return types.NullValue, true
	case expr.VarRequest:
		return t.request, true
	case expr.VarParams:
		return t.params, true
	case expr.VarObject, expr.VarOldObject, expr.VarNamespace, "authorizer", "authorizer.requestResource":
		return unknown, true
	}
	program := t.variables[name]
	if program == nil {
		return nil, false
	}
	if _, ok := t.known[name]; !ok {
		value, err := t.eval(program)
		if t.known[name] = value; err != nil {
			t.known[name] = types.WrapErr(err)
		}
	}
	return t.known[name], true
}

func (t *trial) eval(p *expr.Program) (any, error) {
	budget := expr.NewBudget()
	return p.Eval(t.ctx, t, &budget)
}

// load makes a program of an expression, which was checked a moment ago.
func (t *trial) load(e *policy.Expression) *expr.Program {
	p, err := expr.Load(e.Checked, e.Text)
	if err != nil {
		panic(err)
	}
	return p
}

// fails says why a program cannot be evaluated without the object, if it could be with
// one: what is wrong with it otherwise is not the object's.
func (t *trial) fails(p *expr.Program) error {
	_, err := t.eval(p)
	if err == nil {
		return nil
	}
	with := *t
	with.null, with.known = "", map[string]any{}
	if _, err := with.eval(p); err != nil {
		return nil
	}
	for cause := errors.Unwrap(err); cause != nil; cause = errors.Unwrap(err) {
		err = cause
	}
	return err
}

// never reports whether a condition cannot be true without the object, and could be with one.
func (t *trial) never(e policy.Expression) bool {
	can := func(t *trial) bool {
		holds, err := expr.CanHold(e.Checked, e.Text, func(p *expr.Program) bool {
			v, err := t.eval(p)
			return err == nil && v != types.False
		})
		return holds || err != nil
	}
	with := *t
	with.null, with.known = "", map[string]any{}
	return !can(t) && can(&with)
}

// absences are which object there is not, by the verbs of a request and by its operation.
var absences = []struct {
	verbs       []string
	null, other string
	operation   policy.Operation
}{
	{[]string{"create"}, expr.VarOldObject, expr.VarObject, policy.Create},
	{[]string{"delete", "deletecollection"}, expr.VarObject, expr.VarOldObject, policy.Delete},
}

// errNeverHolds says that an expression is false, or cannot be evaluated, whatever the request.
var errNeverHolds = errors.New("it can never hold")

func (c *compiler) addNull(at schemas.Position, path, null, other, when string, err error) {
	c.Add(at, path, fmt.Sprintf("%s is null on %s, so this cannot be evaluated then: %v", null, when, err),
		fmt.Sprintf(`write %s, or "%s == null || …"`, other, null))
}

// neverDecided refuses a condition that for one of its rules' verbs cannot be decided.
func (c *compiler) neverDecided(condition *policy.Condition, rules []policy.Rule, path string) {
	program, err := expr.Load(condition.Checked, condition.Text)
	if err != nil {
		return // it loads as it was compiled a moment ago, or is refused with the form
	}
	ctx, cancel := expr.Limited(context.Background())
	defer cancel()
	for _, l := range absences {
		for _, verb := range l.verbs {
			if !slices.ContainsFunc(rules, func(r policy.Rule) bool { return slices.Contains(r.Verbs, verb) }) {
				continue
			}
			t := without(ctx, l.null, expr.AccessType, map[string]any{"verb": verb})
			if err := t.fails(program); err != nil {
				c.addNull(condition.Source, path, l.null, l.other, verb, err)
				break // it would be the same of the next
			}
			if t.never(condition.Expression) {
				c.Add(condition.Source, path, fmt.Sprintf("it can never hold for the verb %s: a %s has no %s", verb, verb, l.null),
					fmt.Sprintf("use %s, or grant %s without this condition", l.other, verb))
				break
			}
		}
	}
}

// neverHolds refuses expressions of an admission rule, which is sound, that for one of
// its operations cannot be evaluated.
func (c *compiler) neverHolds(v cue.Value, r *policy.Validation) {
	if !slices.ContainsFunc(r.Match.Resources, func(resource string) bool { return !strings.Contains(resource, "/") }) {
		return // subresources are updated, and not created or deleted
	}
	ctx, cancel := expr.Limited(context.Background())
	defer cancel()
	for _, l := range absences {
		if !slices.Contains(r.Match.Operations, string(l.operation)) && !slices.Contains(r.Match.Operations, "*") {
			continue
		}
		t := without(ctx, l.null, expr.AdmissionType, map[string]any{"operation": string(l.operation)})
		if len(r.Params) > 0 {
			var params any
			if kjson.UnmarshalCaseSensitivePreserveInts(r.Params, &params) != nil {
				return
			}
			t.params = celtype.OfValue("stele.Params", params).Value(params)
		}
		t.variables = map[string]*expr.Program{}
		for _, x := range r.Variables {
			t.variables[expr.VarVariables+x.Name] = t.load(&x.Expression)
		}
		c.neverHoldsOf(v, r, t, func(at schemas.Position, path string, err error) {
			c.addNull(at, path, l.null, l.other, string(l.operation), err)
		})
	}
}

func (c *compiler) neverHoldsOf(v cue.Value, r *policy.Validation, t *trial, say func(schemas.Position, string, error)) {
	path := v.Path().String()
	for i := range r.Match.Conditions {
		condition := &r.Match.Conditions[i]
		p := t.load(&condition.Expression)
		if err := t.fails(p); err != nil {
			say(condition.Source, path+".match.conditions."+condition.Name, err)
			return
		}
		if met, err := t.eval(p); err != nil || met == types.False {
			return // the rule is not about this operation
		}
	}
	for i := range r.Validations {
		check := &r.Validations[i]
		err := t.fails(t.load(&check.Expression))
		if err == nil && t.never(check.Expression) {
			err = errNeverHolds
		}
		if err != nil {
			say(check.Expression.Source, path+".validations."+check.ID[len(r.ID)+1:]+".expression", err)
		}
	}
}

// operations refuses a rule that no request meets.
func (c *compiler) operations(v cue.Value, r *policy.Validation) {
	at := v.LookupPath(cue.ParsePath("match.operations"))
	if !c.Sound(at) || slices.ContainsFunc(r.Match.Operations, func(o string) bool { return o != "CONNECT" }) {
		return
	}
	c.Add(evaluation.Position(at), at.Path().String(), "it matches no request", "there are CREATE, UPDATE and DELETE, and * for all of them")
}
