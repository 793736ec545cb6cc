package fromcue

import (
	"slices"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/errors"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/interpreter"
	"stele.dev/stele/schemas/samples"
)

// structOf compiles a struct, or an alternative that is a struct.
func (c *Compiler) structOf(v cue.Value, s shape, at *place) *schemas.Struct {
	result := &schemas.Struct{}
	fields, err := v.Fields(cue.All(), cue.Patterns(true))
	if err != nil {
		c.reported(err, at)
		return result
	}
	type pattern struct{ key, value cue.Value }
	var patterns []pattern
	var comparisons []schemas.Comparison
	for fields.Next() {
		sel := fields.Selector()
		switch {
		case fields.FieldType()&cue.PatternConstraint != 0:
			patterns = append(patterns, pattern{sel.Pattern(), fields.Value()})
		case sel.LabelType() != cue.StringLabel:
			// Definitions and hidden fields hold no data. But they constrain the data that
			// they refer to, unless they are plain aliases.
			if !isAliasOfData(fields.Value()) {
				c.item(fields.Value(), at)
			}
			if err := fields.Value().Validate(); err != nil {
				c.reported(err, at.field(sel.String(), schemas.Regular))
			}
		default:
			presence := presenceOf(sel)
			if presence == schemas.Optional && c.excluded(fields.Value()) {
				continue
			}
			name := sel.Unquoted()
			where := at.field(name, presence)
			child := c.node(fields.Value(), where)
			comparisons = append(comparisons, where.comparisons...)
			result.Fields = append(result.Fields, schemas.Field{Name: name, Presence: presence, Schema: child})
		}
	}
	for _, p := range patterns {
		c.pattern(result, v, p.key, p.value, len(patterns) == 1, at)
	}
	c.claims[result] = claim{value: v, parts: s.literals, at: at, order: len(c.claims)}
	if why := c.relate(result, comparisons, v, at); why != "" {
		c.leaveTo(at, at, nil, why)
	} else if why := c.conditions(result, v, at); why != "" {
		for _, p := range at.pending {
			at.cloud(p.Node)
		}
		c.leaveTo(at, at, at.pending[0].Node, why)
	}
	c.anchored(result, v, at)
	at.clouded(result)
	return result
}

func presenceOf(field cue.Selector) schemas.Presence {
	switch field.ConstraintType() {
	case cue.RequiredConstraint:
		return schemas.Required
	case cue.OptionalConstraint:
		return schemas.Optional
	}
	return schemas.Regular
}

// excluded reports whether only the server's own definitions declare the field v, and a definition of
// the bundle closes the struct without it. Such a field does not exist.
func (c *Compiler) excluded(v cue.Value) bool {
	if _, ok := c.SourceOf(v); ok {
		return false
	}
	return slices.ContainsFunc(errors.Errors(v.Err()), func(e errors.Error) bool {
		format, _ := e.Msg()
		return format == interpreter.FieldNotAllowed
	})
}

// pattern compiles [key]: value in the struct within. If the struct has only one pattern, the value is
// read from a field that matches it: only there is it known whether the value is closed.
func (c *Compiler) pattern(s *schemas.Struct, within, key, value cue.Value, only bool, at *place) {
	k := c.node(key, at.partPlace("[key]", schemas.Required))
	if k.Kinds == schemas.AnyKind && k.Fallback == nil {
		k = &schemas.Node{Kinds: schemas.StringKind, Source: k.Source} // [_]: T
	}
	if k.Kinds != schemas.StringKind {
		c.refuse(at, key.Source(), "a pattern that is not a string", "write [string]: T or [=~\"regexp\"]: T")
		return
	}
	if only {
		if name, ok := samples.Key(k, s); ok {
			if w := within.LookupPath(cue.MakePath(cue.Str(name).Optional())); w.Exists() {
				value = w
			}
		}
	}
	entry := at.partPlace("[]", schemas.Required)
	entry.entry = true
	v := c.node(value, entry)
	if !only && v.Kinds&(schemas.ListKind|schemas.StructKind) != 0 {
		c.leaveTo(at, at, value.Source(), "several patterns whose values are lists or structs")
		return
	}
	s.Patterns = append(s.Patterns, schemas.KeyPattern{Key: k, Value: v})
}
