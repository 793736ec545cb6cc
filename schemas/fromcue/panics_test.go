package fromcue_test

import (
	"strings"
	"testing"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/cuecontext"
	"cuelang.org/go/cue/token"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/fromcue"
)

// A panic while a schema is compiled is an error at the field that was being compiled.
func TestPanicsAreErrors(t *testing.T) {
	v := cuecontext.New().CompileString("#schema: spec: {\n\ta: string\n\tb: {\n\t\tc: int\n\t\td: bool\n\t}\n}", cue.Filename("schema.cue"))
	panics := func(p token.Pos) (schemas.Position, bool) {
		if p.Line() == 5 {
			panic("there is no such thing")
		}
		return locateIn("schema.cue")(p)
	}
	_, diags := fromcue.Schema(v.LookupPath(cue.ParsePath("#schema")), panics)
	if len(diags) != 1 || diags[0].Pos.Line != 3 || diags[0].Path != "spec.b.d" || !strings.Contains(diags[0].Message, "there is no such thing") {
		t.Errorf("got %+v", diags)
	}
}
