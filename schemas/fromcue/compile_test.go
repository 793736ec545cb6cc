package fromcue_test

import (
	"testing"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/cuecontext"
	"cuelang.org/go/cue/token"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/fromcue"
)

// locateIn returns a function that locates positions in a file of a test.
func locateIn(file string) func(token.Pos) (schemas.Position, bool) {
	return func(p token.Pos) (schemas.Position, bool) {
		if !p.IsValid() || p.Filename() != file {
			return schemas.Position{}, false
		}
		return schemas.Position{File: file, Line: p.Line(), Column: p.Column()}, true
	}
}

// compileText compiles the definition #schema of a file called schema.cue.
func compileText(t testing.TB, text string) (*schemas.Node, schemas.Diagnostics) {
	t.Helper()
	v := cuecontext.New().CompileString(text, cue.Filename("schema.cue"))
	if err := v.Err(); err != nil && !v.LookupPath(cue.ParsePath("#schema")).Exists() {
		t.Fatal(err)
	}
	return fromcue.Schema(v.LookupPath(cue.ParsePath("#schema")), locateIn("schema.cue"))
}

// tryText does what compileText does, for a schema that CUE may reject. It then returns nothing.
func tryText(text string) (*schemas.Node, schemas.Diagnostics) {
	v := cuecontext.New().CompileString(text, cue.Filename("schema.cue"))
	if v.Err() != nil || v.LookupPath(cue.ParsePath("#schema")).Validate() != nil {
		return nil, nil
	}
	return fromcue.Schema(v.LookupPath(cue.ParsePath("#schema")), locateIn("schema.cue"))
}

func mustCompile(t testing.TB, text string) *schemas.Node {
	t.Helper()
	n, diags := compileText(t, text)
	if diags != nil {
		t.Fatalf("refused: %v", diags)
	}
	return n
}
