package main

import (
	"bytes"
	"os"
	"strings"
	"testing"
)

const (
	definitions = "../../policy.cue"
	page        = "../../../../docs/BUNDLE.md"
)

func TestThePageIsCurrent(t *testing.T) {
	text, err := os.ReadFile(definitions)
	if err != nil {
		t.Fatal(err)
	}
	want, err := reference(text)
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error("docs/BUNDLE.md is not that of policy.cue; run go generate ./policy/format")
	}
}

func TestFields(t *testing.T) {
	const text = `package p

// A thing.
#Thing: {
	// Its name.
	name!: #Name
	// Its size.
	size: *1 | int & >=0
	// What is in it.
	parts: [#Name]: {
		// How many there are.
		n?: int
	}
	_hidden: 1
}
// A name.
#Name: =~"^(a|b)$"
`
	got, err := reference([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"## #Thing\n\nA thing.\n",
		"| `name` | `#Name` | required | Its name. |\n",
		"| `size` | `*1 \\| int & >=0` | default `1` | Its size. |\n",
		"| `parts.NAME` | `{…}` |  | What is in it. |\n| `parts.NAME.n` | `int` |  | How many there are. |\n",
		"| `#Name` | `=~\"^(a\\|b)$\"` | A name. |\n",
	} {
		if !strings.Contains(string(got), want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	if strings.Contains(string(got), "hidden") {
		t.Error("a hidden field is shown")
	}
	if _, err := reference([]byte(strings.Replace(text, "// Its size.", "", 1))); err == nil || err.Error() != "no comment: #Thing.size" {
		t.Errorf("a field without a comment: %v", err)
	}
}
