package vetting

import (
	"context"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"stele.dev/stele/cmd/stele/internal/compiling"
	"stele.dev/stele/cmd/stele/internal/gitrepo"
	"stele.dev/stele/policy/bundles"
	"stele.dev/stele/policy/compile"
	"stele.dev/stele/policy/format"
	"stele.dev/stele/policy/lint"
	"stele.dev/stele/schemas"
)

// surroundings returns the findings about the files around a bundle: the copy of the definitions, the commit, and accepted
// findings.
func (o *options) surroundings(ctx context.Context, t compiling.Target, compiled *compile.Result) (found []lint.Finding, err error) {
	root, err := gitrepo.ModuleRoot(t.Name, t.Source.Package)
	if err != nil {
		return nil, err
	}
	folder, err := os.OpenRoot(root)
	if err != nil {
		return nil, err
	}
	defer folder.Close()
	copies, err := format.Copies(folder.FS())
	if err != nil {
		return nil, err
	}
	for _, c := range copies {
		if c.State != format.Missing {
			found = append(found, lint.New("DEFINITIONS_DIFFER", firstLine(c.Path), "", fmt.Sprintf("the copy of the definitions is %s: stele uses its own", c.State), "`stele policy vendor` writes this program's"))
		}
	}
	today := time.Now().UTC().Format(time.DateOnly)
	for _, a := range compiled.Accept {
		if a.Until != "" && a.Until < today {
			found = append(found, lint.New("ACCEPT_EXPIRED", a.Source, a.Rule, "the entry has expired on "+a.Until, ""))
		}
	}
	c, err := gitrepo.ReadCheckout(ctx, t.Name, compiled.Source)
	if err != nil {
		return nil, err
	}
	if o.clean && len(c.Changed) == 0 {
		if err := c.Clean(t.Name); err != nil {
			return nil, err
		}
	}
	for _, file := range c.Changed {
		f := lint.New("FILE_UNCOMMITTED", firstLine(file), "", "the file is not as in the commit that is checked out", "")
		if o.clean {
			f.Severity = lint.Error
		}
		found = append(found, f)
	}
	return found, nil
}

func firstLine(file string) schemas.Position { return schemas.Position{File: file, Line: 1, Column: 1} }

// prefixOf returns the path of a bundle's module from the root of its repository, or else from the current folder.
func prefixOf(t compiling.Target) string {
	root, err := gitrepo.ModuleRoot(t.Name, t.Source.Package)
	if err != nil {
		return ""
	}
	return gitrepo.Prefix(context.Background(), root)
}

// changedSince returns the bundles that use files which differ from a revision of git.
func changedSince(ctx context.Context, revision string, targets []compiling.Target) (changed []compiling.Target, err error) {
	files := map[string][]string{} // by module
	for _, t := range targets {
		root, err := gitrepo.ModuleRoot(t.Name, t.Source.Package)
		if err != nil {
			return nil, err
		}
		if _, known := files[root]; !known {
			if files[root], err = gitrepo.ChangedSince(ctx, root, revision); err != nil {
				return nil, err
			}
		}
		folders := t.Source.Folders()
		if slices.ContainsFunc(files[root], func(file string) bool { return concerns(file, folders) }) {
			changed = append(changed, t)
		}
	}
	return changed, nil
}

// concerns reports whether a bundle of some folders may use a file. Data files may be in folders below them.
func concerns(file string, folders []bundles.Folder) bool {
	if strings.HasPrefix(file, "cue.mod/") {
		return true
	}
	return slices.ContainsFunc(folders, func(f bundles.Folder) bool {
		if path.Ext(file) == ".cue" {
			return path.Dir(file) == f.Dir
		}
		return bundles.IsSource(file) && (f.Dir == "." || strings.HasPrefix(file, f.Dir+"/"))
	})
}
