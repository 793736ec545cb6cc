package schemas

import (
	"encoding/json"
	"slices"
)

// simplified returns the alternatives that constrain something. An alternative
// without rules frees its kinds from all others; what is then left of them
// admits what it did, no more and no less.
func simplified(alternatives []Scalar) []Scalar {
	var free Kinds
	for i := range alternatives {
		if s := &alternatives[i]; !s.constrained() {
			free |= s.Kinds
		} else if hasBoth(s.Enum) {
			free |= BoolKind
		}
	}
	var kept []Scalar
	fractions := false // a constrained alternative speaks of numbers with a fraction
	for _, s := range alternatives {
		if !s.constrained() {
			continue
		}
		covered := free
		if !free.Has(NumberKind) && s.Kinds.Has(NumberKind) {
			covered &^= IntegerKind // it speaks of more than integers
		}
		s = s.without(covered).withoutAdmitted(alternatives)
		if s.Kinds == 0 {
			continue
		}
		fractions = fractions || s.Kinds.Has(NumberKind)
		kept = append(kept, s)
	}
	if fractions && free.Has(IntegerKind) && !free.Has(NumberKind) {
		// Integers are free, other numbers are not: that has to be said.
		kept = append(kept, Scalar{Kinds: IntegerKind})
	}
	return kept
}

// without returns s as far as it does not speak of kinds.
func (s Scalar) without(kinds Kinds) Scalar {
	s.Kinds &^= kinds
	if len(s.Enum) == 0 {
		return s
	}
	s.Enum = slices.DeleteFunc(slices.Clone(s.Enum), func(v json.RawMessage) bool {
		return kinds.Has(kindOfJSON(v))
	})
	if len(s.Enum) == 0 {
		s.Kinds = 0
	}
	return s
}

// withoutAdmitted returns s without the constants that another of the
// alternatives admits by its rules.
func (s Scalar) withoutAdmitted(alternatives []Scalar) Scalar {
	if len(s.Enum) == 0 {
		return s
	}
	var rules Node
	for _, other := range alternatives {
		if len(other.Enum) == 0 {
			rules.Scalars = append(rules.Scalars, other)
			rules.Kinds |= other.Kinds
		}
	}
	if rules.Kinds == 0 {
		return s
	}
	admits, err := NewChecker(&rules)
	if err != nil {
		return s
	}
	s.Kinds = 0
	var kept []json.RawMessage
	for _, text := range s.Enum {
		v, err := decode(text)
		if err != nil || len(admits.Validate(v)) > 0 {
			kept = append(kept, text)
			s.Kinds |= kindOfJSON(text)
		}
	}
	s.Enum = kept
	return s
}

// hasBoth reports whether an enumeration holds both booleans.
func hasBoth(enum []json.RawMessage) bool {
	has := func(want string) bool {
		return slices.ContainsFunc(enum, func(v json.RawMessage) bool { return string(v) == want })
	}
	return has("true") && has("false")
}
