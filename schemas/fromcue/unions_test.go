package fromcue_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/cuecontext"
	"stele.dev/stele/schemas/fromcue"
	"stele.dev/stele/schemas/jsonvalue"
	"stele.dev/stele/schemas/samples"
)

// unionParts are what the test of unions makes schemas of.
var unionParts = struct{ arms, narrowings, presences, decls []string }{
	arms: []string{`{min?: int}`, `{max?: int}`, `{a!: int}`, `{a: *2 | int, b?: string}`, `{t: "x", c?: {d?: int}}`, `{t: "y", c!: {d?: int}, ...}`,
		`#A`, `#B`, `{}`, `{l?: [...{e!: int}]}`, `{[=~"^x"]: int}`, `[...int]`, `"text"`},
	narrowings: []string{``, ``, ` & {a?: <5}`, ` & {t?: "x" | "y"}`, ` & {[string]: _}`, ` & #C`},
	presences:  []string{``, `?`, `!`},
	decls:      []string{`#A: {k: "a", n?: int, m: *1 | int}`, `#B: {k: "b", n!: int}`, `#C: {k?: string, n?: >0, m?: int, a?: int}`},
}

// TestUnionsAgreeWithCUE compares the programs of unions with CUE: unions with and without a default, that another part narrows, of arms
// that CUE takes for equal, or that are closed, open or definitions.
func TestUnionsAgreeWithCUE(t *testing.T) {
	rng := rand.New(rand.NewPCG(*from, 13))
	outcomes := map[string]int{}
	rounds := *rounds / 5
	if testing.Short() {
		rounds /= 10
	}
	for range rounds {
		var arms []string
		marked := rng.IntN(4)
		for _, i := range rng.Perm(len(unionParts.arms))[:2+rng.IntN(2)] {
			arm := unionParts.arms[i]
			if len(arms) == marked {
				arm = "*" + arm
			}
			arms = append(arms, arm)
		}
		pick := func(all []string) string { return all[rng.IntN(len(all))] }
		text := fmt.Sprintf("%s\n#schema: spec!: {\n\tf%s: (%s)%s\n\tg?: int\n}\n", strings.Join(unionParts.decls, "\n"), pick(unionParts.presences), strings.Join(arms, " | "), pick(unionParts.narrowings))
		outcomes[unionAgrees(t, text, rng)]++
		if t.Failed() {
			return
		}
	}
	t.Logf("%v", outcomes)
}

// unionAgrees compares the program of #schema with CUE on objects near it.
func unionAgrees(t *testing.T, text string, rng *rand.Rand) string {
	ctx := cuecontext.New()
	schema := ctx.CompileString(text, cue.Filename("schema.cue")).LookupPath(cue.ParsePath("#schema"))
	if schema.Validate() != nil {
		return "invalid"
	}
	node, diags := fromcue.Schema(schema, locateIn("schema.cue"))
	if diags != nil {
		return "refused"
	}
	p := reloaded(t, node)
	g := samples.Maker{Rand: rng, Unknown: 10, Keys: []string{"a", "b", "c", "k", "n", "t", "min", "max"}, Full: 60}
	for range 40 {
		near, err := json.Marshal(g.Near(node))
		var object map[string]any
		if err != nil || json.Unmarshal(near, &object) != nil {
			continue
		}
		object, _ = jsonvalue.PlainNumbers(object).(map[string]any)
		if problem := compare(p, ctx, schema, object); problem != "" {
			t.Errorf("%s\nobject: %s\nschema:\n%s", problem, asJSON(object), text)
			return "mismatch"
		}
	}
	if len(node.Fallbacks()) > 0 {
		return "left to CUE"
	}
	return "compiled"
}
