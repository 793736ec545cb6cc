package schemas

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestPositionText(t *testing.T) {
	for _, p := range []Position{{}, {"a.cue", 1, 2}, {"c:/x/a.cue", 10, 20}} {
		text, err := p.MarshalText()
		if err != nil {
			t.Fatal(err)
		}
		var q Position
		if err := q.UnmarshalText(text); err != nil || q != p {
			t.Errorf("%q: %v, %v", text, q, err)
		}
	}
	var p Position
	for _, bad := range []string{"a.cue", "a.cue:1", "a.cue:x:1", "a.cue:1:"} {
		if err := p.UnmarshalText([]byte(bad)); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
	if s := (Position{"a.cue", 1, 2}).String(); s != "a.cue:1" {
		t.Error(s)
	}
}

func TestKindsText(t *testing.T) {
	for want, k := range map[string]Kinds{
		"":               0,
		"any":            AnyKind,
		"null":           NullKind,
		"integer|string": IntegerKind | StringKind,
		"number":         NumberKind | IntegerKind,
		"null|struct":    NullKind | StructKind,
	} {
		text, _ := k.MarshalText()
		if string(text) != want {
			t.Errorf("%q, want %q", text, want)
		}
		var again Kinds
		if err := again.UnmarshalText(text); err != nil || again != k {
			t.Errorf("%q: %v, %v", text, again, err)
		}
	}
	var k Kinds
	if err := k.UnmarshalText([]byte("string|float")); err == nil {
		t.Error("an unknown kind is accepted")
	}
}

func TestCanonicalJSON(t *testing.T) {
	for _, test := range []struct{ in, want string }{
		{`1`, `1`},
		{`-0.0`, `0`},
		{`1.50`, `1.5`},
		{`1e3`, `1000`},
		{`1.5E-2`, `0.015`},
		{`123456789012345678901234567890`, `1.2345678901234567890123456789e29`},
		{`0.000000000000000000000000000012`, `1.2e-29`},
		{`-1e300`, `-1e300`},
		{`"<é>"`, `"<é>"`},
		{` { "b" : [ 1.0 , null ] , "a" : true } `, `{"a":true,"b":[1,null]}`},
	} {
		got, err := canonicalJSON([]byte(test.in))
		if err != nil || string(got) != test.want {
			t.Errorf("%s: %s, %v; want %s", test.in, got, err, test.want)
		}
		if again, err := canonicalJSON(got); err != nil || string(again) != test.want {
			t.Errorf("%s is not stable: %s, %v", test.in, again, err)
		}
	}
	for _, bad := range []string{``, `1 2`, `1e9999999`, `{`, `NaN`} {
		if got, err := canonicalJSON([]byte(bad)); err == nil {
			t.Errorf("%q: %s", bad, got)
		}
	}
}

func TestInterval(t *testing.T) {
	bound := func(v string, exclusive bool) *Bound { return &Bound{Value: v, Exclusive: exclusive} }
	for _, test := range []struct {
		name         string
		lower, upper *Bound
		in, out      []float64
	}{
		{"open ended", nil, nil, []float64{-1e300, 0, 1e300}, nil},
		{"inclusive", bound("1", false), bound("5", false), []float64{1, 5}, []float64{0, 6, 0.9, 5.1}},
		{"exclusive", bound("1", true), bound("5", true), []float64{2, 4, 1.1}, []float64{1, 5}},
		{"fractions", bound("0.5", false), bound("2.5", false), []float64{1, 2, 0.5, 2.5}, []float64{0, 3}},
		{"exclusive fractions", bound("-0.5", true), bound("0.5", true), []float64{0}, []float64{-1, 1, 0.5, -0.5}},
		{"a tenth", bound("0.1", false), bound("0.3", true), []float64{0.1, 0.29}, []float64{0.09, 0.3}},
		{"beyond 64 bits", bound("9223372036854775807", true), nil, []float64{1e19}, []float64{0, 1 << 62}},
		{"beyond all floats", nil, bound("1e400", false), []float64{0, 1e308}, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			iv, err := newInterval(test.lower, test.upper)
			if err != nil {
				t.Fatal(err)
			}
			check := func(x float64, want bool) {
				if got := iv.hasFloat(x); got != want {
					t.Errorf("float %v: %t", x, got)
				}
				if n, ok := exactInt64(x); ok && iv.hasInt(n) != want {
					t.Errorf("int %d: %t", n, !want)
				}
			}
			for _, x := range test.in {
				check(x, true)
			}
			for _, x := range test.out {
				check(x, false)
			}
		})
	}
}

