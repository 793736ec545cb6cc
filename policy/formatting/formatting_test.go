package formatting_test

import (
	"strings"
	"testing"

	"stele.dev/stele/policy/formatting"
)

func TestSourceFormatsAndKeepsComments(t *testing.T) {
	in := "// Package a is ours.\npackage a\n\n// doc\na:   {b:1, // beside\n  c :  2\n\n// last\n}\nlist: [ 1,2 , // two\n 3]\n"
	out, diags := formatting.Source("a.cue", []byte(in))
	if len(diags) > 0 {
		t.Fatal(diags)
	}
	for _, comment := range []string{"// Package a is ours.", "// doc", "// beside", "// last", "// two"} {
		if strings.Count(string(out), comment) != 1 {
			t.Errorf("the comment %q is lost:\n%s", comment, out)
		}
	}
	if !strings.Contains(string(out), "\tc: 2\n") {
		t.Errorf("not formatted:\n%s", out)
	}
	again, diags := formatting.Source("a.cue", out)
	if len(diags) > 0 || string(again) != string(out) {
		t.Errorf("formatting again changes the file: %v\n%s", diags, again)
	}
}

func TestSourceOfABrokenFileHasItsLine(t *testing.T) {
	_, diags := formatting.Source("teams/a.cue", []byte("package a\n\na: {\n"))
	if len(diags) == 0 || diags[0].Pos.File != "teams/a.cue" || diags[0].Pos.Line < 3 {
		t.Errorf("got %v", diags)
	}
}
