// Package formatting formats the CUE files of a module as `cue fmt` does. It has no state and is safe for concurrent use.
package formatting

import (
	"bytes"
	"fmt"
	"slices"

	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/errors"
	"cuelang.org/go/cue/format"
	"cuelang.org/go/cue/parser"
	"stele.dev/stele/schemas"
)

// passes limits how often a file is formatted until nothing changes. CUE's formatter needs more than one pass for some files.
const passes = 4

// Source returns a CUE file in the standard format. The name is only for positions. It returns diagnostics if the file is not
// valid CUE, or if formatting would lose a comment or not come to an end; then the file should be left as it is.
func Source(name string, data []byte) ([]byte, schemas.Diagnostics) {
	file, diags := parse(name, data)
	if len(diags) > 0 {
		return nil, diags
	}
	comments := commentsOf(file)
	for range passes {
		formatted, err := format.Node(file)
		if err != nil {
			return nil, diagnostics(name, err)
		}
		if bytes.Equal(formatted, data) {
			return data, nil
		}
		again, diags := parse(name, formatted)
		if len(diags) > 0 || !slices.Equal(commentsOf(again), comments) {
			return nil, schemas.Diagnostics{{Pos: schemas.Position{File: name}, Message: "formatting would change what the file says", Hint: "format it by hand; the file is left as it is"}}
		}
		file, data = again, formatted
	}
	return nil, schemas.Diagnostics{{Pos: schemas.Position{File: name}, Message: "formatting does not come to an end", Hint: "format it by hand; the file is left as it is"}}
}

func parse(name string, data []byte) (*ast.File, schemas.Diagnostics) {
	file, err := parser.ParseFile(name, data, parser.ParseComments)
	if err != nil {
		return nil, diagnostics(name, err)
	}
	return file, nil
}

// diagnostics returns CUE's errors with their positions.
func diagnostics(name string, err error) (all schemas.Diagnostics) {
	for _, e := range errors.Errors(err) {
		message, args := e.Msg()
		d := schemas.Diagnostic{Pos: schemas.Position{File: name}, Message: fmt.Sprintf(message, args...)}
		if p := e.Position(); p.IsValid() {
			d.Pos.Line, d.Pos.Column = p.Line(), p.Column()
		}
		all = append(all, d)
	}
	return all
}

// commentsOf returns the texts of all comments, sorted.
func commentsOf(file *ast.File) (texts []string) {
	ast.Walk(file, func(n ast.Node) bool {
		if group, ok := n.(*ast.CommentGroup); ok {
			for _, c := range group.List {
				texts = append(texts, c.Text)
			}
		}
		return true
	}, nil)
	slices.Sort(texts)
	return texts
}
