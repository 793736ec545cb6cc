package rights

import (
	"slices"
	"strings"

	"stele.dev/stele/policy"
)

// Limits are the limits of the teams of a policy. They never change and are safe for concurrent use.
type Limits struct {
	teams []policy.Team
	views map[string]string // teams by the names of their views
}

// LimitsOf returns the limits in a form. It is nil if the form does not have them: an earlier version of the program compiled it.
func LimitsOf(f *policy.Form) *Limits {
	if f.Teams == nil {
		return nil
	}
	l := &Limits{f.Teams, map[string]string{}}
	for i := range f.Views {
		l.views[f.Views[i].Name] = policy.OwningTeam(f.Views[i].ID)
	}
	return l
}

// The limits that let a team grant requests.
const (
	// ByNamespaces: the team may bind a role with any rule in these namespaces.
	ByNamespaces = "namespaces"
	// ByGroups: a role of the team may join its rules for these API groups to roles that others bind.
	ByGroups = "groups"
	// ByViews: a role of the team may join its rules for the team's own views to roles that others bind.
	ByViews = "views"
)

// Grantor is a team whose limits let it grant requests, by a change of its part of the bundle.
type Grantor struct {
	Team string `json:"team"`
	// By is the limit: namespaces, groups or views.
	By string `json:"by"`
	// Values are the patterns of namespaces, the API groups, or the view that include the requests.
	Values []string `json:"values"`
	// Source is the line of the limit.
	Source string `json:"source,omitempty"`
}

// Grantors returns the teams that may grant the requests, sorted by name. Denies are not looked at: they refuse whatever is
// granted.
func (l *Limits) Grantors(q *Question) []Grantor {
	grantors := []Grantor{}
	for i := range l.teams {
		t := &l.teams[i]
		if values := asked(t.Namespaces.Values, q); len(values) > 0 {
			grantors = append(grantors, Grantor{t.Name, ByNamespaces, values, t.Namespaces.Source.String()})
			continue // whoever binds roles needs none of others
		}
		groups := slices.DeleteFunc(slices.Clone(t.Groups.Values), func(g string) bool { return g != "*" && (g != q.Group || q.Path != "") })
		switch {
		case len(groups) > 0:
			grantors = append(grantors, Grantor{t.Name, ByGroups, groups, t.Groups.Source.String()})
		case q.Group == policy.ViewsGroup && l.views[q.Resource] == t.Name:
			grantors = append(grantors, Grantor{Team: t.Name, By: ByViews, Values: []string{q.Resource}})
		}
	}
	return grantors
}

// asked returns the patterns of namespaces in which a binding can grant what a question asks.
func asked(patterns []string, q *Question) (found []string) {
	for _, p := range patterns {
		switch {
		case p == "*", q.Path == "" && q.AnyNamespace, q.Path == "" && q.Namespace != "" && namespaceGlobs.contains(p, q.Namespace):
			found = append(found, p)
		}
	}
	return found
}

// Without returns the values of a limit that include something that no value of another one includes. patterns is set if * stands
// for any characters; otherwise only "*" alone has a meaning.
func Without(values, other []string, patterns bool) (list []string) {
	for _, v := range values {
		if !slices.ContainsFunc(other, func(o string) bool {
			return o == v || o == "*" || patterns && v != "*" && strings.Contains(o, "*") && namespaceGlobs.contains(o, v)
		}) {
			list = append(list, v)
		}
	}
	return list
}
