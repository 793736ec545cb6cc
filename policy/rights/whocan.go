package rights

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"stele.dev/stele/policy"
)

// Question is what somebody may be allowed to do.
type Question struct {
	Verb string
	// Path is asked about if it is not "", otherwise the resource.
	Path        string
	Group       string
	Resource    string
	Subresource string
	// Name of the object. Without one it is asked who may do it to any, except for verbs of
	// requests that have no name.
	Name string
	// Namespace is "" for what is in none, and for requests for all.
	Namespace string
	// AnyNamespace asks who may do it in one namespace or another, or outside of them.
	AnyNamespace bool
}

// nameless are the verbs of requests that never name an object.
var nameless = []string{"create", "deletecollection"}

func (q *Question) box() box {
	one := func(word string) set { return set{words: []string{word}} }
	if q.Path != "" {
		return box{path: true, sets: [...]set{one(q.Verb), anything, anything, anything, anything}, where: region{in: q.Path}}
	}
	b := box{sets: [...]set{one(q.Verb), one(q.Group), one(q.Resource), one(q.Subresource), one(q.Name)}, where: region{in: q.Namespace}}
	if q.Name == "" && !slices.Contains(nameless, q.Verb) {
		b.sets[ofNames] = anything
	}
	if q.AnyNamespace {
		b.where.in = "*"
	}
	return b
}

// Holder is a subject that the policy lets do what is asked about, by one rule.
type Holder struct {
	Subject policy.Subject `json:"subject"`
	// Binding that grants it; system:masters of who may do everything.
	Binding Ground `json:"binding"`
	Role    string `json:"role,omitempty"`
	Rule    Ground `json:"rule,omitzero"`
	// Namespaces of the binding, as far as they are asked about: names, and patterns of them; "*" is
	// everywhere.
	Namespaces []string `json:"namespaces,omitempty"`
	// Names of the objects, if it is not any.
	Names []string `json:"names,omitempty"`
	// When is the condition of the grant.
	When string `json:"when,omitempty"`
	// Denied: what is granted is denied, all of it and whatever the object.
	Denied bool `json:"denied,omitempty"`
	// Denies that meet the subject, or a group that it is in for certain.
	Denies []Objection `json:"denies,omitempty"`

	boxes []box
}

// Objection is a deny, and what it takes away.
type Objection struct {
	Ground `json:",inline"`
	Reason string `json:"reason,omitempty"`
	// Subjects that it meets, where that is not said elsewhere.
	Subjects []policy.Subject `json:"subjects,omitempty"`
	// Whole: it is about all that is asked, or granted. If not, it is about some names.
	Whole bool `json:"whole,omitempty"`
	// Names of the objects that it is about, if not any.
	Names []string `json:"names,omitempty"`
	// Unless is its exception.
	Unless string `json:"unless,omitempty"`
}

// Outsider is an authorizer of the chain that is not in the policy: what it decides cannot be
// listed.
type Outsider struct {
	Authorizer string `json:"authorizer"`
	// MayAllow others than are listed.
	MayAllow bool `json:"mayAllow"`
	// MayDeny some that are listed: it is asked before the policy allows them.
	MayDeny bool `json:"mayDeny"`
	// FailurePolicy is what it comes to if it cannot be asked, where the policy says that.
	FailurePolicy string `json:"failurePolicy,omitempty"`
}

// Holders is the answer to a [Question].
type Holders struct {
	Holders []Holder `json:"holders"`
	// Denies that are about it, whomever they meet: who is a member of several groups may be
	// granted something by one and denied it by another.
	Denies []Objection `json:"denies,omitempty"`
	// Outsiders of whom the list does not know.
	Outsiders []Outsider `json:"outsiders,omitempty"`
}

// before tells whether one authorizer is asked, and before another one that is.
func (r *Rights) before(first, second string) bool {
	i, j := slices.Index(r.inside, first), slices.Index(r.inside, second)
	return i >= 0 && j >= 0 && i < j
}