// TestFormIsStable compiles twice (S2), and reads the form back.
func TestFormIsStable(t *testing.T) {
	for _, text := range []string{widget, benchSchema} {
		first, err := json.Marshal(mustCompile(t, text))
		if err != nil {
			t.Fatal(err)
		}
		for range 5 {
			again, err := json.Marshal(mustCompile(t, text))
			if err != nil || string(again) != string(first) {
				t.Fatalf("the form differs:\n%s\n%s", first, again)
			}
		}
		var n Node
		if err := json.Unmarshal(first, &n); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(mustCompile(t, text), &n); diff != "" {
			t.Error(diff)
		}
	}
}

func TestSimplified(t *testing.T) {
	raw := func(values ...string) []json.RawMessage {
		var out []json.RawMessage
		for _, v := range values {
			out = append(out, json.RawMessage(v))
		}
		return out
	}
	numeric := NumberKind | IntegerKind
	positive := Scalar{Kinds: IntegerKind, Minimum: &Bound{Value: "0"}}
	negative := Scalar{Kinds: numeric, Maximum: &Bound{Value: "0"}}
	for _, test := range []struct {
		name     string
		in, want []Scalar
	}{
		{"nothing", nil, nil},
		{"a type", []Scalar{{Kinds: StringKind}}, nil},
		{"a rule beside its type", []Scalar{positive, {Kinds: IntegerKind}}, nil},
		{"a rule beside another type", []Scalar{positive, {Kinds: StringKind}}, []Scalar{positive}},
		{"integers beside numbers with a rule", []Scalar{{Kinds: IntegerKind}, negative}, []Scalar{negative, {Kinds: IntegerKind}}},
		{"numbers beside integers with a rule", []Scalar{{Kinds: numeric}, positive}, nil},
		{"both booleans", []Scalar{{Kinds: BoolKind | StringKind, Enum: raw(`true`, `"a"`, `false`)}}, []Scalar{{Kinds: StringKind, Enum: raw(`"a"`)}}},
		{"one boolean", []Scalar{{Kinds: BoolKind, Enum: raw(`true`)}}, []Scalar{{Kinds: BoolKind, Enum: raw(`true`)}}},
		{"a constant that a rule admits", []Scalar{{Kinds: IntegerKind, Enum: raw(`-1`, `5`)}, positive}, []Scalar{{Kinds: IntegerKind, Enum: raw(`-1`)}, positive}},
		{"constants of a free type", []Scalar{{Kinds: IntegerKind | StringKind, Enum: raw(`1`, `"a"`)}, {Kinds: StringKind}}, []Scalar{{Kinds: IntegerKind, Enum: raw(`1`)}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, simplified(test.in)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestDiagnostics(t *testing.T) {
	d := Diagnostics{
		{Pos: Position{"b.cue", 1, 1}, Message: "last"},
		{Pos: Position{"a.cue", 10, 1}, Path: "spec.x", Message: "second", Hint: "do"},
		{Pos: Position{"a.cue", 2, 1}, Message: "first"},
		{Pos: Position{"a.cue", 10, 1}, Path: "spec.x", Message: "second", Hint: "do"},
	}
	want := "a.cue:2: first\na.cue:10: spec.x: second; do\nb.cue:1: last"
	if got := d.Sorted().Error(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if got := (Diagnostics{}).Sorted(); got != nil {
		t.Errorf("%v", got)
	}
}
