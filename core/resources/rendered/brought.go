package rendered

import (
	"errors"
	"fmt"

	"github.com/tidwall/gjson"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/core/call"
	"stele.dev/stele/core/status"
	"stele.dev/stele/policy"
	"stele.dev/stele/projections/objects"
	"stele.dev/stele/schemas/brought"
)

// broughtRule is the [Kind.Brought] of rules.
func broughtRule(o *objects.Object) bool { return brought.Is(o.JSON) }

// stored implements [catalog.Resource.Stored]. A write is about a stored object if the bundle does not have that, and allows it. An object that is stored can also
// be deleted when the bundle does not allow it any more.
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
		if name == "" && v.kind == Definitions { // what is not named so is not valid
			name = gjson.GetBytes(body, "spec.names.plural").String() + "." + gjson.GetBytes(body, "spec.group").String()
		}
	}
	may := v.allowance(c, name)
	if may.ofBundle {
		return nil, nil
	}
	if may.why == "" {
		return may.as, v.overlaid(c, name)
	}
	if o := c.Tip.Objects.Get(c.Resource(), c.Key.Namespace, name); o != nil && v.kind.Brought(o) {
		if c.Info.Verb == "delete" || gjson.GetBytes(o.JSON, "metadata.deletionTimestamp").Exists() {
			return may.as, nil
		}
		return nil, status.Refused(c.Resource(), name, errors.New("the API has brought it, and the policy does not allow "+may.why+" any more"+may.line+": it can only be deleted"))
	}
	if c.Tip.Policy.Base().Form().Dynamic[v.kind.Section].Mode == policy.AllowWrites {
		return nil, status.Refused(c.Resource(), name, fmt.Errorf("the policy does not allow %s through the API%s; `%s` brings it into the bundle", may.why, may.line, v.kind.imported()))
	}
	return nil, nil
}

// allowance says whether clients may bring an object.
type allowance struct {
	// as is the version in which the object is stored.
	as *policy.Version
	// ofBundle is set if the bundle has the object.
	ofBundle bool
	// why says what the policy does not allow; "" if it allows the object. line says what it allows and where, in parentheses after a space.
	why, line string
}

// allowance says whether clients may bring an object of a name.
func (v *service) allowance(c *call.Call, name string) (a allowance) {
	form := c.Tip.Policy.Base().Form()
	if v.kind == Definitions {
		of := schema.ParseGroupResource(name)
		a.as, a.ofBundle, a.line = policy.Definitions(), c.Tip.Policy.DefinedBy(of) != nil, form.AllowedDefinitions()
		if !form.AllowsDefinitions(of.Group) {
			a.why = fmt.Sprintf("definitions of the group %q", of.Group)
		}
		return a
	}
	a.as = policy.Brought(c.Resource())
	a.ofBundle, a.line = v.kind.Find(form, c.Key.Namespace, name) != nil, form.AllowedNamespaces(a.as.Kind.Brought)
	if !form.AllowsBrought(a.as.Kind.Brought, c.Key.Namespace) {
		if a.why = c.Resource().Resource; c.Key.Namespace != "" {
			a.why += fmt.Sprintf(" in the namespace %q", c.Key.Namespace)
		}
	}
	return a
}

// overlaid returns an error if the log still has what clients have written beside an object that the bundle had. The [Sweeper] removes it soon.
func (v *service) overlaid(c *call.Call, name string) error {
	if o := c.Tip.Objects.Get(c.Resource(), c.Key.Namespace, name); o != nil && !v.kind.Brought(o) {
		return status.Conflict(c.Resource(), name, errors.New("what clients have written beside the object that the bundle had is about to be removed; try again"))
	}
	return nil
}
