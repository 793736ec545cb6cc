package policy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/cel-go/interpreter"
	"stele.dev/stele/policy/expr"
	"stele.dev/stele/schemas/celtype"
	"stele.dev/stele/schemas/wording"
)

// condition is a Condition with its expression loaded.
type condition struct {
	*Condition
	program *expr.Program
}

func newCondition(c *Condition) (*condition, error) {
	if c == nil {
		return nil, nil
	}
	program, err := expr.Load(c.Checked, c.Text)
	return &condition{c, program}, err
}

// holds reports whether a condition without the object is true. It returns false if the condition
// cannot be evaluated: then a grant does not grant, and a deny has no exception.
func (c *condition) holds(r *Request) bool {
	holds, _ := c.decide(context.Background(), &accessVars{request: r})
	return holds
}

// decide evaluates the condition. It returns an error if that is not possible; then the condition
// does not hold.
func (c *condition) decide(ctx context.Context, vars *accessVars) (bool, error) {
	ctx, cancel := expr.Limited(ctx)
	defer cancel()
	budget := expr.NewBudget()
	holds, err := c.program.Bool(ctx, vars, &budget)
	if err == nil {
		return holds, nil
	}
	if cause := errors.Unwrap(err); cause != nil {
		err = cause // the message already shows the expression
	}
	return false, err
}

// accessVars are the CEL variables of a condition.
type accessVars struct {
	request        *Request
	value          any // the CEL variable "request", once it was read
	object, before any // as CEL values
}

func (v *accessVars) Parent() interpreter.Activation { return nil }

func (v *accessVars) ResolveName(name string) (any, bool) {
	switch name {
	case expr.VarRequest:
		if v.value == nil {
			v.value = expr.AccessType.Value(v.request.Fields())
		}
		return v.value, true
	case expr.VarObject:
		return v.object, v.object != nil
	case expr.VarOldObject:
		return v.before, v.before != nil
	}
	return nil, false
}

// Fields returns the CEL variable "request" of conditions.
func (r *Request) Fields() map[string]any {
	return map[string]any{
		"verb": r.Verb, "namespace": r.Namespace, "name": r.Name, "path": r.Path, "subResource": r.Subresource,
		"resource": map[string]any{"group": r.Group, "version": r.Version, "resource": r.Resource},
		"userInfo": r.userFields(),
	}
}

func (r *Request) userFields() map[string]any {
	groups := make([]any, len(r.Groups))
	for i, g := range r.Groups {
		groups[i] = g
	}
	extra := make(map[string]any, len(r.Extra))
	for k, values := range r.Extra {
		list := make([]any, len(values))
		for i, v := range values {
			list[i] = v
		}
		extra[k] = list
	}
	return map[string]any{"username": r.User, "uid": r.UID, "groups": groups, "extra": extra}
}

// Pending is a decision that needs the written object.
type Pending struct {
	request *Request
	steps   []*grant  // in the order of the chain: a deny whose exception, or a grant whose condition, needs the object
	end     *Decision // the decision if no step decides; nil: nothing allows the request
	said    []Said    // answers of outside authorizers
	reasons []string  // of outside authorizers without an opinion
}

// Reason says which conditions the decision depends on.
func (p *Pending) Reason() string {
	x := p.steps[0]
	if x.decision.Denied {
		return fmt.Sprintf("it depends on the object: %s, unless %s", x.decision.Reason, x.condition.Text)
	}
	return fmt.Sprintf("it depends on the object: %q%s allows it only when %s", x.decision.Rule, wording.At(x.decision.Source), x.condition.Text)
}

// Decide completes the decision. object is the object to be written, nil for a delete; old is the
// current object, nil for a create. For requests to the scale subresource both are Scales.
func (p *Pending) Decide(ctx context.Context, v *Version, object, old *Object) *Decision {
	v = v.Seen(p.request.Subresource)
	vars := &accessVars{request: p.request, object: v.Value(object), before: v.Value(old)}
	why := ""
	for _, x := range p.steps {
		holds, err := x.condition.decide(ctx, vars)
		if holds != x.decision.Denied {
			return x.decision
		}
		if why == "" && !x.decision.Denied {
			why = fmt.Sprintf("%q%s would allow it, but %s", x.decision.Rule, wording.At(x.decision.Source), unmet(x.condition.Text, err))
		}
	}
	if p.end == nil {
		reasons := p.reasons
		if why != "" {
			reasons = slices.Insert(slices.Clone(reasons), 0, why)
		}
		return &Decision{Reason: strings.Join(reasons, ", "), Said: p.said}
	}
	if len(p.said) == 0 {
		return p.end
	}
	end := *p.end
	end.Said = p.said
	return &end
}

// unmet says why a condition does not hold.
func unmet(text string, err error) string {
	if err != nil {
		return "its condition cannot be evaluated: " + err.Error()
	}
	return VerdictUnmet + ": " + text
}

// Value returns an object as a CEL value; null if there is none.
func (v *Version) Value(o *Object) any {
	if o == nil {
		return celtype.Dynamic.Value(nil)
	}
	gvk := v.GroupVersionKind()
	return v.object().Object(gvk.GroupVersion().String(), gvk.Kind, o.Meta, o.Content)
}

// WholeValue returns an object that is one map, with its metadata, as a CEL value.
func (v *Version) WholeValue(object map[string]any) any { return v.object().Value(object) }
