package policy

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"stele.dev/stele/schemas/wording"
)

// Request is a request to be authorized.
type Request struct {
	User   string
	UID    string
	Groups []string
	Extra  map[string][]string
	Verb   string
	// IsResource reports whether the request is for a resource. If not, it is for Path.
	IsResource  bool
	Group       string
	Version     string // read by conditions only
	Resource    string
	Subresource string
	Namespace   string // "" if the resource is not namespaced, or for all namespaces
	Name        string
	Path        string // of a request that is not for a resource
	// Selectors are those of a list, watch or deletecollection; nil if there are none.
	Selectors *Selectors
}

// Decision is the answer to a request, with the rule or authorizer that gave it.
type Decision struct {
	Allowed bool
	// Denied is set if a deny refused the request. If neither Allowed nor Denied is set, nothing
	// granted the request.
	Denied bool
	// Authorizer is the name, in the chain, of the authorizer that decided.
	Authorizer string
	// Rule is the id of the binding or deny that decided, and Source its position. For an authorizer
	// outside of the policy, Rule is its name.
	Rule   string
	Source string
	// Reason explains the decision to the user.
	Reason string
	// Pending is what remains to be decided once the written object is known. Until then the request
	// is not allowed.
	Pending *Pending
	// Said holds the answers of authorizers outside of the policy, in the order they were asked.
	Said []Said
}

// By returns the answer of the authorizer outside of the policy that decided, or nil.
func (d *Decision) By() *Said {
	if i := slices.IndexFunc(d.Said, func(s Said) bool { return s.Authorizer == d.Authorizer }); i >= 0 {
		return &d.Said[i]
	}
	return nil
}

// MastersGroup is the group that may do everything, as in Kubernetes.
const MastersGroup = "system:masters"

var masters = &Decision{
	Allowed: true, Authorizer: MastersGroup, Rule: MastersGroup,
	Reason: "members of the group " + MastersGroup + " may do everything",
}

var noOpinion = &Decision{}

// RulesOf returns the rules granted to a user in a namespace: first those of the user's bindings,
// then those of each group, in the order of the policy. Grants with a condition are left out, see
// [Policy.Conditional]. The caller must not change the rules.
func (p *Policy) RulesOf(user string, groups []string, namespace string) []Rule {
	if slices.Contains(groups, MastersGroup) {
		return []Rule{
			{ID: MastersGroup, Verbs: []string{"*"}, APIGroups: []string{"*"}, Resources: []string{"*"}},
			{ID: MastersGroup, Verbs: []string{"*"}, NonResourceURLs: []string{"*"}},
		}
	}
	var rules []Rule
	granted := map[string]bool{} // lists each role once
	for i := range p.form.Bindings {
		b := &p.form.Bindings[i]
		if b.When != nil || !named(b.Subjects, user, groups) {
			continue
		}
		everywhere := b.Everywhere()
		if !everywhere && !b.In(namespace) {
			continue
		}
		for j := range p.form.Roles {
			role := &p.form.Roles[j]
			if role.Name != b.Role {
				continue
			}
			for _, r := range role.Rules {
				if len(r.NonResourceURLs) > 0 && !everywhere || granted[role.Name+" "+r.ID] {
					continue
				}
				granted[role.Name+" "+r.ID] = true
				rules = append(rules, r)
			}
		}
	}
	for i := range p.chain {
		if lists, can := p.chain[i].asked.(ruleLister); can {
			rules = append(rules, lists.RulesOf(user, groups, namespace)...)
		}
	}
	return rules
}

// ruleLister is an [Authorizer] that can list the rules it allows.
type ruleLister interface {
	RulesOf(user string, groups []string, namespace string) []Rule
}

