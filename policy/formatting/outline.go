package formatting

import (
	"strconv"

	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/parser"
)

// Outline returns the package of a CUE file, "" if it has none, and the names of its fields at the top.
func Outline(name string, data []byte) (pkg string, fields []string, err error) {
	file, err := parser.ParseFile(name, data)
	if err != nil {
		return "", nil, err
	}
	if pkg = file.PackageName(); pkg == "_" {
		pkg = ""
	}
	for _, d := range file.Decls {
		if f, ok := d.(*ast.Field); ok {
			if label, _, err := ast.LabelName(f.Label); err == nil {
				fields = append(fields, label)
			}
		}
	}
	return pkg, fields, nil
}

// Label returns a name as the label of a field: in quotes, if CUE needs them.
func Label(name string) string {
	if ast.IsValidIdent(name) {
		return name
	}
	return strconv.Quote(name)
}
