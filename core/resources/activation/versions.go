package activation

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/core/commit"
	"stele.dev/stele/core/object/versions"
	"stele.dev/stele/policy"
	"stele.dev/stele/projections/objects"
)

// VersionInUse reports that the new policy lacks a version in which objects were written, so that nothing says how these objects
// are converted to the version that it stores.
type VersionInUse struct {
	Resource schema.GroupResource
	Version  string
	Objects  int
	Example  string // namespace/name of one of them
}

func (e *VersionInUse) Error() string {
	were := fmt.Sprintf("%d objects of %s were", e.Objects, e.Resource)
	if e.Objects == 1 {
		were = fmt.Sprintf("1 object of %s was", e.Resource)
	}
	return fmt.Sprintf("%s written in %s, for example %s, and the new policy has no such version. Add the version with its conversion, with served: false if nobody may use it.", were, e.Version, e.Example)
}

// writtenInRemoved returns a [*VersionInUse] if objects of a kind whose versions are or will be converted were written in a version that
// the form does not have. An earlier policy may have removed the version when it had the same schema as others.
func writtenInRemoved(tip *commit.Tip, form *policy.Form) error {
	if tip.Policy == nil {
		return nil
	}
	for i := range form.Kinds {
		next := &form.Kinds[i]
		was := tip.Policy.Kind(schema.GroupResource{Group: next.Group, Resource: next.Plural})
		if was == nil || !was.Converted() && !next.Converted() || was.SameForm(next) {
			continue
		}
		var found *VersionInUse
		for o := range tip.Objects.List(was.GroupResource(), &objects.Selection{}, "", "") {
			written := o.Kept()
			if written == nil {
				written = o.JSON
			}
			name := versions.NameOf(written)
			if _, has := next.Version(name); has || found != nil && found.Version != name {
				continue
			}
			if found == nil {
				found = &VersionInUse{Resource: was.GroupResource(), Version: name, Example: strings.TrimPrefix(o.Namespace+"/"+o.Name, "/")}
			}
			found.Objects++
		}
		if found != nil {
			return found
		}
	}
	return nil
}

// Unconvertible reports that stored objects cannot be converted to the version that the new policy stores.
type Unconvertible struct {
	Resource schema.GroupResource
	Objects  int
	Example  string // namespace/name of one of them
	Err      error  // why that one cannot be converted
}

func (e *Unconvertible) Error() string {
	return fmt.Sprintf("%d objects of %s cannot be converted to the version that the new policy stores, for example %s: %v", e.Objects, e.Resource, e.Example, e.Err)
}

func (e *Unconvertible) add(o *objects.Object, err error) {
	if e.Objects++; e.Objects == 1 {
		e.Example, e.Err = strings.TrimPrefix(o.Namespace+"/"+o.Name, "/"), err
	}
}
