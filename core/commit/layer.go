package commit

import (
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/layer"
	"stele.dev/stele/projections/objects"
	"stele.dev/stele/schemas/crd/definitions"
)

// Layered returns a policy with the definitions of a state that came through the API: what is in force. before is the policy in force so far, of which
// it takes the kinds that have not changed; it may be nil.
func (c *Committer) Layered(p, before *policy.Policy, o *objects.State) *policy.Policy {
	if p == nil {
		return nil
	}
	var all []layer.Stored
	if o.Len(definitions.Resource) > 0 {
		for x := range o.List(definitions.Resource, &objects.Selection{}, "", "") {
			if definitions.Is(x.JSON) {
				all = append(all, layer.Stored{Name: x.Name, Revision: x.Revision, JSON: x.JSON})
			}
		}
	}
	return layer.Over(p, before, all, func(name string, err error) {
		c.logger.Error("a definition that the API brought cannot be compiled, so that its kind is not served; write it anew, or use the version of the program that stored it", "definition", name, "error", err)
	})
}

// changesLayer reports whether changes are about definitions that came through the API.
func changesLayer(changes []*objects.Change) bool {
	for _, x := range changes {
		if o := x.Object; o.Resource() == definitions.Resource && (definitions.Is(o.JSON) || x.Before != nil && definitions.Is(x.Before.JSON)) {
			return true
		}
	}
	return false
}
