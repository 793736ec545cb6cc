package fromcue_test

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// A refusal is a schema with a part that cannot be compiled. The compiler must reject it or leave the
// part to CUE. The marker <- is on the line that the first diagnostic or the fallback names.
type refusal struct {
	name    string
	left    bool // left to CUE
	schema  string
	message string
}

// dependent are schemas in which one part of the data depends on another.
var dependent = []refusal{
	{
		name: "a default taken from another field",
		left: true,
		schema: `
#schema: spec: {
	a: int
	b: *a | string // <-
}`,
		message: "a reference to the field a",
	},
	{
		name: "a part of another field by way of a definition",
		left: true,
		schema: `
#schema: spec: {
	o: {y: int}
	#o: o // <-
	b: #o.y
}`,
		message: "a reference to the field o",
	},
	{
		name: "a hidden field that checks the data",
		left: true,
		schema: `
#schema: spec: {
	a:      int
	_check: a & >5 // <-
}`,
		message: "a reference to the field a",
	},
	{
		name: "another field within an alternative",
		left: true,
		schema: `
#schema: spec: {
	a: int
	b: null | {c: a} // <-
}`,
		message: "a reference to the field a",
	},
	{
		name: "a field of a package, not a constant",
		schema: `
limit: int
#schema: spec: a: <=limit // <-
`,
		message: "a bound that is not a constant",
	},
	{
		name: "a loop over fields",
		left: true,
		schema: `
#schema: spec: {
	a: [string]: int
	for k, v in a {(k): v} // <-
}`,
		message: "a comprehension (for)",
	},
	{
		name: "a loop in a list",
		left: true,
		schema: `
#schema: spec: {
	#l: ["a"]
	a: [for x in #l {x}] // <-
}`,
		message: "a comprehension in a list",
	},
	{
		name: "arithmetic over data",
		left: true,
		schema: `
#schema: spec: {
	a: int
	b: a + 1 // <-
}`,
		message: "a reference to the field a",
	},
	{
		name: "a computed field name",
		left: true,
		schema: `
#schema: spec: {
	#n: "a"
	(#n): int // <-
}`,
		message: "a computed field name",
	},
}

func TestRefused(t *testing.T) {
	for _, test := range append(dependent, unsupported...) {
		t.Run(test.name, func(t *testing.T) {
			n, diags := compileText(t, test.schema)
			line := 1 + strings.Count(test.schema[:strings.Index(test.schema, "<-")], "\n")
			if test.left {
				if diags != nil {
					t.Fatal(diags)
				}
				left := n.Fallbacks()
				if len(left) == 0 {
					t.Fatal("compiled")
				}
				if want := fmt.Sprintf("schema.cue:%d", line); left[0].Source.String() != want || !strings.Contains(left[0].Reason, test.message) {
					t.Errorf("want %s: %s; got %s: %s", want, test.message, left[0].Source, left[0].Reason)
				}
				return
			}
			if n != nil || diags == nil {
				t.Fatal("compiled")
			}
			if want := fmt.Sprintf("schema.cue:%d", line); diags[0].Pos.String() != want || !strings.Contains(diags[0].Message, test.message) {
				t.Errorf("want %s: %s; got\n%v", want, test.message, diags)
			}
		})
	}
}

// TestRefusedInTime uses schemas on which a careless compiler does not return.
func TestRefusedInTime(t *testing.T) {
	var nested, wide strings.Builder
	nested.WriteString("#schema: spec: ")
	for range 100 {
		nested.WriteString("{a: ")
	}
	nested.WriteString("int" + strings.Repeat("}", 100))
	wide.WriteString("#d0: {a: int}\n")
	for i := range 20 {
		fmt.Fprintf(&wide, "#d%d: {a?: #d%d, b?: #d%d, c?: #d%d}\n", i+1, i, i, i)
	}
	wide.WriteString("#schema: spec: #d20")
	for name, test := range map[string]struct{ schema, message string }{
		"deep":     {nested.String(), "nested deeper than 64 levels"},
		"too many": {wide.String(), "more than 20000 fields"},
	} {
		t.Run(name, func(t *testing.T) {
			start := time.Now()
			_, diags := compileText(t, test.schema)
			if diags == nil || !strings.Contains(diags.Error(), test.message) {
				t.Errorf("want %q, got %.300v", test.message, diags)
			}
			if len(diags) > 100 {
				t.Errorf("%d diagnostics", len(diags))
			}
			if d := time.Since(start); d > 20*time.Second {
				t.Errorf("took %v", d)
			}
		})
	}
}
