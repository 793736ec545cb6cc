package samples

import (
	"math/rand/v2"
	"regexp/syntax"
	"strings"

	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/jsonvalue"
	"stele.dev/stele/schemas/textforms"
)

// Of returns a few example objects, always the same: one with the required fields, one with all fields,
// and one with all fields but values of the wrong kind. The first two are usually valid.
func Of(n *schemas.Node) []map[string]any {
	var samples []map[string]any
	for _, s := range []sampler{{}, {all: true}, {all: true, wrong: true}} {
		s.rng = rand.New(rand.NewPCG(1, 2))
		if object, ok := s.value(n, 0).(map[string]any); ok {
			samples = append(samples, object)
		}
	}
	return samples
}

// A sampler generates example values for nodes.
type sampler struct {
	rng   *rand.Rand
	all   bool // include optional fields
	wrong bool // use values of the wrong kind
}

// sampleDepth is the maximum depth of optional fields.
const sampleDepth = 8

func (s *sampler) value(n *schemas.Node, depth int) any {
	switch {
	case n.Kinds&schemas.StructKind != 0:
		return s.object(n.Struct, depth)
	case n.Kinds&schemas.ListKind != 0:
		list := []any{}
		if n.List != nil && n.List.Items != nil && depth < sampleDepth && (s.all || n.List.MinItems != nil) {
			list = append(list, s.value(n.List.Items, depth+1))
		}
		if n.List != nil && len(n.List.Prefix) > 0 {
			list = list[:0]
			for i := range n.List.MinItems.Count {
				if of := n.List.At(i); of != nil {
					list = append(list, s.value(of, depth+1))
				} else {
					list = append(list, "text")
				}
			}
		}
		return list
	case s.wrong && n.Kinds&schemas.BoolKind == 0:
		return true
	case s.wrong:
		return "wrong"
	}
	return s.scalar(n)
}

func (s *sampler) object(o *schemas.Struct, depth int) map[string]any {
	object := map[string]any{}
	if o == nil {
		return object
	}
	for i := range o.Fields {
		f := &o.Fields[i]
		if depth > sampleDepth || f.Presence != schemas.Required && !s.all || f.Schema.Forbidden() {
			continue
		}
		object[f.Name] = s.value(f.Schema, depth+1)
	}
	for i := range o.Patterns {
		if !s.all || depth > sampleDepth {
			break
		}
		if key, ok := Key(o.Patterns[i].Key, o); ok && !o.Patterns[i].Value.Forbidden() {
			object[key] = s.value(o.Patterns[i].Value, depth+1)
		}
	}
	return object
}

func (s *sampler) scalar(n *schemas.Node) any {
	for i := range n.Scalars {
		of := &n.Scalars[i]
		for _, text := range of.Enum {
			if v, err := jsonvalue.Decode(text); err == nil {
				return v
			}
		}
		switch {
		case of.Kinds&(schemas.IntegerKind|schemas.NumberKind) != 0:
			return s.number(of)
		case of.Kinds&schemas.StringKind != 0:
			return s.text(of)
		}
	}
	switch {
	case n.Kinds&schemas.StringKind != 0:
		switch n.Format {
		case schemas.FormatDateTime:
			return "2026-01-02T03:04:05Z"
		case schemas.FormatByte:
			return "Ynl0ZXM="
		}
		return "text"
	case n.Kinds&schemas.IntegerKind != 0:
		return int64(1)
	case n.Kinds&schemas.BoolKind != 0:
		return true
	}
	return nil
}

// number returns a number at or next to one of the bounds.
func (s *sampler) number(of *schemas.Scalar) any {
	for _, b := range []*schemas.Bound{of.Minimum, of.Maximum} {
		if b == nil {
			continue
		}
		v, err := jsonvalue.Decode([]byte(b.Value))
		if err != nil {
			continue
		}
		step := int64(0)
		if b.Exclusive {
			step = 1
			if b == of.Maximum {
				step = -1
			}
		}
		switch v := v.(type) {
		case int64:
			return v + step
		case float64:
			return v + float64(step)
		}
	}
	return int64(1)
}

func (s *sampler) text(of *schemas.Scalar) any {
	text := "text"
	for _, p := range of.Patterns {
		if re, err := syntax.Parse(p.Regexp, syntax.Perl); err == nil && !p.Negated {
			var b strings.Builder
			Text(&b, re.Simplify(), s.rng, 1)
			text = b.String()
			break
		}
	}
	for _, f := range of.Forms {
		form, _ := textforms.Named(f.Name)
		text = form.Samples[0]
	}
	if of.MinRunes != nil {
		for len(text) < of.MinRunes.Count && len(text) < 1<<10 {
			text += "x"
		}
	}
	if of.MaxRunes != nil && len(text) > of.MaxRunes.Count {
		text = text[:of.MaxRunes.Count]
	}
	return text
}
