package docs_test

import (
	"bytes"
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

var (
	attackTests = regexp.MustCompile("`([\\w/]+)`: ((?:`\\w+`(?:, )?)+)")
	quoted      = regexp.MustCompile("`(\\w+)`")
)

// TestTheAttacksHaveTests checks that each test that docs/SECURITY.md names is in the package that it names.
func TestTheAttacksHaveTests(t *testing.T) {
	page, err := os.ReadFile("SECURITY.md")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, m := range attackTests.FindAllStringSubmatch(string(page), -1) {
		files, err := filepath.Glob(filepath.Join("..", m[1], "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		var text []byte
		for _, file := range files {
			part, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			text = append(text, part...)
		}
		for _, name := range quoted.FindAllStringSubmatch(m[2], -1) {
			found++
			if !bytes.Contains(text, []byte("\nfunc "+name[1]+"(")) {
				t.Errorf("%s has no test %s", m[1], name[1])
			}
		}
	}
	if found < 100 {
		t.Errorf("only %d tests were found on the page", found)
	}
}