// Conditional describes the grants of a user that have a condition, and the user's denies. A list of
// rules cannot contain them.
func (p *Policy) Conditional(user string, groups []string) (list []string) {
	if !slices.Contains(groups, MastersGroup) {
		for i := range p.form.Bindings {
			if b := &p.form.Bindings[i]; b.When != nil && named(b.Subjects, user, groups) {
				list = append(list, fmt.Sprintf("%s%s grants role %q only when %s", b.ID, wording.At(b.Source.String()), b.Role, b.When.Text))
			}
		}
	}
	for i := range p.form.Denies {
		if d := &p.form.Denies[i]; named(d.Subjects, user, groups) {
			list = append(list, fmt.Sprintf("%s%s denies some of it", d.ID, wording.At(d.Source.String())))
		}
	}
	for i := range p.chain {
		l := &p.chain[i]
		if _, can := l.asked.(ruleLister); l.asked != nil && !can {
			list = append(list, l.name+" is asked as well, and cannot list what it allows or denies")
		}
	}
	return list
}

// named reports whether subjects contain a user or one of the groups.
func named(subjects []Subject, user string, groups []string) bool {
	return slices.ContainsFunc(subjects, func(s Subject) bool {
		return s.User != "" && s.User == user || s.Group != "" && slices.Contains(groups, s.Group)
	})
}

// access indexes grants and denies by subject and resource, so that a decision does not get slower
// with roles for other resources.
type access struct {
	subjects
	denies subjects // their rules refuse requests
}

// subjects indexes grants by user and by group.
type subjects struct {
	users, groups map[string]*grants
}

// decide returns the decision of the first grant that matches the request and holds, or nil. It adds
// grants whose condition needs the object to pending.
func (s *subjects) decide(r *Request, pending *[]*grant) *Decision {
	if d := s.users[r.User].decide(r, pending); d != nil {
		return d
	}
	for _, g := range r.Groups {
		if d := s.groups[g].decide(r, pending); d != nil {
			return d
		}
	}
	return nil
}

// grantsOf returns the grants of a subject, and creates them if needed.
func (s *subjects) grantsOf(x Subject) *grants {
	by, name := s.users, x.User
	if x.Group != "" {
		by, name = s.groups, x.Group
	}
	if by[name] == nil {
		by[name] = &grants{byResource: map[resourceKey]*placed{}}
	}
	return by[name]
}

func newSubjects() subjects {
	return subjects{users: map[string]*grants{}, groups: map[string]*grants{}}
}

func newDenies(denies []Deny) (*subjects, error) {
	s := newSubjects()
	for i := range denies {
		d := &denies[i]
		unless, err := newCondition(d.Unless)
		if err != nil {
			return nil, fmt.Errorf("policy: %s: %w", d.ID, err)
		}
		decision := &Decision{Denied: true, Authorizer: "deny", Rule: d.ID, Source: d.Source.String(), Reason: d.Reason + wording.At(d.Source.String())}
		for _, x := range d.Subjects {
			for j := range d.Rules {
				s.grantsOf(x).add(&d.Rules[j], []string{"*"}, decision, unless)
			}
		}
	}
	return &s, nil
}

// DenyIndex decides requests by denies only.
type DenyIndex struct{ subjects *subjects }

// IndexDenies returns the index of denies.
func IndexDenies(denies []Deny) (*DenyIndex, error) {
	s, err := newDenies(denies)
	return &DenyIndex{s}, err
}

// Decide reports whether a request is denied, and whether that depends on the object. An exception that holds whatever the object is does not
// depend on it.
func (x *DenyIndex) Decide(r *Request) (denied, depends bool) {
	var pending []*grant
	d := x.subjects.decide(r, &pending)
	return d != nil, slices.ContainsFunc(pending, func(g *grant) bool { return !g.condition.holds(r) })
}

type grants struct {
	byResource map[resourceKey]*placed
	paths      []*grant
	// These say which wildcards exist in rules, so that lookups of others are skipped.
	anyGroup, anyResource, anySubresource bool
}

// resourceKey is a resource as rules name it: "widgets", "widgets/status", "*", "*/status". The
// group "*" is any group.
type resourceKey struct{ group, resource string }

// placed holds the grants for one resource, indexed by namespace and object name.
type placed struct {
	grants map[place][]*grant
	heads  []int // lengths of the literal prefixes of the places, ascending
	named  bool  // at least one place has an object name
	// conditional is set if a grant has a condition, or depends on more than namespace and name.
	conditional bool
}

