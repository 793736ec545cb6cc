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
	examples, err := readExamples(os.DirFS("examples"))
	if err != nil {
		t.Fatal(err)
	}
	want, err := reference(text, examples)
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
	examples := func() map[string]string { return map[string]string{"thing": `thing: {name: "a"}`} }
	got, err := reference([]byte(text), examples())
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"## #Thing\n\nA thing.\n",
		"| `name` | `#Name` | required | Its name. |\n",
		"| `size` | `*1 \\| int & >=0` | default `1` | Its size. |\n",
		"| `parts.NAME` | `{…}` |  | What is in it. |\n| `parts.NAME.n` | `int` |  | How many there are. |\n",
		"\n\n```cue\nthing: {name: \"a\"}\n```\n",
		"| `#Name` | `=~\"^(a\\|b)$\"` | A name. |\n",
	} {
		if !strings.Contains(string(got), want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	if strings.Contains(string(got), "hidden") {
		t.Error("a hidden field is shown")
	}
	if _, err := reference([]byte(strings.Replace(text, "// Its size.", "", 1)), examples()); err == nil || err.Error() != "no comment: #Thing.size" {
		t.Errorf("a field without a comment: %v", err)
	}
	if _, err := reference([]byte(text), nil); err == nil || err.Error() != "no example: #Thing" {
		t.Errorf("a definition without an example: %v", err)
	}
	if _, err := reference([]byte(text), map[string]string{"thing": "x", "other": "x"}); err == nil || err.Error() != "examples of no definition: other" {
		t.Errorf("an example of no definition: %v", err)
	}
}
