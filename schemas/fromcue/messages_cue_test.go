package fromcue_test

import (
	"strings"
	"testing"
)

// TestMessagesOfCUE checks that errors of fallbacks are worded in terms of the object.
func TestMessagesOfCUE(t *testing.T) {
	for _, test := range []struct{ spec, value, want string }{
		{`{ports: [...{name!: string, port!: int}], _names: {for p in ports {(p.name): p.port}}}`, `{"ports": [{"name": "a", "port": 1}, {"name": "a", "port": 2}]}`,
			`spec: Invalid value: the hidden field _names.a: conflicting values 2 and 1 (schema.cue:2)`},
		{`{a: int, b: int, _sum: {x: a + b & <10}}`, `{"a": 5, "b": 6}`, `spec: Invalid value: the hidden field _sum.x: invalid value 11 (out of bound <10) (schema.cue:2)`},
		{`{in: {a: int, _sum_5B7206A8: a + 1 & <3}}`, `{"in": {"a": 5}}`, `spec.in: Invalid value: the hidden field _sum: invalid value 6 (out of bound <3) (schema.cue:2)`},
		{`{matchN(1, [{i!: string}, {s!: string}]), i?: string, s?: string}`, `{"i": "x", "s": "y"}`, `spec: Invalid value: satisfies 2 of the alternatives of matchN, and must satisfy 1 (schema.cue:2)`},
		{`{matchN(>=1, [{i!: string}, {s!: string}]), i?: string, s?: string}`, `{}`, `spec: Invalid value: satisfies 0 of the alternatives of matchN, and must satisfy >=1 (schema.cue:2)`},
		{`{matchIf({a!: 1}, {b!: string}, _), a?: int, b?: string}`, `{"a": 1}`, `spec: Invalid value: is not what matchIf demands of it (schema.cue:2)`},
	} {
		p := mustProgram(t, mustCompile(t, "#schema: \n spec: "+test.spec))
		object := decoded(t, `{"spec": `+test.value+`}`)
		p.Prepare(object)
		if errs := p.Validate(object); len(errs) == 0 || errs[0].Error() != test.want {
			t.Errorf("%s: of %s it says %v, want %s", test.spec, test.value, errs, test.want)
		}
	}
}

// TestMoreThanOneAlternative checks that an object that fits several alternatives is invalid.
func TestMoreThanOneAlternative(t *testing.T) {
	p := mustProgram(t, mustCompile(t, `
#schema: spec: x: {a?: int, c?: 1} | {b?: int, c?: 2}`))
	const want = "spec.x: Invalid value: fits more than one alternative: schema.cue:2 (schema.cue:2)"
	if errs := p.Validate(decoded(t, `{"spec": {"x": {}}}`)); len(errs) != 1 || errs[0].Error() != want {
		t.Errorf("it says %v, want %s", errs, want)
	}
}

// TestMessageAttribute checks messages that a policy sets for scalars, and that messages without effect
// are rejected.
func TestMessageAttribute(t *testing.T) {
	p := mustProgram(t, mustCompile(t, `import "strings"
#schema: spec: {
	name!: =~"^[a-z]+$" & strings.MaxRunes(8) @stele(message="a name has up to 8 letters, a to z")
	pin?:  =~"^[0-9]+$" @stele(message="a pin has digits only", sensitive)
}
`))
	for spec, want := range map[string]string{
		`{"name": "X"}`:               `spec.name: Invalid value: "X": a name has up to 8 letters, a to z (schema.cue:3)`,
		`{"name": 1}`:                 `spec.name: Invalid value: 1: a name has up to 8 letters, a to z (schema.cue:3)`,
		`{}`:                          `spec.name: Required value: must be a string (schema.cue:3)`,
		`{"name": "x", "pin": "12x"}`: `spec.pin: Invalid value: a pin has digits only (schema.cue:4)`,
	} {
		if errs := p.Validate(decoded(t, `{"spec": `+spec+`}`)); len(errs) != 1 || errs[0].Error() != want {
			t.Errorf("%s: %v, want %s", spec, errs, want)
		}
	}
	for spec, why := range map[string]string{
		`l?: [...int] @stele(message="x")`:                               "not a scalar",
		`a: int, b: a + 1 @stele(message="x")`:                           "would be lost",
		`a?: string @stele(message)`:                                     "known are",
		`a?: matchN(1, [=~"^x", =~"y$"]) @stele(message="x", sensitive)`: "would be lost",
	} {
		if _, diags := compileText(t, "#schema: spec: {"+spec+"}"); diags == nil || !strings.Contains(diags.Error(), why) {
			t.Errorf("%s: %v, want %s", spec, diags, why)
		}
	}
}
