package program

import (
	"k8s.io/apimachinery/pkg/util/validation/field"
	"stele.dev/stele/schemas"
)

// A Checker checks and completes values of one node of a form, for those who make a form and
// compare it with its source. CUE is asked in this process.
type Checker struct{ check *check }

// NewChecker compiles a node. It fails as [NewProgram] does.
func NewChecker(n *schemas.Node) (*Checker, error) {
	c, err := newCheck(n, 0)
	if err != nil {
		return nil, err
	}
	return &Checker{c}, nil
}

// Validate returns every way in which a value violates the node.
func (p *Checker) Validate(x any) field.ErrorList {
	var run inspection
	run.value(p.check, x)
	return run.errs
}

// Prepare removes unknown fields from a value and fills in defaults. It returns the value and
// the paths of what it removed.
func (p *Checker) Prepare(x any) (prepared any, unknown []string) {
	run := preparation{fill: true}
	prepared = run.value(p.check, x)
	return prepared, run.unknown
}

// AdmitsKey reports whether a key of a map satisfies the node, which is that of a pattern.
func (p *Checker) AdmitsKey(key string) bool { return p.check.admitsKey(key) }

// Remove deletes the field at a path in decoded JSON, and reports whether it was there.
func Remove(x any, path []string) bool {
	var p preparation
	return p.remove(x, path)
}

// Absent returns the value of a field that is missing from the data, and whether it has one.
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