// WhoCan lists everybody whom the policy lets do something: system:masters first, then groups, users
// and service accounts, in the order of the policy's bindings.
func (r *Rights) WhoCan(q *Question) *Holders {
	asked := q.box()
	answer := &Holders{Holders: []Holder{}}
	masters := Holder{Subject: policy.Subject{Group: policy.MastersGroup}, Binding: Ground{ID: policy.MastersGroup}, Namespaces: []string{"*"}, boxes: []box{asked}}
	r.object(&masters, r.before(policy.DenyAuthorizer, policy.MastersAuthorizer))
	answer.Holders = append(answer.Holders, masters)
	if slices.Contains(r.inside, policy.RBACAuthorizer) {
		answer.Holders = append(answer.Holders, r.granted(&asked)...)
	}
	if slices.Contains(r.inside, policy.DenyAuthorizer) {
		answer.Denies = r.objections(&asked)
	}
	answer.Outsiders = r.outsiders(q)
	return answer
}

func (r *Rights) granted(asked *box) (list []Holder) {
	denied := r.before(policy.DenyAuthorizer, policy.RBACAuthorizer)
	for subject, claims := range r.claims {
		at := map[[2]string]int{}
		var own []Holder
		for _, c := range claims {
			if c.denies {
				continue
			}
			inside, _ := asked.split(&c.box)
			if len(inside) == 0 {
				continue
			}
			k := [2]string{c.ground.ID, c.rule.ID}
			i, found := at[k]
			if !found {
				i, at[k] = len(own), len(own)
				own = append(own, Holder{Subject: subject, Binding: c.ground, Role: c.role, Rule: Ground{c.rule.ID, c.rule.Source.String()}, When: c.condition})
			}
			own[i].boxes = append(own[i].boxes, inside...)
			if !c.path {
				own[i].Namespaces = append(own[i].Namespaces, c.where.in)
			}
		}
		for i := range own {
			h := &own[i]
			h.boxes = joined(h.boxes)
			for _, b := range h.boxes {
				if names := b.sets[ofNames]; !names.but && asked.sets[ofNames].but {
					h.Names = append(h.Names, names.words...)
				}
			}
			h.Namespaces, h.Names = distinct(h.Namespaces), distinct(h.Names)
			r.object(h, denied)
		}
		list = append(list, own...)
	}
	order := map[string]int{}
	for i := range r.access.Bindings {
		order[r.access.Bindings[i].ID] = i
	}
	slices.SortFunc(list, func(a, b Holder) int {
		return cmp.Or(cmp.Compare(rank(a.Subject), rank(b.Subject)), cmp.Compare(a.Subject.User+a.Subject.Group, b.Subject.User+b.Subject.Group),
			cmp.Compare(order[a.Binding.ID], order[b.Binding.ID]), cmp.Compare(a.Rule.ID, b.Rule.ID))
	})
	return list
}

// rank orders subjects: groups, users, service accounts.
func rank(s policy.Subject) int {
	switch {
	case s.Group != "":
		return 0
	case strings.HasPrefix(s.User, serviceaccount.ServiceAccountUsernamePrefix):
		return 2
	}
	return 1
}

func distinct(words []string) []string {
	slices.Sort(words)
	return slices.Compact(words)
}

// object adds the denies that meet a holder.
func (r *Rights) object(h *Holder, denied bool) {
	if !denied {
		return
	}
	left := slices.Clone(h.boxes)
	for _, c := range r.all(h.Subject) {
		if !c.denies {
			continue
		}
		var rest []box
		whole, meets := true, false
		for i := range h.boxes {
			inside, out := h.boxes[i].split(&c.box)
			meets, whole = meets || len(inside) > 0, whole && len(out) == 0
		}
		if !meets {
			continue
		}
		h.Denies = objected(h.Denies, c, whole)
		if c.condition != "" {
			continue
		}
		for i := range left {
			_, out := left[i].split(&c.box)
			rest = append(rest, out...)
		}
		left = rest
	}
	h.Denied = len(left) == 0
}

