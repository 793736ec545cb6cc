package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	purpose   = regexp.MustCompile(`(?m)\A(?:<!--.*-->\n\n)?# .+\n\n\*(Tutorial|How-to|Reference|Explanation) for ([\w ,]+)\.\*\n\n`)
	listedRow = regexp.MustCompile(`(?m)^\| \[[^\]]+\]\(([^)#]+\.md)\) \|`)
)

// headings are the parts of README's section Documents, by what the pages in them are.
var headings = map[string]string{"Tutorial": "Tutorials", "How-to": "How-to", "Reference": "Reference", "Explanation": "Explanation"}

// TestEachPageSaysForWhomItIs checks that each page says in its first line what it is and for whom, and that README lists it there: the
// site of the documentation has its navigation from README.
func TestEachPageSaysForWhomItIs(t *testing.T) {
	listed := listedPages(t)
	for _, pattern := range []string{"*.md", "../examples/*/README.md"} {
		pages, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, page := range pages {
			text, err := os.ReadFile(page)
			if err != nil {
				t.Fatal(err)
			}
			m := purpose.FindStringSubmatch(string(text))
			if m == nil {
				t.Errorf("%s does not say below its title what it is and for whom, such as *How-to for operators.*", page)
				continue
			}
			heading := headings[m[1]]
			if m[2] == "engineers" {
				heading = "For engineers"
			}
			path := filepath.ToSlash(filepath.Join("docs", page))
			if listed[path] != heading {
				t.Errorf("README.md lists %s under %q, and it is of %q", path, listed[path], heading)
			}
			delete(listed, path)
		}
	}
	for path := range listed {
		t.Errorf("README.md lists %s, which is not in docs or examples", path)
	}
}

// listedPages returns the heading under which README lists each page.
func listedPages(t *testing.T) map[string]string {
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(readme), "\n## Documents\n")
	if !found {
		t.Fatal("README.md has no section Documents")
	}
	section, _, _ = strings.Cut(section, "\n## ")
	listed := map[string]string{}
	for _, part := range strings.Split(section, "\n### ")[1:] {
		heading, rows, _ := strings.Cut(part, "\n")
		for _, m := range listedRow.FindAllStringSubmatch(rows, -1) {
			listed[m[1]] = heading
		}
	}
	return listed
}
