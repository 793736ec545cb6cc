// Package absent checks expressions of a bundle for what is absent when they are evaluated: an object that is null for
// some operations, and fields that an object may lack.
package absent

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

// For a delete object is null, for a create oldObject. An expression that reads a field of null
// cannot be evaluated, so its rule would always reject the request, or never grant it, and nobody
// would notice before the first such request. So compiling evaluates each expression with null for
// that object, and with every other input unknown.

// unknown is CEL's unknown value. A result is unknown if it depends on an unknown value.
var unknown = types.NewUnknown(0, nil)

// trial is an evaluation of expressions with one object null.
type trial struct {
	ctx       context.Context
	null      string // the object that is null; "" if none is
	request   map[string]any
	params    any
	variables map[string]*expr.Program
	known     map[string]any // variables evaluated so far
	read      bool           // the null object was read
}

// without returns a trial of requests for a type without one of the objects. known has the variables
// with known values.
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
		t.read = true
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

// withObject returns a trial of the same requests with the object. It also makes t forget its results.
func (t *trial) withObject() *trial {
	t.known, t.read = map[string]any{}, false
	with := *t
	with.null, with.known = "", map[string]any{}
	return &with
}

// load loads an expression that has just been checked.
func (t *trial) load(e *policy.Expression) *expr.Program {
	p, err := expr.Load(e.Checked, e.Text)
	if err != nil {
		panic(err)
	}
	return p
}

// fails returns the error of a program that cannot be evaluated without the object; nil if it also
// fails with the object, or does not read it.
func (t *trial) fails(p *expr.Program) error {
	with := t.withObject()
	_, err := t.eval(p)
	if err == nil || !t.read {
		return nil
	}
	if _, err := with.eval(p); err != nil {
		return nil
	}
	for cause := errors.Unwrap(err); cause != nil; cause = errors.Unwrap(err) {
		err = cause
	}
	return err
}

// never reports whether a condition can be true with the object, but not without it. A condition that
// does not read the object may still change between evaluations, by the order of a map.
func (t *trial) never(e policy.Expression) bool {
	can := func(t *trial) bool {
		holds, err := expr.CanHold(e.Checked, e.Text, func(p *expr.Program) bool {
			v, err := t.eval(p)
			return err == nil && v != types.False
		})
		return holds || err != nil
	}
	with := t.withObject()
	return !can(t) && t.read && can(with)
}

// absences say which object is null, for each verb and operation.
var absences = []struct {
	verbs       []string
	null, other string
	operation   policy.Operation
}{
	{[]string{"create"}, expr.VarOldObject, expr.VarObject, policy.Create},
	{[]string{"delete", "deletecollection"}, expr.VarObject, expr.VarOldObject, policy.Delete},
}

// errNeverHolds says that an expression cannot be true for any request.
var errNeverHolds = errors.New("it can never hold")

func addNull(c *evaluation.Evaluation, at schemas.Position, path, null, other, when string, err error) {
	c.Add(at, path, fmt.Sprintf("%s is null on %s, so this cannot be evaluated then: %v", null, when, err),
		fmt.Sprintf(`write %s, or "%s == null || …"`, other, null))
}

// CheckCondition rejects a condition that cannot be evaluated for a verb of one of its rules.
func CheckCondition(c *evaluation.Evaluation, condition *policy.Condition, rules []policy.Rule, path string) {
	program, err := expr.Load(condition.Checked, condition.Text)
	if err != nil {
		return // an error in it is reported elsewhere
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
				addNull(c, condition.Source, path, l.null, l.other, verb, err)
				break // the next rule would give the same error
			}
			if t.never(condition.Expression) {
				c.Add(condition.Source, path, fmt.Sprintf("it can never hold for the verb %s: a %s has no %s", verb, verb, l.null),
					fmt.Sprintf("use %s, or grant %s without this condition", l.other, verb))
				break
			}
		}
	}
}

// CheckValidation rejects expressions of a valid admission rule that cannot be evaluated for one of its
// operations.
func CheckValidation(c *evaluation.Evaluation, v cue.Value, r *policy.Validation) {
	if !slices.ContainsFunc(r.Match.Resources, func(resource string) bool { return !strings.Contains(resource, "/") }) {
		return // subresources are updated only
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
		checkWithout(v, r, t, func(at schemas.Position, path string, err error) {
			addNull(c, at, path, l.null, l.other, string(l.operation), err)
		})
	}
}

func checkWithout(v cue.Value, r *policy.Validation, t *trial, say func(schemas.Position, string, error)) {
	path := v.Path().String()
	for i := range r.Match.Conditions {
		condition := &r.Match.Conditions[i]
		p := t.load(&condition.Expression)
		if err := t.fails(p); err != nil {
			say(condition.Source, path+".match.conditions."+condition.Name, err)
			return
		}
		if met, err := t.eval(p); err != nil || met == types.False {
			return // the rule is not for this operation
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
