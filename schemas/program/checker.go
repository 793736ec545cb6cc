package program

import (
	"k8s.io/apimachinery/pkg/util/validation/field"
	"stele.dev/stele/schemas"
)

// A Checker prunes, completes and validates values of one node. Packages that make forms use it to
// compare a form with its source. It evaluates fallbacks in this process.
type Checker struct{ check *check }

// NewChecker compiles a node. It fails as [New] does.
func NewChecker(n *schemas.Node) (*Checker, error) {
	c, err := newCheck(n, 0)
	if err != nil {
		return nil, err
	}
	return &Checker{c}, nil
}

// Validate returns all violations of the node.
func (p *Checker) Validate(x any) field.ErrorList {
	var run inspection
	run.value(p.check, x)
	return run.errs
}

// Prepare removes unknown fields and fills in defaults. It returns the result and the paths of the
// removed fields.
func (p *Checker) Prepare(x any) (prepared any, unknown []string) {
	run := preparation{fill: true}
	prepared = run.value(p.check, x)
	return prepared, run.unknown
}

// AdmitsKey reports whether a key of a map satisfies the node of a pattern.
func (p *Checker) AdmitsKey(key string) bool { return p.check.admitsKey(key) }

// Remove deletes the field at a path of a decoded JSON value. It reports whether the field existed.
func Remove(x any, path []string) bool {
	var p preparation
	return p.remove(x, path)
}

// Absent returns the value that the field gets when it is missing. ok is false if it gets none.
func Absent(f *schemas.Field) (value any, ok bool) {
	if f.Presence != schemas.Regular {
		return nil, false
	}
	c, err := newCheck(f.Schema, 0)
	if err != nil {
		return nil, false
	}
	return c.absent()
}
