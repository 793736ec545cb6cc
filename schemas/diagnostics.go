package schemas

import (
	"cmp"
	"slices"
	"strings"
)

// A Diagnostic is one error in a schema: its position, the field, the message, and a hint on how to fix
// it.
type Diagnostic struct {
	Pos     Position `json:"pos,omitzero"`
	Path    string   `json:"path,omitempty"` // spec.ports[].name; empty for the whole schema
	Message string   `json:"message"`
	Hint    string   `json:"hint,omitempty"`
	// Lint is the id of the lint that found it, see package policy/lint; empty for errors.
	Lint string `json:"lint,omitempty"`
}

// String returns "file:line: path: message; hint". Parts that are empty are left out.
func (d Diagnostic) String() string {
	var b strings.Builder
	for _, part := range []string{d.Pos.String(), d.Path} {
		if part != "" {
			b.WriteString(part)
			b.WriteString(": ")
		}
	}
	b.WriteString(d.Message)
	if d.Hint != "" {
		b.WriteString("; ")
		b.WriteString(d.Hint)
	}
	return b.String()
}

// Diagnostics are all errors in a schema, ordered by position, without duplicates.
type Diagnostics []Diagnostic

// Error returns one line per diagnostic.
func (d Diagnostics) Error() string {
	lines := make([]string, len(d))
	for i, x := range d {
		lines[i] = x.String()
	}
	return strings.Join(lines, "\n")
}

// Err returns d as an error, or nil if d is empty.
func (d Diagnostics) Err() error {
	if len(d) == 0 {
		return nil
	}
	return d
}

// Sorted sorts d in place and returns it without duplicates. It returns nil if d is empty.
func (d Diagnostics) Sorted() Diagnostics {
	if len(d) == 0 {
		return nil
	}
	slices.SortStableFunc(d, func(a, b Diagnostic) int {
		return cmp.Or(
			cmp.Compare(a.Pos.File, b.Pos.File),
			cmp.Compare(a.Pos.Line, b.Pos.Line),
			cmp.Compare(a.Pos.Column, b.Pos.Column),
			cmp.Compare(a.Path, b.Path),
			cmp.Compare(a.Message, b.Message),
			cmp.Compare(a.Hint, b.Hint),
		)
	})
	return slices.Compact(d)
}
