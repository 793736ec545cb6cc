package rights

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"

	"stele.dev/stele/policy"

	"stele.dev/stele/policy/servercontrollers"
)

// Requests is the set of requests that an invariant is about. Its lists are read as those of a rule.
type Requests struct {
	Verbs     []string
	APIGroups []string
	// Resources are "widgets", "widgets/status", "*/status"; "*" includes all subresources.
	Resources []string
	// Namespaces are names and patterns, as in a binding. "*" alone includes cluster-scoped requests
	// and requests for all namespaces; "" is these alone. Empty is "*".
	Namespaces []string
	// ResourceNames limits the set to objects of these names; empty means all names.
	ResourceNames []string
}

// boxes returns the set as boxes that do not overlap.
func (q *Requests) boxes() []box {
	namespaces := q.Namespaces
	if len(namespaces) == 0 || slices.Contains(namespaces, "*") {
		namespaces = []string{"*"}
	}
	rule := &policy.Rule{Verbs: q.Verbs, APIGroups: q.APIGroups, Resources: q.Resources, ResourceNames: q.ResourceNames}
	var disjoint []box
	for _, b := range boxesOf(rule, namespaces) {
		todo := existing(b)
		for i := range disjoint {
			var rest []box
			for j := range todo {
				_, out := todo[j].split(&disjoint[i])
				rest = append(rest, out...)
			}
			todo = rest
		}
		disjoint = append(disjoint, todo...)
	}
	return disjoint
}

// existing returns the requests of a box that exist: those without a name, if the verb's requests have none.
func existing(b box) (boxes []box) {
	verbs := set{words: nameless}
	without, named := b, b
	without.sets[ofVerbs], without.sets[ofNames] = b.sets[ofVerbs].meet(verbs), b.sets[ofNames].meet(set{words: []string{""}})
	named.sets[ofVerbs] = b.sets[ofVerbs].minus(verbs)
	for _, x := range []box{without, named} {
		if !x.sets[ofVerbs].empty() && !x.sets[ofNames].empty() {
			boxes = append(boxes, x)
		}
	}
	return boxes
}

// Violation is a set of requests that are decided otherwise than an invariant says.
type Violation struct {
	Subject policy.Subject
	// Scope is the set, all of which is decided alike.
	Scope Scope
	// Request is one of these requests, by the subject.
	Request policy.Request
	// When says on which conditions the policy allows the requests: "" if it always does, or never.
	When string
	// By are the bindings that allow the requests, or the denies that refuse them, with the rules of
	// roles; empty if nothing grants them.
	By []Ground
}

// Answer says whether an invariant holds.
type Answer struct {
	// Violations has at most one of each subject; empty if the invariant holds.
	Violations []Violation
	// Outsiders are the authorizers of the chain that could decide otherwise, for example webhooks.
	// What they say is not known: an invariant that holds may be broken by them.
	Outsiders []string
}

// Only decides whether nobody but the subjects may make any of the requests, conditionally or not.
// Each other subject of the policy is decided by itself, together with the groups that it is certainly
// in: as a user's rights are the union of those of the user's groups, this decides for all users.
// The members of a listed group are listed with it. system:masters is left out: it may do everything
// that no deny refuses. The error is [ErrIntricate], or the context's.
func (r *Rights) Only(ctx context.Context, subjects []policy.Subject, q *Requests) (*Answer, error) {
	listed := func(s policy.Subject) bool {
		return s.Group == policy.MastersGroup || slices.Contains(subjects, s) ||
			slices.ContainsFunc(Implied(s), func(g policy.Subject) bool { return slices.Contains(subjects, g) })
	}
	answer := &Answer{Outsiders: r.outside(func(name string) bool { return r.mayAllow(name) })}
	budget := maxPieces
	for _, s := range sortedSubjects(maps.Keys(r.claims)) {
		if listed(s) {
			continue
		}
		// Rights of a group that the subject is certainly in are violations of the group.
		own := func(claims []*claim) bool {
			return slices.ContainsFunc(claims, func(c *claim) bool { return c.subject == s && !c.denies })
		}
		if slices.ContainsFunc(Implied(s), listed) {
			continue
		}
		err := r.violation(ctx, answer, s, q, &budget, func(claims []*claim) (bool, string, []Ground) {
			v := r.verdict(s, claims)
			return own(claims) && !v.never(), v.text(), r.claimed(claims, false)
		})
		if err != nil {
			return nil, err
		}
	}
	return answer, nil
}

// Never decides whether nobody may make any of the requests. It is [Rights.Only] with no subjects.
func (r *Rights) Never(ctx context.Context, q *Requests) (*Answer, error) {
	return r.Only(ctx, nil, q)
}

