package commit

import (
	"slices"

	"github.com/tidwall/gjson"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/layer"
	"stele.dev/stele/projections/objects"
	"stele.dev/stele/schemas/brought"
	"stele.dev/stele/schemas/crd/definitions"
)

// LayerResources are the resources of what comes through the API and is in force beside the bundle: definitions, and then rules.
var LayerResources = func() []schema.GroupResource {
	all := []schema.GroupResource{definitions.Resource}
	for _, k := range brought.All() {
		all = append(all, k.GroupResource())
	}
	return all
}()

// OfLayer reports whether a resource is one of [LayerResources].
func OfLayer(r schema.GroupResource) bool { return slices.Contains(LayerResources, r) }

// Layered returns a policy with what of a state came through the API: what is in force. before is the policy in force so far, of which
// it takes what has not changed; it may be nil.
func (c *Committer) Layered(p, before *policy.Policy, o *objects.State) *policy.Policy {
	return Layered(p, before, func(schema.GroupResource) *objects.State { return o }, c.notInForce)
}

// LayeredOf is Layered with a state for each of [LayerResources].
func (c *Committer) LayeredOf(p, before *policy.Policy, of func(schema.GroupResource) *objects.State) *policy.Policy {
	return Layered(p, before, of, c.notInForce)
}

func (c *Committer) notInForce(r schema.GroupResource, name string, err error) {
	c.logger.Error("an object that the API brought cannot be compiled, so that it is not in force; write it anew, or use the version of the program that stored it", "resource", r.String(), "name", name, "error", err)
}

// Layered returns a policy with what of states, one for each of [LayerResources], came through the API. failed receives the objects of which nothing can be made.
func Layered(p, before *policy.Policy, of func(schema.GroupResource) *objects.State, failed func(r schema.GroupResource, name string, err error)) *policy.Policy {
	if p == nil {
		return nil
	}
	var all []layer.Stored
	for _, r := range LayerResources {
		o := of(r)
		if o.Len(r) == 0 {
			continue
		}
		for x := range o.List(r, &objects.Selection{}, "", "") {
			if broughtObject(x) {
				all = append(all, layer.Stored{Resource: r, Namespace: x.Namespace, Name: x.Name, Revision: x.Revision, JSON: x.JSON})
			}
		}
	}
	return layer.Over(p, before, all, failed)
}

// broughtObject reports whether an object came through the API, and is not what clients have written beside an object of the bundle.
func broughtObject(o *objects.Object) bool {
	if o.Resource() == definitions.Resource {
		return definitions.Is(o.JSON)
	}
	return brought.Is(o.JSON)
}

// changesLayer reports whether changes are about definitions that came through the API, and whether they change what rules say that did. Other changes of
// metadata, such as of annotations, do not: in force is what an object said at its last revision that did.
func changesLayer(changes []*objects.Change) (kinds, rules bool) {
	for _, x := range changes {
		r := x.Object.Resource()
		if !OfLayer(r) || !broughtObject(x.Object) && (x.Before == nil || !broughtObject(x.Before)) {
			continue
		}
		if r == definitions.Resource {
			kinds = true
			continue
		}
		rules = rules || x.Before == nil || x.Deleted || broughtObject(x.Before) != broughtObject(x.Object) || brought.Says(x.Before.JSON) != brought.Says(x.Object.JSON) ||
			gjson.GetBytes(x.Before.JSON, "metadata.labels").Raw != gjson.GetBytes(x.Object.JSON, "metadata.labels").Raw
	}
	return kinds, rules
}
