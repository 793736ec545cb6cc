package docs_test

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"slices"
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
	for _, document := range documents(t) {
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

var (
	testName   = regexp.MustCompile("`((?:Test|Fuzz|Benchmark)[A-Z]\\w+)`")
	testFunc   = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark)\w+)\(`)
	makeTarget = regexp.MustCompile("(?m)(?:`|^|&& )make ([a-z][a-z-]*)")
	target     = regexp.MustCompile(`(?m)^([a-z][a-z-]*):`)
	series     = regexp.MustCompile(`_(bucket|sum|count)$`)
	files      = regexp.MustCompile(`^stele_([a-z_]+)_file_(?:info|reloads_total)$`)
	metric     = regexp.MustCompile(`\bstele_[a-z_]+[a-z]\b`)
)

// TestDocumentsNameTestsTargetsAndMetricsThatExist checks names in the documentation whose things are in files of the repository.
func TestDocumentsNameTestsTargetsAndMetricsThatExist(t *testing.T) {
	names, code := map[string]bool{}, goText(t)
	for _, m := range testFunc.FindAllSubmatch(code, -1) {
		names[string(m[1])] = true
	}
	makefile, err := os.ReadFile("../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range target.FindAllSubmatch(makefile, -1) {
		names["make "+string(m[1])] = true
	}
	metrics, err := os.ReadFile("METRICS.md")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, document := range documents(t) {
		text, err := os.ReadFile(document)
		if err != nil {
			t.Fatal(err)
		}
		check := func(name string, exists bool) {
			found++
			if !exists {
				t.Errorf("%s names %s, which does not exist", document, name)
			}
		}
		for _, m := range testName.FindAllSubmatch(ofStele(text), -1) {
			check(string(m[1]), names[string(m[1])])
		}
		for _, m := range makeTarget.FindAllSubmatch(text, -1) {
			check("make "+string(m[1]), names["make "+string(m[1])])
		}
		for _, name := range metric.FindAll(text, -1) {
			base := series.ReplaceAll(name, nil)
			made := files.ReplaceAll(name, []byte(`NewMetrics("$1")`)) // by limits/reload
			check(string(name), bytes.Contains(metrics, base) || bytes.Contains(code, base) || bytes.Contains(code, made))
		}
	}
	if found < 300 {
		t.Errorf("only %d names were found", found)
	}
}

// documents returns the pages for readers.
func documents(t *testing.T) []string {
	var all []string
	for _, pattern := range []string{"*.md", "../*.md", "../examples/*/README.md"} {
		pages, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, pages...)
	}
	return all
}

// ofStele returns a page without the sections that name tests of Kubernetes.
func ofStele(page []byte) []byte {
	return bytes.Join(slices.DeleteFunc(bytes.Split(page, []byte("\n## ")), func(section []byte) bool {
		return bytes.HasPrefix(section, []byte("Upstream's "))
	}), []byte("\n## "))
}

// goText returns the text of all files in Go.
func goText(t *testing.T) []byte {
	var all []byte
	sources(t, func(_, file string) {
		text, err := os.ReadFile(filepath.Join("..", file))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, text...)
	})
	return all
}
