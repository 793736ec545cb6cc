package schemas_test

import (
	"testing"

	"stele.dev/stele/schemas"
)

func TestPositionText(t *testing.T) {
	for _, p := range []schemas.Position{{}, {File: "a.cue", Line: 1, Column: 2}, {File: "c:/x/a.cue", Line: 10, Column: 20}} {
		text, err := p.MarshalText()
		if err != nil {
			t.Fatal(err)
		}
		var q schemas.Position
		if err := q.UnmarshalText(text); err != nil || q != p {
			t.Errorf("%q: %v, %v", text, q, err)
		}
	}
	var p schemas.Position
	for _, bad := range []string{"a.cue", "a.cue:1", "a.cue:x:1", "a.cue:1:"} {
		if err := p.UnmarshalText([]byte(bad)); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
	if s := (schemas.Position{File: "a.cue", Line: 1, Column: 2}).String(); s != "a.cue:1" {
		t.Error(s)
	}
}

func TestKindsText(t *testing.T) {
	for want, k := range map[string]schemas.Kinds{
		"":               0,
		"any":            schemas.AnyKind,
		"null":           schemas.NullKind,
		"integer|string": schemas.IntegerKind | schemas.StringKind,
		"number":         schemas.NumberKind | schemas.IntegerKind,
		"null|struct":    schemas.NullKind | schemas.StructKind,
	} {
		text, _ := k.MarshalText()
		if string(text) != want {
			t.Errorf("%q, want %q", text, want)
		}
		var again schemas.Kinds
		if err := again.UnmarshalText(text); err != nil || again != k {
			t.Errorf("%q: %v, %v", text, again, err)
		}
	}
	var k schemas.Kinds
	if err := k.UnmarshalText([]byte("string|float")); err == nil {
		t.Error("an unknown kind is accepted")
	}
}
