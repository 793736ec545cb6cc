package join

import (
	"encoding/json"
	"slices"

	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/jsonvalue"
	"stele.dev/stele/schemas/program"
)

// Simplified returns the alternatives that still constrain values. An alternative without rules admits
// all values of its kinds, so the other alternatives no longer constrain these kinds. The result admits
// the same values.
func Simplified(alternatives []schemas.Scalar) []schemas.Scalar {
	var free schemas.Kinds
	for i := range alternatives {
		if s := &alternatives[i]; !s.Constrained() {
			free |= s.Kinds
		} else if hasBoth(s.Enum) {
			free |= schemas.BoolKind
		}
	}
	var kept []schemas.Scalar
	fractions := false // a constrained alternative applies to numbers with a fraction
	for _, s := range alternatives {
		if !s.Constrained() {
			continue
		}
		covered := free
		if !free.Has(schemas.NumberKind) && s.Kinds.Has(schemas.NumberKind) {
			covered &^= schemas.IntegerKind // it applies to more than integers
		}
		s = withoutAdmitted(without(s, covered), alternatives)
		if s.Kinds == 0 {
			continue
		}
		fractions = fractions || s.Kinds.Has(schemas.NumberKind)
		kept = append(kept, s)
	}
	if fractions && free.Has(schemas.IntegerKind) && !free.Has(schemas.NumberKind) {
		// Integers are unconstrained, other numbers are not. That needs an alternative of its
		// own.
		kept = append(kept, schemas.Scalar{Kinds: schemas.IntegerKind})
	}
	return kept
}

// without returns s limited to kinds other than the given ones.
func without(s schemas.Scalar, kinds schemas.Kinds) schemas.Scalar {
	s.Kinds &^= kinds
	if len(s.Enum) == 0 {
		return s
	}
	s.Enum = slices.DeleteFunc(slices.Clone(s.Enum), func(v json.RawMessage) bool {
		return kinds.Has(schemas.KindOfJSON(v))
	})
	if len(s.Enum) == 0 {
		s.Kinds = 0
	}
	return s
}

// withoutAdmitted returns s without the constants that the rules of another alternative admit.
func withoutAdmitted(s schemas.Scalar, alternatives []schemas.Scalar) schemas.Scalar {
	if len(s.Enum) == 0 {
		return s
	}
	var rules schemas.Node
	for _, other := range alternatives {
		if len(other.Enum) == 0 {
			rules.Scalars = append(rules.Scalars, other)
			rules.Kinds |= other.Kinds
		}
	}
	if rules.Kinds == 0 {
		return s
	}
	admits, err := program.NewChecker(&rules)
	if err != nil {
		return s
	}
	s.Kinds = 0
	var kept []json.RawMessage
	for _, text := range s.Enum {
		v, err := jsonvalue.Decode(text)
		if err != nil || len(admits.Validate(v)) > 0 {
			kept = append(kept, text)
			s.Kinds |= schemas.KindOfJSON(text)
		}
	}
	s.Enum = kept
	return s
}

// hasBoth reports whether an enumeration has both booleans.
func hasBoth(enum []json.RawMessage) bool {
	has := func(want string) bool {
		return slices.ContainsFunc(enum, func(v json.RawMessage) bool { return string(v) == want })
	}
	return has("true") && has("false")
}
