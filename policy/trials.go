package policy

import (
	"context"

	"stele.dev/stele/schemas/celtype"
)

// ConditionProgram is a condition of a binding, or the exception of a deny, that is ready to be
// evaluated. It is safe for concurrent use.
type ConditionProgram struct{ condition *condition }

// LoadCondition makes the program of a condition, which is not nil.
func LoadCondition(c *Condition) (*ConditionProgram, error) {
	loaded, err := newCondition(c)
	return &ConditionProgram{loaded}, err
}

// Holds reports whether the condition is true for a request, as a decision evaluates it. object is the
// object to be written and old the current one, of version v; both and v may be nil. The error says
// that it cannot be evaluated: then it does not hold.
func (c *ConditionProgram) Holds(ctx context.Context, v *Version, r *Request, object, old *Object) (bool, error) {
	vars := &accessVars{request: r}
	if v != nil {
		v = v.Seen(r.Subresource)
		vars.object, vars.before = v.Value(object), v.Value(old)
	} else {
		vars.object, vars.before = celtype.Dynamic.Value(nil), celtype.Dynamic.Value(nil)
	}
	return c.condition.decide(ctx, vars)
}
