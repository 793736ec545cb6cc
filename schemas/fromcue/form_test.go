package fromcue_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"stele.dev/stele/schemas"
)

// TestFormIsStable compiles a schema twice (S2), and decodes the encoded form.
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
		var n schemas.Node
		if err := json.Unmarshal(first, &n); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(mustCompile(t, text), &n); diff != "" {
			t.Error(diff)
		}
	}
}

func TestDiagnostics(t *testing.T) {
	d := schemas.Diagnostics{
		{Pos: schemas.Position{File: "b.cue", Line: 1, Column: 1}, Message: "last"},
		{Pos: schemas.Position{File: "a.cue", Line: 10, Column: 1}, Path: "spec.x", Message: "second", Hint: "do"},
		{Pos: schemas.Position{File: "a.cue", Line: 2, Column: 1}, Message: "first"},
		{Pos: schemas.Position{File: "a.cue", Line: 10, Column: 1}, Path: "spec.x", Message: "second", Hint: "do"},
	}
	want := "a.cue:2: first\na.cue:10: spec.x: second; do\nb.cue:1: last"
	if got := d.Sorted().Error(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if got := (schemas.Diagnostics{}).Sorted(); got != nil {
		t.Errorf("%v", got)
	}
}