// Always decides whether each of the subjects may make all of the requests, without a condition that
// could refuse one. A subject has the groups that it is certainly in; the server's own controllers are
// members of system:masters, as they are at run time. Denies of other groups, which a user may happen
// to be in, are not counted. The error is [ErrIntricate], or the context's.
func (r *Rights) Always(ctx context.Context, subjects []policy.Subject, q *Requests) (*Answer, error) {
	first := len(r.chain)
	for i, name := range r.chain {
		if name == policy.RBACAuthorizer || name == policy.MastersAuthorizer {
			first = min(first, i)
		}
	}
	answer := &Answer{Outsiders: r.outside(func(name string) bool { return r.mayDeny(name) && slices.Index(r.chain, name) < first })}
	budget := maxPieces
	for _, s := range subjects {
		as, master := s, s.Group == policy.MastersGroup || servercontrollers.Is(s.User)
		if master {
			as = policy.Subject{Group: policy.MastersGroup}
		}
		err := r.violation(ctx, answer, s, q, &budget, func(claims []*claim) (bool, string, []Ground) {
			v := r.verdict(as, claims)
			denies := !master && len(grounds(claims)) == 0
			by := r.claimed(claims, true)
			if denies {
				by = nil // nothing grants it
			} else if len(by) == 0 {
				by = r.claimed(claims, false) // which have conditions
			}
			return !v.always(), v.text(), by
		})
		if err != nil {
			return nil, err
		}
	}
	return answer, nil
}

// violation adds the first piece of the requests for which decide returns true.
func (r *Rights) violation(ctx context.Context, a *Answer, s policy.Subject, q *Requests, budget *int, decide func([]*claim) (bool, string, []Ground)) error {
	claims := r.all(s)
	if servercontrollers.Is(s.User) {
		claims = append(slices.Clip(claims), r.claims[policy.Subject{Group: policy.MastersGroup}]...)
	}
	p := newPartition(covering{claims})
	p.left = *budget
	var found *Violation
	boxes := q.boxes()
	for i := range boxes {
		err := p.pieces(ctx, &boxes[i], func(b *box, by *covering) {
			if found != nil {
				return
			}
			if is, when, grounds := decide(by[0]); is {
				found = &Violation{Subject: s, Scope: b.scope([]string{b.where.in}), Request: b.sample(), When: when, By: grounds}
				found.Request.User, found.Request.Groups = member(s)
			}
		})
		if err != nil {
			return err
		}
	}
	if *budget = p.left; found != nil {
		a.Violations = append(a.Violations, *found)
	}
	return nil
}

// claimed returns the grounds of grants, or of denies, each followed by the rule of its role.
func (r *Rights) claimed(claims []*claim, denies bool) (list []Ground) {
	for _, c := range claims {
		if c.denies != denies {
			continue
		}
		if !slices.Contains(list, c.ground) {
			list = append(list, c.ground)
		}
		if rule := (Ground{c.rule.ID, c.rule.Source.String()}); !denies && !slices.Contains(list, rule) {
			list = append(list, rule)
		}
	}
	return list
}

// outside returns the authorizers of the chain that are outside of the policy, and wanted.
func (r *Rights) outside(wanted func(string) bool) (names []string) {
	for _, name := range r.chain {
		if !policy.BuiltinAuthorizer(name) && wanted(name) {
			names = append(names, name)
		}
	}
	return names
}

// member returns a user who is a subject, and the groups that the user is certainly in.
func member(s policy.Subject) (user string, groups []string) {
	if user = s.User; s.Group != "" {
		user, groups = "somebody", []string{s.Group}
	}
	for _, g := range Implied(s) {
		groups = append(groups, g.Group)
	}
	if servercontrollers.Is(s.User) {
		groups = append(groups, policy.MastersGroup)
	}
	return user, groups
}

func sortedSubjects(all func(func(policy.Subject) bool)) []policy.Subject {
	return slices.SortedFunc(all, func(a, b policy.Subject) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.User+a.Group, b.User+b.Group))
	})
}

// Words for samples of sets that lack only some words.
var (
	someVerbs     = []string{"get", "list", "update", "delete"}
	someGroups    = []string{"", "example.com"}
	someResources = []string{"configmaps", "examples"}
	someNames     = []string{"example"}
)

// sample returns a request of the box.
func (b *box) sample() policy.Request {
	r := policy.Request{Verb: b.sets[ofVerbs].sample(someVerbs)}
	if b.path {
		r.Path = b.where.sample(containsPath)
		return r
	}
	r.IsResource, r.Group, r.Resource = true, b.sets[ofGroups].sample(someGroups), b.sets[ofResources].sample(someResources)
	r.Subresource, r.Namespace = b.sets[ofSubresources].sample([]string{""}), b.where.sample(containsGlob)
	if names := b.sets[ofNames]; !slices.Contains(nameless, r.Verb) || !names.has("") {
		r.Name = names.sample(someNames)
	}
	return r
}

// sample returns a word of the set, which is not empty: one of the preferred ones, if it has one.
func (s set) sample(preferred []string) string {
	for _, w := range preferred {
		if s.has(w) {
			return w
		}
	}
	if !s.but {
		return s.words[0]
	}
	w := "other"
	for !s.has(w) {
		w += "x"
	}
	return w
}

// sample returns a name of the region.
func (r region) sample(contains func(outer, inner string) bool) string {
	has := func(name string) bool {
		return contains(r.in, name) && !slices.ContainsFunc(r.but, func(b string) bool { return contains(b, name) })
	}
	if r.in == "*" && has("default") {
		return "default"
	}
	for _, star := range []string{"", "x", "default", "example", "other", "q7", "zz9"} {
		if name := strings.ReplaceAll(strings.ReplaceAll(r.in, "**", "*"), "*", star); name != outside && has(name) {
			return name
		}
	}
	if has(outside) {
		return outside
	}
	// A letter that no pattern has is matched by none of the others, see the comment of regions.
	return strings.ReplaceAll(r.in, "*", "\u03a9")
}
