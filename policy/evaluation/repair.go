package evaluation

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"cuelang.org/go/cue/ast"
	cueerrors "cuelang.org/go/cue/errors"
	"cuelang.org/go/cue/parser"
	"stele.dev/stele/policy/bundles"
)

// CUE does not evaluate a package with an undefined name or an unused import. To find the other
// mistakes as well, the package is evaluated again, with an error as the value of each undefined
// name, and without unused imports. Lines and columns stay the same.

const unusedImport = "imported and not used: %s"

// meaningless marks errors that only follow from an undefined name.
const meaningless = "a name that means nothing"

// repaired returns a source without the errors; nil if they are of another sort.
func repaired(s *bundles.Source, err error) *bundles.Source {
	r := &bundles.Source{Package: s.Package, Files: slices.Clone(s.Files)}
	known := map[string]bool{}
	for _, e := range cueerrors.Errors(err) {
		file := bundles.Relative(e.Position().Filename())
		i := slices.IndexFunc(r.Files, func(f bundles.File) bool { return f.Path == file })
		if i < 0 {
			return nil
		}
		f := &r.Files[i]
		switch formatOf(e) {
		case notFound:
			name := argument(e, 0)
			if known[file+" "+name] {
				continue
			}
			known[file+" "+name] = true
			declaration := "let %s = "
			if strings.ContainsAny(name[:1], "#_") {
				declaration = "%s: "
			}
			f.Data = append(bytes.Clone(f.Data), fmt.Sprintf("\n"+declaration+"%q & \"\"\n", name, meaningless)...)
		case unusedImport:
			if f.Data = withoutImport(f.Data, e.Position().Line()); f.Data == nil {
				return nil
			}
		default:
			return nil
		}
	}
	return r
}

// withoutImport blanks the import on a line.
func withoutImport(text []byte, line int) []byte {
	f, err := parser.ParseFile("", text, parser.ImportsOnly)
	if err != nil {
		return nil
	}
	text = bytes.Clone(text)
	for _, d := range f.Decls {
		d, ok := d.(*ast.ImportDecl)
		if !ok {
			continue
		}
		for _, spec := range d.Specs {
			from, to := spec.Pos(), spec.End()
			if from.Line() != line || to.Line() != line {
				continue
			}
			blank := text[from.Offset():to.Offset()]
			for i := range blank {
				blank[i] = ' '
			}
			if !d.Lparen.IsValid() {
				blank[0], blank[len(blank)-1] = '(', ')'
			}
			return text
		}
	}
	return nil
}
