package conversion

import (
	"context"

	"github.com/google/cel-go/interpreter"
	"stele.dev/stele/policy/expr"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/celtype"
	"stele.dev/stele/schemas/jsonvalue"
)

// computed computes fields in CEL.
type computed struct {
	toHub, toVersion []computedField
}

type computedField struct {
	names   []string
	program *expr.Program
}

func newComputed(form *schemas.ConversionStep) (op *computed, err error) {
	op = &computed{}
	if op.toHub, err = fieldsOf(form.Up); err == nil {
		op.toVersion, err = fieldsOf(form.Down)
	}
	return op, err
}

func fieldsOf(list []schemas.ComputedField) (fields []computedField, err error) {
	for i := range list {
		p, err := ParsePath(list[i].Field)
		if err != nil {
			return nil, err
		}
		_, names := p.split()
		f := computedField{names: names}
		if f.program, err = expr.Load(list[i].AST, list[i].Text); err != nil {
			return nil, err
		}
		fields = append(fields, f)
	}
	return fields, nil
}

// compute evaluates all expressions on the object before it is converted, so that they do not depend on other steps.
// The budget limits their cost, and no time does: what is stored must not depend on how fast a machine is.
func (c *Conversion) compute(content map[string]any, up bool) (results map[*computed][]any, err error) {
	if !c.computed {
		return nil, nil
	}
	self := c.down
	if up {
		self = c.up
	}
	vars, budget := &selfOf{self, content}, expr.NewBudget()
	results = map[*computed][]any{}
	for i := range c.steps {
		op, ok := c.steps[i].op.(*computed)
		if !ok {
			continue
		}
		fields := op.toVersion
		if up {
			fields = op.toHub
		}
		for _, f := range fields {
			value, err := f.program.Eval(context.Background(), vars, &budget)
			var x any
			if err == nil {
				x, err = celtype.Native(value)
			}
			if err != nil {
				return nil, failed(c.steps[i].form, up, err)
			}
			results[op] = append(results[op], jsonvalue.Clone(x))
		}
	}
	return results, nil
}

// run removes the fields of one side, and sets those of the other. A field whose value is null or an absent optional is not set.
func (op *computed) run(content map[string]any, results []any, up bool) error {
	gone, made := op.toHub, op.toVersion
	if up {
		gone, made = op.toVersion, op.toHub
	}
	for _, f := range gone {
		take(content, f.names, 0)
	}
	for i, f := range made {
		if results[i] == nil {
			continue
		}
		if err := set(content, f.names, results[i]); err != nil {
			return err
		}
	}
	return nil
}

func (op *computed) up(map[string]any) error   { return nil }
func (op *computed) down(map[string]any) error { return nil }

// selfOf are the variables of expressions.
type selfOf struct {
	of      *celtype.Type
	content map[string]any
}

// Parent implements [interpreter.Activation].
func (*selfOf) Parent() interpreter.Activation { return nil }

// ResolveName implements [interpreter.Activation].
func (s *selfOf) ResolveName(name string) (any, bool) {
	if name == expr.VarSelf {
		return s.of.Value(s.content), true
	}
	return nil, false
}
