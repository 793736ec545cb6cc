package join_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/fromcue/join"
)

func TestSimplified(t *testing.T) {
	raw := func(values ...string) []json.RawMessage {
		var out []json.RawMessage
		for _, v := range values {
			out = append(out, json.RawMessage(v))
		}
		return out
	}
	numeric := schemas.NumberKind | schemas.IntegerKind
	positive := schemas.Scalar{Kinds: schemas.IntegerKind, Minimum: &schemas.Bound{Value: "0"}}
	negative := schemas.Scalar{Kinds: numeric, Maximum: &schemas.Bound{Value: "0"}}
	for _, test := range []struct {
		name     string
		in, want []schemas.Scalar
	}{
		{"nothing", nil, nil},
		{"a type", []schemas.Scalar{{Kinds: schemas.StringKind}}, nil},
		{"a rule beside its type", []schemas.Scalar{positive, {Kinds: schemas.IntegerKind}}, nil},
		{"a rule beside another type", []schemas.Scalar{positive, {Kinds: schemas.StringKind}}, []schemas.Scalar{positive}},
		{"integers beside numbers with a rule", []schemas.Scalar{{Kinds: schemas.IntegerKind}, negative}, []schemas.Scalar{negative, {Kinds: schemas.IntegerKind}}},
		{"numbers beside integers with a rule", []schemas.Scalar{{Kinds: numeric}, positive}, nil},
		{"both booleans", []schemas.Scalar{{Kinds: schemas.BoolKind | schemas.StringKind, Enum: raw(`true`, `"a"`, `false`)}}, []schemas.Scalar{{Kinds: schemas.StringKind, Enum: raw(`"a"`)}}},
		{"one boolean", []schemas.Scalar{{Kinds: schemas.BoolKind, Enum: raw(`true`)}}, []schemas.Scalar{{Kinds: schemas.BoolKind, Enum: raw(`true`)}}},
		{"a constant that a rule admits", []schemas.Scalar{{Kinds: schemas.IntegerKind, Enum: raw(`-1`, `5`)}, positive}, []schemas.Scalar{{Kinds: schemas.IntegerKind, Enum: raw(`-1`)}, positive}},
		{"constants of a free type", []schemas.Scalar{{Kinds: schemas.IntegerKind | schemas.StringKind, Enum: raw(`1`, `"a"`)}, {Kinds: schemas.StringKind}}, []schemas.Scalar{{Kinds: schemas.IntegerKind, Enum: raw(`1`)}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, join.Simplified(test.in)); diff != "" {
				t.Error(diff)
			}
		})
	}
}
