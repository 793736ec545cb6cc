package lint

import (
	"fmt"
	"slices"
	"strings"

	"stele.dev/stele/policy"
	"stele.dev/stele/policy/expr"
	"stele.dev/stele/schemas"
)

// views finds views that show secrets, and views that nobody may read.
func (c *checking) views() {
	for i := range c.Form.Views {
		v := &c.Form.Views[i]
		c.secretsInView(v)
		if !c.viewRead(v) {
			c.add("VIEW_UNREAD", v.Source, v.ID, fmt.Sprintf("nobody but system:masters may read it: no binding grants get, list or watch of %s in the API group %s", v.Name, policy.ViewsGroup), "")
		}
	}
}

// secretsInView finds expressions of a view that read secret fields.
func (c *checking) secretsInView(v *policy.View) {
	i := slices.IndexFunc(c.Form.Kinds, func(k schemas.Kind) bool { return k.Resource() == v.Kind })
	if i < 0 {
		return
	}
	k := &c.Form.Kinds[i]
	if k.Builtin && policy.HoldsSecrets(k) {
		c.add("VIEW_SHOWS_SECRET", v.Source, v.ID, fmt.Sprintf("the view is of %s, which hold secrets: a user who may read the view sees what it shows of them, without a right to read them", v.Kind), "")
		return
	}
	version, _ := k.Version(v.Version)
	if version == nil {
		return
	}
	paths := version.Schema.SensitivePaths()
	read := func(e *policy.Expression, id string) {
		if e == nil || len(paths) == 0 {
			return
		}
		if p := expr.ReadsAny(e.Checked, paths); p != nil {
			c.add("VIEW_SHOWS_SECRET", e.Source, id, "it reads "+strings.Join(append([]string{expr.VarObject}, p...), ".")+
				", which is @stele(sensitive): a user who may read the view sees values made of it, without a right to read "+v.Kind, "")
		}
	}
	read(v.Filter, v.ID+"/filter")
	for i := range v.Columns {
		read(&v.Columns[i].Expression, v.ID+"/columns/"+v.Columns[i].Name)
	}
	for i := range v.Aggregates {
		read(v.Aggregates[i].Expression, v.ID+"/aggregates/"+v.Aggregates[i].Name)
	}
}

// viewRead reports whether a binding of the bundle grants reading a view. Roles that are a part of every policy do not count.
func (c *checking) viewRead(v *policy.View) bool {
	for i := range c.Form.Bindings {
		b := &c.Form.Bindings[i]
		if policy.OwningTeam(b.ID) == policy.BuiltinTeam || len(b.Subjects) == 0 {
			continue
		}
		at := slices.IndexFunc(c.Form.Roles, func(r policy.Role) bool { return r.Name == b.Role })
		if at >= 0 && slices.ContainsFunc(c.Form.Roles[at].Rules, func(r policy.Rule) bool {
			return names(r.APIGroups, policy.ViewsGroup) && names(r.Resources, v.Name) && (names(r.Verbs, "list") || names(r.Verbs, "get") || names(r.Verbs, "watch"))
		}) {
			return true
		}
	}
	return false
}

// names reports whether a list of a rule has a word, or "*".
func names(list []string, word string) bool {
	return slices.Contains(list, word) || slices.Contains(list, "*")
}
