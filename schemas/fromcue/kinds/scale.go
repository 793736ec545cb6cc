package kinds

import (
	"fmt"
	"strings"

	"stele.dev/stele/schemas"
)

// scale reads the paths of the scale subresource. It applies the rules of apiextensions, and the schema
// must declare the fields.
func (r reader) scale(s section, schema *schemas.Node) *schemas.Scale {
	s.rejectOthers("specReplicasPath", "statusReplicasPath", "labelSelectorPath")
	out := &schemas.Scale{}
	for _, p := range []struct {
		name  string
		into  *string
		under []string
		kinds schemas.Kinds
		want  string
	}{
		{"specReplicasPath", &out.SpecReplicasPath, []string{".spec."}, schemas.IntegerKind, "an integer"},
		{"statusReplicasPath", &out.StatusReplicasPath, []string{".status."}, schemas.IntegerKind, "an integer"},
		{"labelSelectorPath", &out.LabelSelectorPath, []string{".spec.", ".status."}, schemas.StringKind, "a string"},
	} {
		at, ok := s.get(p.name)
		if !ok {
			if p.name != "labelSelectorPath" {
				s.refuse("a scale without "+p.name, "")
			}
			continue
		}
		path := s.text(p.name)
		*p.into = path
		at.checkSecret(path, "a Scale", schema)
		n, unknown := lookup(schema, path)
		switch {
		case !hasAnyPrefix(path, p.under) || !plainPath.MatchString(path):
			at.refuse(fmt.Sprintf("the path %q", path), "write names of fields under "+strings.Join(p.under, " or ")+", with a dot before each")
		case unknown != "":
			at.refuse(fmt.Sprintf("the schema has no field %s", unknown), "")
		case n == nil || n.Kinds != p.kinds:
			at.refuse(fmt.Sprintf("the field %s is not %s", path, p.want), "a Scale shows integers, and a selector that is a string")
		}
	}
	return out
}

func hasAnyPrefix(text string, prefixes []string) bool {
	for _, p := range prefixes {
		if strings.HasPrefix(text, p) {
			return true
		}
	}
	return false
}
