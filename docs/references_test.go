package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

var (
	fence = regexp.MustCompile("(?ms)^```.*?^```$")
	named = regexp.MustCompile("`((?:cmd|core|docs|eventlog|examples|limits|plugins|policy|projections|schemas)(?:/[\\w.-]+)+)`")
	link  = regexp.MustCompile(`\]\(([^)#:\s]+)(?:#[^)]*)?\)`)
)

// TestDocumentsNameFilesThatExist checks paths in backquotes, which are relative to the
// root, and links, which are relative to the document.
func TestDocumentsNameFilesThatExist(t *testing.T) {
	documents, err := filepath.Glob("*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, document := range append(documents, "../README.md", "../CHANGELOG.md") {
		text, err := os.ReadFile(document)
		if err != nil {
			t.Fatal(err)
		}
		text = fence.ReplaceAll(text, nil)
		check := func(reference []byte, path string) {
			if _, err := os.Stat(path); err != nil {
				t.Errorf("%s names %s, which does not exist", document, reference)
			}
		}
		for _, m := range named.FindAllSubmatch(text, -1) {
			check(m[1], filepath.Join("..", string(m[1])))
		}
		for _, m := range link.FindAllSubmatch(text, -1) {
			check(m[1], filepath.Join(filepath.Dir(document), string(m[1])))
		}
	}
}
