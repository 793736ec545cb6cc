package schemas

import (
	"testing"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/cuecontext"
	"cuelang.org/go/cue/token"
)

// locateIn locates positions in a file that a test compiles.
func locateIn(file string) func(token.Pos) (Position, bool) {
	return func(p token.Pos) (Position, bool) {
		if !p.IsValid() || p.Filename() != file {
			return Position{}, false
		}
		return Position{File: file, Line: p.Line(), Column: p.Column()}, true
	}
}

// compileText compiles the definition #schema of a file called schema.cue.
func compileText(t testing.TB, text string) (*Node, Diagnostics) {
	t.Helper()
	v := cuecontext.New().CompileString(text, cue.Filename("schema.cue"))
	if err := v.Err(); err != nil && !v.LookupPath(cue.ParsePath("#schema")).Exists() {
		t.Fatal(err)
	}
	return FromCUE(v.LookupPath(cue.ParsePath("#schema")), locateIn("schema.cue"))
}

// tryText is compileText for a schema that CUE itself may refuse: then it returns nothing.
func tryText(text string) (*Node, Diagnostics) {
	v := cuecontext.New().CompileString(text, cue.Filename("schema.cue"))
	if v.Err() != nil || v.LookupPath(cue.ParsePath("#schema")).Validate() != nil {
		return nil, nil
	}
	return FromCUE(v.LookupPath(cue.ParsePath("#schema")), locateIn("schema.cue"))
}

func mustCompile(t testing.TB, text string) *Node {
	t.Helper()
	n, diags := compileText(t, text)
	if diags != nil {
		t.Fatalf("refused: %v", diags)
	}
	return n
}
