package conversion

import (
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/program"
)

// A Way converts objects from one version of a kind to another, through the hub. It is immutable and safe for concurrent use.
type Way struct {
	up, down *Conversion // either may be nil
	prune    *program.Program
	from, to *schemas.Node
	parts    bool // top-level fields can be converted alone
	same     map[string]bool
}

// NewWay returns the way from a version to another. up converts the first to the hub, and down the hub to the second; nil if the
// version has the form of the hub. to is the program of the second version.
func NewWay(up, down *Conversion, from *schemas.Node, to *program.Program) *Way {
	w := &Way{up: up, down: down, prune: to, from: from, to: to.Node(), same: map[string]bool{}}
	w.parts = plain(from) && plain(w.to)
	if w.parts {
		for _, f := range w.to.Struct.Fields {
			if was, ok := schemas.FieldNamed(from.Struct, f.Name); ok && schemas.Same(was.Schema, f.Schema) {
				w.same[f.Name] = true
			}
		}
	}
	return w
}

// plain reports whether what a schema says about a top-level field depends on no other.
func plain(n *schemas.Node) bool {
	return n.Struct != nil && n.Union == nil && n.Logic == nil && n.Fallback == nil && len(n.Struct.Conditions) == 0 && len(n.Struct.Patterns) == 0
}

// Keeps reports whether a top-level field is the same in both versions, so that it need not be decoded.
func (w *Way) Keeps(name string) bool {
	return w.parts && w.same[name] && !(w.up != nil && w.up.Touches(name)) && !(w.down != nil && w.down.Touches(name))
}

// Convert converts the content of an object in place: without apiVersion, kind and metadata, and perhaps without fields that the
// way keeps. Fields that the version does not have are removed. After an error, the content is neither.
func (w *Way) Convert(content map[string]any) error {
	if w.up != nil {
		if err := w.up.Up(content); err != nil {
			return err
		}
	}
	if w.down != nil {
		if err := w.down.Down(content); err != nil {
			return err
		}
	}
	w.prune.Prune(content)
	return nil
}
