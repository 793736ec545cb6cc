package policytest

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"stele.dev/stele/policy/suites"
)

// update writes what tests got into their files, and returns the files that changed. A test whose results differ between
// bundles is left as it is.
func (o *outcome) update() (written []string, err error) {
	type target struct{ root, file string }
	edits := map[target][]suites.Edit{}
	seen := map[string]map[string]any{}
	shown := map[target]string{}
	for _, p := range o.parts {
		for _, t := range p.tests {
			if t.Answer == nil || len(t.Failures) == 0 && !t.Test.Expect.Empty() && string(t.Test.Expect.Object) != "{}" {
				continue
			}
			set := t.Expected()
			key := filepath.Join(p.root, p.suite.Package) + "\x00" + t.Test.Name
			if before, again := seen[key]; again {
				if fmt.Sprint(before) != fmt.Sprint(set) {
					return nil, fmt.Errorf("%s: %s gets different answers in different bundles: let it run in one of them, or expect less of it", t.Test.Source, t.Test.Name)
				}
				continue
			}
			seen[key] = set
			if len(set) == 0 {
				continue
			}
			name := strings.TrimPrefix(strings.TrimPrefix(t.Test.Name, t.Test.Of), "/")
			at := target{p.root, t.Test.Source.File}
			edits[at] = append(edits[at], suites.Edit{Test: t.Test.Of, Case: name, Set: set})
			shown[at] = filepath.ToSlash(filepath.Join(p.prefix, t.Test.Source.File))
		}
	}
	targets := slices.SortedFunc(maps.Keys(edits), func(a, b target) int { return strings.Compare(a.root+a.file, b.root+b.file) })
	for _, at := range targets {
		changed, err := edit(filepath.Join(at.root, filepath.FromSlash(at.file)), edits[at])
		if err != nil {
			return written, err
		}
		if changed {
			written = append(written, shown[at])
		}
	}
	return written, nil
}

// edit edits a file. It reports whether the file changed.
func edit(path string, edits []suites.Edit) (bool, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return false, err
	}
	edited, _, err := suites.Apply(path, text, edits)
	if err != nil || bytes.Equal(edited, text) {
		return false, err
	}
	info, err := os.Stat(path)
	if err != nil {
		return false, err
	}
	return true, os.WriteFile(path, edited, info.Mode().Perm())
}
