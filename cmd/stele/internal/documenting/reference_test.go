package documenting_test

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"golang.org/x/net/html"
	"stele.dev/stele/cmd/stele/internal/documenting"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/bundles"
	"stele.dev/stele/policy/compile"
)

func example(t *testing.T) *policy.Form {
	t.Helper()
	source, err := bundles.ReadFS(os.DirFS("../../../../examples/platform"), "clusters/dev")
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
	text, err := documenting.Markdown(form)
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
		if again, _ := documenting.Markdown(form); !bytes.Equal(again, text) {
			t.Fatal("the text differs from run to run")
		}
	}
}

func TestHTMLIsEscapedAndLoadsNothing(t *testing.T) {
	form := example(t)
	form.Denies[0].Reason = "<script>alert(1)</script>"
	text, err := documenting.HTML(form)
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

// Rules that change objects are described in the order in which they run.
func TestMutations(t *testing.T) {
	form := example(t)
	rule := func(name string, order int64, reinvoke bool) policy.Mutation {
		return policy.Mutation{ID: "widgets/mutate/" + name, Order: order, Reinvoke: reinvoke, Ignore: reinvoke,
			Match:     policy.Match{Operations: []string{"CREATE"}, Resources: []string{"widgets"}, Conditions: []policy.Variable{{Name: "c", Expression: policy.Expression{Text: "object.spec.size < 3"}}}},
			Mutations: []policy.MutationStep{{PatchType: policy.JSONPatch, Expression: policy.Expression{Text: "[<" + name + ">]"}}}}
	}
	form.Mutations = []policy.Mutation{rule("b", 20, false), rule("a", 3, true)}
	text, err := documenting.Markdown(form)
	if err != nil {
		t.Fatal(err)
	}
	page, err := documenting.HTML(form)
	if err != nil {
		t.Fatal(err)
	}
	for which, c := range map[string]struct {
		text  []byte
		wants []string
	}{
		"Markdown": {text, []string{"with the order 3; a write that it cannot change goes on without it; it runs again", "only if `object.spec.size < 3`", "JSONPatch `[<a>]`", "with the order 20; a write that it cannot change is refused (", "`[<b>]`"}},
		"HTML":     {page, []string{"with the order 3; a write that it cannot change goes on without it; it runs again", "<code>object.spec.size &lt; 3</code>", "JSONPatch <code>[&lt;a&gt;]</code>", "with the order 20", "[&lt;b&gt;]"}},
	} {
		rest := c.text
		for _, want := range c.wants {
			_, after, found := bytes.Cut(rest, []byte(want))
			if !found {
				t.Errorf("%s: no %q, or not in its place, in\n%s", which, want, c.text)
				break
			}
			rest = after
		}
	}
}
