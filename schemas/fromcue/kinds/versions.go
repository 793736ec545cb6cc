package kinds

import (
	"fmt"
	"slices"

	"stele.dev/stele/schemas"
)

// checkTogether checks the versions of a kind against each other. One must be served, and all must have the
// same form, because there is no conversion.
func (r reader) checkTogether(k *schemas.Kind, versions section) {
	if len(k.Versions) > 0 && !slices.ContainsFunc(k.Versions, func(v schemas.Version) bool { return v.Served }) {
		at, _ := versions.get(k.Versions[0].Name)
		served, _ := at.get("served")
		served.refuse("no version is served", "remove served: false, or the kind")
	}
	for i := range k.Versions {
		first, v := &k.Versions[0], &k.Versions[i]
		if first.Schema == nil || v.Schema == nil {
			continue // already reported
		}
		path, differ := schemas.Difference(first.Schema, v.Schema)
		if !differ {
			continue
		}
		if path != "" {
			path = " at " + path
		}
		at, _ := versions.get(v.Name)
		at.refuse(fmt.Sprintf("the schemas of %s and %s differ%s: converting objects is not supported yet", first.Name, v.Name, path),
			"give all versions the same #schema")
	}
}