// place is the part of a namespace pattern before its first "*", and one of the rule's resource
// names, if it has any.
type place struct {
	head, name string
	named      bool
}

func (p *placed) add(x *grant, names []string) {
	p.conditional = p.conditional || x.condition != nil
	for _, pattern := range x.namespaces {
		head, _, _ := strings.Cut(pattern, "*")
		if i, found := slices.BinarySearch(p.heads, len(head)); !found {
			p.heads = slices.Insert(p.heads, i, len(head))
		}
		if len(names) == 0 {
			p.put(x, place{head: head})
		}
		for _, name := range names {
			p.put(x, place{head, name, true})
			p.named = true
		}
	}
}

func (p *placed) put(x *grant, at place) {
	if in := p.grants[at]; len(in) == 0 || in[len(in)-1] != x { // two patterns may have the same prefix
		p.grants[at] = append(in, x)
	}
}

// firstDecision returns the decision of the first grant that holds for a request, or nil. Grants for more
// namespaces come first. The receiver may be nil.
func (p *placed) firstDecision(r *Request, pending *[]*grant) *Decision {
	if p == nil {
		return nil
	}
	for _, n := range p.heads {
		if n > len(r.Namespace) {
			break
		}
		head := r.Namespace[:n]
		if d := firstGrant(p.grants[place{head: head}], r, pending); d != nil {
			return d
		}
		if p.named {
			if d := firstGrant(p.grants[place{head, r.Name, true}], r, pending); d != nil {
				return d
			}
		}
	}
	return nil
}

// grant is one rule of a role under one binding, or one rule of a deny.
type grant struct {
	condition  *condition // a grant holds if the condition is true, a deny if it is false; nil: always
	verbs      verbSet
	urls       []string
	namespaces []string
	everywhere bool
	decision   *Decision
}

func newAccess(f *Form) (*access, error) {
	denies, err := newDenies(f.Denies)
	if err != nil {
		return nil, err
	}
	a := &access{subjects: newSubjects(), denies: *denies}
	roles := IndexBy(f.Roles, func(r *Role) string { return r.Name })
	for i := range f.Bindings {
		b := &f.Bindings[i]
		role := roles[b.Role]
		if role == nil {
			return nil, fmt.Errorf("policy: binding %s names the role %q, which does not exist", b.ID, b.Role)
		}
		when, err := newCondition(b.When)
		if err != nil {
			return nil, fmt.Errorf("policy: %s: %w", b.ID, err)
		}
		source := b.Source.String()
		reason := fmt.Sprintf("RBAC: allowed by binding %q%s of role %q, rule ", b.ID, wording.At(source), strings.TrimPrefix(role.Name, joinedName))
		for j := range role.Rules {
			rule := &role.Rules[j]
			d := &Decision{
				Allowed: true, Authorizer: "rbac", Rule: b.ID, Source: source, Reason: reason + strconv.Quote(rule.ID) + wording.At(rule.Source.String()),
			}
			for _, s := range b.Subjects {
				a.grantsOf(s).add(rule, b.Namespaces, d, when)
			}
		}
	}
	return a, nil
}

func (g *grants) add(rule *Rule, namespaces []string, decision *Decision, c *condition) {
	x := &grant{
		condition: c,
		verbs:     newVerbSet(rule.Verbs), urls: rule.NonResourceURLs,
		namespaces: namespaces, everywhere: slices.Contains(namespaces, "*"), decision: decision,
	}
	if len(x.urls) > 0 {
		g.paths = append(g.paths, x)
	}
	for _, group := range rule.APIGroups {
		for _, resource := range rule.Resources {
			k := resourceKey{group, resource}
			if g.byResource[k] == nil {
				g.byResource[k] = &placed{grants: map[place][]*grant{}}
			}
			g.byResource[k].add(x, rule.ResourceNames)
			g.anyGroup = g.anyGroup || group == "*"
			g.anyResource = g.anyResource || resource == "*"
			g.anySubresource = g.anySubresource || strings.HasPrefix(resource, "*/")
		}
	}
}

