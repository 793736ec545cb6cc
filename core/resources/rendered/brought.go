package rendered

import (
	"errors"
	"fmt"

	"github.com/tidwall/gjson"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/core/call"
	"stele.dev/stele/core/status"
	"stele.dev/stele/policy"
)

// stored implements [catalog.Resource.Stored] for definitions. A write is about a stored definition if the bundle does not have that, and allows its group. A
// definition that is stored can also be deleted when the bundle does not allow its group any more.
func (v *service) stored(c *call.Call) (*policy.Version, error) {
	name := c.Key.Name
	switch c.Info.Verb {
	case "deletecollection":
		return nil, nil
	case "create":
		body, err := (&write{v: v, c: c}).body()
		if err != nil {
			return nil, err
		}
		// The text may have a name twice. What is created decides Draft.becomeNew about once more, from what is stored.
		name = gjson.GetBytes(body, "metadata.name").String()
		if name == "" { // what is not named so is not valid
			name = gjson.GetBytes(body, "spec.names.plural").String() + "." + gjson.GetBytes(body, "spec.group").String()
		}
	}
	of := schema.ParseGroupResource(name)
	if c.Tip.Policy.DefinedBy(of) != nil {
		return nil, nil
	}
	form := c.Tip.Policy.Base().Form()
	if form.AllowsDefinitions(of.Group) {
		return policy.Definitions(), v.overlaid(c, name)
	}
	if o := c.Tip.Objects.Get(c.Resource(), "", name); o != nil && v.kind.Brought(o) {
		if c.Info.Verb == "delete" || gjson.GetBytes(o.JSON, "metadata.deletionTimestamp").Exists() {
			return policy.Definitions(), nil
		}
		return nil, status.Refused(c.Resource(), name, errors.New("the API has brought it, and the policy does not allow definitions of its group any more"+form.AllowedDefinitions()+": it can only be deleted"))
	}
	if form.Dynamic[v.kind.Section].Mode == policy.AllowWrites {
		return nil, status.Refused(c.Resource(), name, fmt.Errorf("the policy does not allow definitions of the group %q through the API%s; `%s` brings it into the bundle", of.Group, form.AllowedDefinitions(), v.kind.imported()))
	}
	return nil, nil
}

// overlaid returns an error if the log still has what clients have written beside a definition that the bundle had. The [Sweeper] removes it soon.
func (v *service) overlaid(c *call.Call, name string) error {
	if o := c.Tip.Objects.Get(c.Resource(), "", name); o != nil && !v.kind.Brought(o) {
		return status.Conflict(c.Resource(), name, errors.New("what clients have written beside the definition that the bundle had is about to be removed; try again"))
	}
	return nil
}
