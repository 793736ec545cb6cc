package reference_test

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"golang.org/x/net/html"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/bundles"
	"stele.dev/stele/policy/compile"
	"stele.dev/stele/policy/reference"
)

func example(t *testing.T) *policy.Form {
	t.Helper()
	source, err := bundles.ReadFS(os.DirFS("../../examples/platform"), "clusters/dev")
	if err != nil {
		t.Fatal(err)
	}
	compiled, diags := compile.Bundle(source)
	if len(diags) > 0 {
		t.Fatal(diags)
	}
	return compiled.Form
}

func TestMarkdown(t *testing.T) {
	form := example(t)
	text, err := reference.Markdown(form)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"| `spec.color` | string |", "| `\"blue\"` |", "| `spec.size` | integer |", "teams/widgets/schema.cue:8", "Who is asked about it.",
		"| widgets/bindings/developers | group team-widgets | widgets:editor | widgets-\\* |", "customers use widgets, ask #platform for break-glass to delete one",
		"`object.spec.size <= params.maxSize`", "a widget can only grow",
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	for range 20 {
		if again, _ := reference.Markdown(form); !bytes.Equal(again, text) {
			t.Fatal("the text differs from run to run")
		}
	}
}

func TestHTMLIsEscapedAndLoadsNothing(t *testing.T) {
	form := example(t)
	form.Denies[0].Reason = "<script>alert(1)</script>"
	text, err := reference.HTML(form)
	if err != nil {
		t.Fatal(err)
	}
	root, err := html.Parse(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	for n := range root.Descendants() {
		if n.Type != html.ElementNode {
			continue
		}
		if n.Data == "script" || n.Data == "link" || n.Data == "img" {
			t.Errorf("an element %s", n.Data)
		}
	}
	if !bytes.Contains(text, []byte("&lt;script&gt;alert(1)")) {
		t.Error("the reason is missing")
	}
}
