package lint

import (
	"fmt"
	"slices"

	"stele.dev/stele/policy"
	"stele.dev/stele/schemas"
)

// secretsRead finds admission rules that read stored objects which hold secrets.
func (c *checking) secretsRead() {
	for i := range c.Form.Validations {
		r := &c.Form.Validations[i]
		c.secretsReadBy(r.ID, r.Objects, r.ParamSource)
	}
	for i := range c.Form.Mutations {
		r := &c.Form.Mutations[i]
		c.secretsReadBy(r.ID, r.Objects, r.ParamSource)
	}
}

func (c *checking) secretsReadBy(rule string, objects []policy.StoredKind, params *policy.ParamSource) {
	for i := range objects {
		o := &objects[i]
		c.secretRead(rule, "objects."+o.Name, o.Group, o.Resource, o.Version, o.Source)
	}
	if params != nil {
		c.secretRead(rule, "params", params.Group, params.Resource, params.Version, params.Source)
	}
}

func (c *checking) secretRead(rule, variable, group, resource, version string, at schemas.Position) {
	i := slices.IndexFunc(c.Form.Kinds, func(k schemas.Kind) bool { return k.Group == group && k.Plural == resource })
	if i < 0 {
		return
	}
	k := &c.Form.Kinds[i]
	v, _ := k.Version(version)
	if policy.HoldsSecrets(k) || v != nil && len(v.Schema.SensitivePaths()) > 0 {
		c.add("OBJECTS_SECRET", at, rule, fmt.Sprintf("it reads %s as %s, and they hold secrets: a user whose writes the rule checks can learn parts of the secrets from its messages and refusals", k.Resource(), variable), "")
	}
}
