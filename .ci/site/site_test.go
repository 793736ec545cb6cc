package main

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestTheSite makes the site of the working tree, whose links are checked when it is written. It takes about 20 s: it builds the
// program, starts it for each command, and makes the index in an interpreter.
func TestTheSite(t *testing.T) {
	out := filepath.Join(t.TempDir(), "site")
	if err := run(t.Context(), out, "", ""); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"index.html", "docs/POLICY.html", "commands/stele-policy-push.html", "examples/quickstart/index.html", "examples/quickstart/databases.cue.html"} {
		if _, err := os.Stat(filepath.Join(out, file)); err != nil {
			t.Error(err)
		}
	}
	index, err := os.ReadFile(filepath.Join(out, indexFile))
	if err != nil {
		t.Fatal(err)
	}
	pages := map[string]string{
		"goaway-chance":    "commands/stele-serve.html#--goaway-chance",
		"undo":             "commands/stele-undo.html",
		"threat model":     "docs/SECURITY.html#threat-model",
		"restore a backup": "docs/OPERATING.html",
		"managedFields":    "docs/CONFORMANCE.html",
	}
	questions, err := json.Marshal(slices.Collect(maps.Keys(pages)))
	if err != nil {
		t.Fatal(err)
	}
	answers, err := evaluate(string(index)+`
		const search = MiniSearch.loadJS(steleIndex.index, steleIndex.options);
		JSON.stringify(Object.fromEntries(JSON.parse(questions).map((words) =>
			[words, search.search(words, steleIndex.search).slice(0, 12).map((f) => f.id)])))`, "questions", string(questions))
	if err != nil {
		t.Fatal(err)
	}
	found := map[string][]string{}
	if err := json.Unmarshal([]byte(answers), &found); err != nil {
		t.Fatal(err)
	}
	for words, page := range pages {
		if !strings.Contains(strings.Join(found[words], "\n"), page) {
			t.Errorf("a search for %q finds, first of all, %q and not %s", words, found[words], page)
		}
	}
}

func TestLinksLeadSomewhere(t *testing.T) {
	for name, test := range map[string]struct{ page, mistake string }{
		"another page":       {`<a href="other.html">`, ""},
		"a heading":          {`<a href="other.html#here">`, ""},
		"its own heading":    {`<h2 id="own"></h2><a href="#own">`, ""},
		"another site":       {`<a href="https://kubernetes.io/">`, ""},
		"a missing page":     {`<a href="gone.html">`, "gone.html, which does not exist"},
		"a missing heading":  {`<a href="other.html#gone">`, "other.html#gone, and there is no such heading"},
		"a foreign script":   {`<script src="https://cdn.example.com/x.js"></script>`, "a page loads nothing from elsewhere"},
		"a foreign picture":  {`<img src="//cdn.example.com/x.png">`, "a page loads nothing from elsewhere"},
		"a picture within":   {`<img src="data:,">`, ""},
		"a missing document": {`<link rel="stylesheet" href="gone.css">`, "gone.css, which does not exist"},
	} {
		t.Run(name, func(t *testing.T) {
			out := t.TempDir()
			for file, content := range map[string]string{"page.html": test.page, "other.html": `<h2 id="here">Here</h2>`} {
				if err := os.WriteFile(filepath.Join(out, file), []byte(content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			mistakes := checkLinks(out)
			switch {
			case test.mistake == "" && len(mistakes) > 0:
				t.Errorf("mistakes: %v", mistakes)
			case test.mistake != "" && (len(mistakes) != 1 || !strings.Contains(mistakes[0].Error(), test.mistake)):
				t.Errorf("mistakes: %v, and not %q", mistakes, test.mistake)
			}
		})
	}
}

// TestHeadingsHaveTheIDsOfGitHub has titles as they are in the documents, and the ids that GitHub gives them.
func TestHeadingsHaveTheIDsOfGitHub(t *testing.T) {
	for title, id := range map[string]string{
		"What is missing":                       "what-is-missing",
		"Beside kube-apiserver, on 2 cores":     "beside-kube-apiserver-on-2-cores",
		"A new repository: `stele policy init`": "a-new-repository-stele-policy-init",
		"See [POLICY.md](POLICY.md)":            "see-policymd",
		"Größe_1 & more":                        "größe_1--more",
	} {
		if got := githubID(title); got != id {
			t.Errorf("%q has the id %q, and not %q", title, got, id)
		}
	}
}

func TestAFolderThatIsNoSiteStays(t *testing.T) {
	out := t.TempDir()
	letter := filepath.Join(out, "letter.txt")
	if err := os.WriteFile(letter, []byte("dear"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := new(site).write(out); err == nil || !strings.Contains(err.Error(), "name another folder") {
		t.Errorf("the error is %v", err)
	}
	if _, err := os.Stat(letter); err != nil {
		t.Error(err)
	}
}