// objected adds a deny to a list, which has each once.
func objected(list []Objection, c *claim, whole bool) []Objection {
	i := slices.IndexFunc(list, func(o Objection) bool { return o.ID == c.ground.ID })
	if i < 0 {
		i = len(list)
		list = append(list, Objection{Ground: c.ground, Reason: c.reason, Unless: c.condition})
	}
	o := &list[i]
	if o.Whole = o.Whole || whole; o.Whole {
		o.Names = nil
	} else if names := c.sets[ofNames]; !names.but {
		o.Names = distinct(append(o.Names, names.words...))
	}
	return list
}

// objections are the denies about what is asked, with those whom they meet.
func (r *Rights) objections(asked *box) (list []Objection) {
	for i := range r.access.Denies {
		d := &r.access.Denies[i]
		if len(d.Subjects) == 0 {
			continue
		}
		var of []Objection
		for _, c := range r.claims[d.Subjects[0]] {
			if !c.denies || c.ground.ID != d.ID {
				continue
			}
			if inside, rest := asked.split(&c.box); len(inside) > 0 {
				of = objected(of, c, len(rest) == 0)
			}
		}
		for _, o := range of {
			o.Subjects = d.Subjects
			list = append(list, o)
		}
	}
	return list
}

// outsiders are the authorizers of the chain that are asked about it, and that the policy is not by
// itself.
func (r *Rights) outsiders(q *Question) (list []Outsider) {
	asked := &policy.Request{Verb: q.Verb, IsResource: q.Path == "", Group: q.Group, Resource: q.Resource, Subresource: q.Subresource, Namespace: q.Namespace, Name: q.Name, Path: q.Path}
	for i, name := range r.chain {
		if policy.BuiltinAuthorizer(name) {
			continue
		}
		o := Outsider{Authorizer: name, MayAllow: true}
		// A policy file of ABAC allows, and denies nothing.
		o.MayDeny = name != abacAuthorizer && slices.ContainsFunc(r.chain[i+1:], func(later string) bool { return later == policy.RBACAuthorizer || later == policy.MastersAuthorizer })
		if plugin, is := strings.CutPrefix(name, policy.PluginPrefix); is {
			j := slices.IndexFunc(r.access.Plugins, func(p policy.Plugin) bool { return p.Name == plugin })
			if j < 0 {
				continue
			}
			p := &r.access.Plugins[j]
			if p.Shadow || !p.Match.Matches(asked) {
				continue
			}
			o.FailurePolicy = p.FailurePolicy
		}
		list = append(list, o)
	}
	return list
}

// abacAuthorizer is the operator's policy file.
const abacAuthorizer = "abac"

// Keeping tells what holders of some rights had under other ones. It belongs to one goroutine.
type Keeping struct {
	is, was *Rights
	of      map[policy.Subject]*kept
}

// kept is what a subject's holders are compared by, made once for all of them.
type kept struct {
	*partition
	differing []box // where rules differ: of all else the decisions are the same
}

// Against compares what there is now with what there was.
func (r *Rights) Against(was *Rights) *Keeping {
	return &Keeping{is: r, was: was, of: map[policy.Subject]*kept{}}
}

// Held tells whether under the other rights a holder of these could do all the same, by whatever
// rule: as a rule without a condition, or with the same one. Its error is [ErrIntricate], or the context's.
func (k *Keeping) Held(ctx context.Context, h *Holder) (bool, error) {
	p := k.of[h.Subject]
	if p == nil {
		both := covering{k.is.all(h.Subject), k.was.all(h.Subject)}
		p = &kept{newPartition(both), differing(both)}
		if !slices.Equal(k.is.inside, k.was.inside) {
			p.differing = everything
		}
		k.of[h.Subject] = p
	}
	p.left = maxPieces
	held := true
	for i := range h.boxes {
		if !slices.ContainsFunc(p.differing, func(d box) bool { return d.meets(&h.boxes[i]) }) {
			continue
		}
		err := p.pieces(ctx, &h.boxes[i], func(_ *box, by *covering) {
			is, was := k.is.verdict(h.Subject, by[0]), k.was.verdict(h.Subject, by[1])
			held = held && (is.never() || was.always() || is.key() == was.key())
		})
		if err != nil {
			return false, err
		}
	}
	return held, nil
}