// decide returns the decision of the first grant that holds, or nil. The receiver may be nil.
func (g *grants) decide(r *Request, pending *[]*grant) *Decision {
	if g == nil {
		return nil
	}
	if !r.IsResource {
		for _, x := range g.paths {
			if x.everywhere && x.verbs.has(r.Verb) && slices.ContainsFunc(x.urls, func(u string) bool { return pathMatches(u, r.Path) }) && x.holds(r, pending) {
				return x.decision
			}
		}
		return nil
	}
	if d := g.inGroup(r.Group, r, pending); d != nil || !g.anyGroup {
		return d
	}
	return g.inGroup("*", r, pending)
}

func (g *grants) inGroup(group string, r *Request, pending *[]*grant) *Decision {
	resource := r.Resource
	if r.Subresource != "" {
		resource += "/" + r.Subresource
	}
	if d := g.byResource[resourceKey{group, resource}].firstDecision(r, pending); d != nil {
		return d
	}
	if g.anyResource {
		if d := g.byResource[resourceKey{group, "*"}].firstDecision(r, pending); d != nil {
			return d
		}
	}
	if g.anySubresource && r.Subresource != "" {
		return g.byResource[resourceKey{group, "*/" + r.Subresource}].firstDecision(r, pending)
	}
	return nil
}

func firstGrant(grants []*grant, r *Request, pending *[]*grant) *Decision {
	for _, x := range grants {
		if x.verbs.has(r.Verb) && (x.everywhere || inNamespace(x.namespaces, r.Namespace)) && x.holds(r, pending) {
			return x.decision
		}
	}
	return nil
}

// holds reports whether a grant or deny that matches the request holds. If that depends on the
// object, holds adds it to pending and returns false.
func (x *grant) holds(r *Request, pending *[]*grant) bool {
	switch {
	case x.condition == nil:
		return true
	case x.condition.Object:
		*pending = append(*pending, x)
		return false
	}
	return x.condition.holds(r) != x.decision.Denied
}

// inNamespace reports whether a pattern matches a namespace. No pattern matches "", which
// stands for cluster-scoped requests and requests for all namespaces.
func inNamespace(patterns []string, namespace string) bool {
	return namespace != "" && slices.ContainsFunc(patterns, func(g string) bool { return GlobMatches(g, namespace) })
}

// GlobMatches reports whether a name matches a pattern. A "*" stands for any characters.
func GlobMatches(pattern, name string) bool {
	head, tail, wild := strings.Cut(pattern, "*")
	if !wild {
		return pattern == name
	}
	if !strings.HasPrefix(name, head) {
		return false
	}
	name = name[len(head):]
	for {
		middle, rest, more := strings.Cut(tail, "*")
		if !more {
			return strings.HasSuffix(name, tail)
		}
		i := strings.Index(name, middle)
		if i < 0 {
			return false
		}
		name, tail = name[i+len(middle):], rest
	}
}

// pathMatches compares paths as Kubernetes does: "*" matches every path, and trailing stars match
// any suffix.
func pathMatches(pattern, path string) bool {
	if pattern == "*" || pattern == path {
		return true
	}
	return strings.HasSuffix(pattern, "*") && strings.HasPrefix(path, strings.TrimRight(pattern, "*"))
}

// verbSet is a set of verbs: a bit for each well-known verb, and a list of the others.
type verbSet struct {
	known uint16
	other []string
}

var knownVerbs = map[string]uint16{
	"get": 1 << 0, "list": 1 << 1, "watch": 1 << 2, "create": 1 << 3, "update": 1 << 4,
	"patch": 1 << 5, "delete": 1 << 6, "deletecollection": 1 << 7,
}

const everyVerb = 1 << 15

func newVerbSet(verbs []string) (s verbSet) {
	for _, v := range verbs {
		switch bit := knownVerbs[v]; {
		case v == "*":
			s.known |= everyVerb
		case bit != 0:
			s.known |= bit
		default:
			s.other = append(s.other, v)
		}
	}
	return s
}

func (s *verbSet) has(verb string) bool {
	if s.known&everyVerb != 0 {
		return true
	}
	if bit := knownVerbs[verb]; bit != 0 {
		return s.known&bit != 0
	}
	return slices.Contains(s.other, verb)
}
