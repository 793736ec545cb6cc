package compile

import (
	"fmt"

	"cuelang.org/go/cue"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/evaluation"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/wording"
)

// shortNames rejects a short name that is also a short name, singular or plural of another kind,
// since clients would choose either. For published definitions, which nobody can change, it only
// warns.
func (c *compiler) shortNames(f *policy.Form) {
	type name struct {
		kind *schemas.Kind
		what string
	}
	known := map[string][]name{}
	for i := range f.Kinds {
		k := &f.Kinds[i]
		known[k.Plural] = append(known[k.Plural], name{k, "plural"})
		known[k.Singular] = append(known[k.Singular], name{k, "singular"})
	}
	for i := range f.Kinds {
		k := &f.Kinds[i]
		for j, short := range k.ShortNames {
			for _, other := range known[short] {
				if other.kind == k || k.Builtin {
					continue
				}
				where := wording.At(other.kind.Source.String())
				if other.kind.Builtin {
					where = ", which is built in"
				}
				d := schemas.Diagnostic{Pos: c.shortNameAt(k, j), Message: fmt.Sprintf("the short name %q of %s is the %s of %s%s: clients would take either",
					short, k.Resource(), other.what, other.kind.Resource(), where), Hint: "choose another one"}
				if !k.Definition.IsZero() {
					d.Lint = "SHORT_NAME_TAKEN"
					c.Warnings = append(c.Warnings, d)
				} else {
					c.AddAll(schemas.Diagnostics{d})
				}
				break
			}
			known[short] = append(known[short], name{k, "short name"})
		}
	}
}

// shortNameAt returns the position of a short name.
func (c *compiler) shortNameAt(k *schemas.Kind, i int) schemas.Position {
	if o := c.owners[k.Resource()]; o != nil {
		for _, path := range []string{"names.shortNames", "spec.names.shortNames"} {
			if x := o.kind.LookupPath(cue.ParsePath(path)); x.Exists() {
				if pos := evaluation.Position(x.LookupPath(cue.MakePath(cue.Index(i)))); !pos.IsZero() {
					return pos
				}
				return evaluation.Position(x)
			}
		}
	}
	return k.Source
}
