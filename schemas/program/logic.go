package program

import (
	"k8s.io/apimachinery/pkg/util/validation/field"
	"stele.dev/stele/schemas"
)

// A logicCheck is a compiled Logic.
type logicCheck struct {
	all, any, one []*check
	not           *check
}

func newLogic(l *schemas.Logic, b building) (*logicCheck, error) {
	c := &logicCheck{}
	for _, of := range [...]struct {
		nodes []*schemas.Node
		into  *[]*check
	}{{l.AllOf, &c.all}, {l.AnyOf, &c.any}, {l.OneOf, &c.one}} {
		for _, n := range of.nodes {
			x, err := b.deeper().check(n)
			if err != nil {
				return nil, err
			}
			*of.into = append(*of.into, x)
		}
	}
	if l.Not != nil {
		var err error
		if c.not, err = b.deeper().check(l.Not); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// logic checks how many of the nodes x satisfies. The messages are those of apiextensions. around is the
// position of the enclosing schema.
func (v *inspection) logic(l *logicCheck, x any, around schemas.Position) {
	for _, c := range l.all {
		v.value(c, x)
	}
	if len(l.any) > 0 && v.satisfied(l.any, x, 1) == 0 {
		v.invalid(x, "must validate at least one schema (anyOf)", around)
		v.nearest(l.any, x)
	}
	if len(l.one) > 0 {
		switch v.satisfied(l.one, x, 2) {
		case 0:
			v.invalid(x, "must validate one and only one schema (oneOf), and validates none", around)
			v.nearest(l.one, x)
		case 1:
		default:
			v.invalid(x, "must validate one and only one schema (oneOf), and validates several", around)
		}
	}
	if l.not != nil && l.not.node.AdmitsAll() {
		v.invalid(x, "may not be set", around)
	} else if l.not != nil && v.admits(l.not, x) {
		v.invalid(x, "must not validate the schema (not)", around)
	}
}

// satisfied counts the checks that x satisfies. It stops at enough.
func (v *inspection) satisfied(checks []*check, x any, enough int) (n int) {
	for _, c := range checks {
		if v.admits(c, x) {
			if n++; n == enough {
				break
			}
		}
	}
	return n
}

// admits reports whether x satisfies c. It records no errors.
func (v *inspection) admits(c *check, x any) bool {
	before := v.failed
	v.failed = false
	v.quiet++
	v.value(c, x)
	v.quiet--
	admitted := !v.failed
	v.failed = before
	return admitted
}

// nearest reports the errors of the check that finds the fewest errors in x.
func (v *inspection) nearest(checks []*check, x any) {
	if v.quiet > 0 {
		return
	}
	before := len(v.errs)
	var best field.ErrorList
	for i, c := range checks {
		v.value(c, x)
		if found := v.errs[before:]; i == 0 || len(found) < len(best) {
			best = append(best[:0], found...)
		}
		v.errs = v.errs[:before]
	}
	v.errs = append(v.errs, best...)
}
