package policy

import (
	"slices"
)

// ByName reports whether the decision of [Policy.Authorize] on a request for a resource may depend
// on the object's name. If not, one decision serves for all names.
func (p *Policy) ByName(r *Request) bool {
	for i := range p.chain {
		switch l := &p.chain[i]; {
		case l.asked != nil && l.concerns(r) && l.asked.ByName(r), l.name == DenyAuthorizer && p.access.denies.byName(r), l.name == RBACAuthorizer && (p.access.byName(r) || p.more != nil && p.more.byName(r)):
			return true
		case l.name == MastersAuthorizer && slices.Contains(r.Groups, MastersGroup):
			return false
		}
	}
	return false
}

func (s *subjects) byName(r *Request) bool {
	return s.users[r.User].byName(r) || slices.ContainsFunc(r.Groups, func(g string) bool { return s.groups[g].byName(r) })
}

// byName reports whether a grant for the resource has names, for any verb and namespace. The
// receiver may be nil.
func (g *grants) byName(r *Request) bool {
	if g == nil {
		return false
	}
	resource := r.Resource
	if r.Subresource != "" {
		resource += "/" + r.Subresource
	}
	for _, k := range [...]resourceKey{{r.Group, resource}, {r.Group, "*"}, {"*", resource}, {"*", "*"}, {r.Group, "*/" + r.Subresource}, {"*", "*/" + r.Subresource}} {
		if p := g.byResource[k]; p != nil && (p.named || p.conditional) {
			return true
		}
	}
	return false
}
