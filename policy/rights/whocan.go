package rights

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"stele.dev/stele/policy"
)

// Question asks who can make some requests.
type Question struct {
	Verb string
	// Path is the path asked about; if "", the question is about the resource.
	Path        string
	Group       string
	Resource    string
	Subresource string
	// Name is the object's name. If it is empty, the question is about any object, except for verbs
	// whose requests have no name.
	Name string
	// Namespace is "" for cluster-scoped requests and requests for all namespaces.
	Namespace string
	// AnyNamespace asks about any namespace, and about cluster-scoped requests.
	AnyNamespace bool
}

// nameless are the verbs of requests without an object name.
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

// Holder is a subject that one rule allows the requests.
type Holder struct {
	Subject policy.Subject `json:"subject"`
	// Binding is the binding that grants them, or system:masters.
	Binding Ground `json:"binding"`
	Role    string `json:"role,omitempty"`
	Rule    Ground `json:"rule,omitzero"`
	// Namespaces are those of the binding that the question asks about: names and patterns; "*" is
	// everywhere.
	Namespaces []string `json:"namespaces,omitempty"`
	// Names are the objects' names; empty for all names.
	Names []string `json:"names,omitempty"`
	// When is the condition of the grant.
	When string `json:"when,omitempty"`
	// Denied is set if a deny refuses everything that is granted, for every object.
	Denied bool `json:"denied,omitempty"`
	// Denies are the denies that apply to the subject or to a certain group of it.
	Denies []Objection `json:"denies,omitempty"`

	boxes []box
}

// Objection is a deny, and what it refuses.
type Objection struct {
	Ground `json:",inline"`
	Reason string `json:"reason,omitempty"`
	// Subjects are the subjects of the deny, if not given elsewhere.
	Subjects []policy.Subject `json:"subjects,omitempty"`
	// Whole is set if the deny covers everything asked or granted; otherwise it covers some names.
	Whole bool `json:"whole,omitempty"`
	// Names are the objects' names that it covers; empty for all names.
	Names []string `json:"names,omitempty"`
	// Unless is its exception.
	Unless string `json:"unless,omitempty"`
}

// Outsider is an authorizer of the chain outside of the policy. Its decisions cannot be listed.
type Outsider struct {
	Authorizer string `json:"authorizer"`
	// MayAllow is set if it may allow subjects that are not listed.
	MayAllow bool `json:"mayAllow"`
	// MayDeny is set if it may refuse listed subjects, because it is asked before the policy allows
	// them.
	MayDeny bool `json:"mayDeny"`
	// FailurePolicy is the verdict if it cannot be asked, if the policy says so.
	FailurePolicy string `json:"failurePolicy,omitempty"`
}

// Holders is the answer to a [Question].
type Holders struct {
	Holders []Holder `json:"holders"`
	// Denies are all denies about the requests: a user may be granted something as a member of one
	// group, and denied it as a member of another.
	Denies []Objection `json:"denies,omitempty"`
	// Outsiders are the authorizers whose decisions are not listed.
	Outsiders []Outsider `json:"outsiders,omitempty"`
}

// askedBefore reports whether first is asked, and before second.
func (r *Rights) askedBefore(first, second string) bool {
	i, j := slices.Index(r.inside, first), slices.Index(r.inside, second)
	return i >= 0 && j >= 0 && i < j
}

// WhoCan returns everybody whom the policy allows the requests: system:masters first, then groups,
// users and service accounts, in the order of the policy's bindings.
func (r *Rights) WhoCan(q *Question) *Holders {
	asked := q.box()
	answer := &Holders{Holders: []Holder{}}
	masters := Holder{Subject: policy.Subject{Group: policy.MastersGroup}, Binding: Ground{ID: policy.MastersGroup}, Namespaces: []string{"*"}, boxes: []box{asked}}
	r.object(&masters, r.askedBefore(policy.DenyAuthorizer, policy.MastersAuthorizer))
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
	denied := r.askedBefore(policy.DenyAuthorizer, policy.RBACAuthorizer)
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

// object adds the denies that apply to a holder.
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

// objected adds a deny to a list, without duplicates.
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

// objections returns the denies about the requests, with their subjects.
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

// outsiders returns the outside authorizers that are asked about the requests.
func (r *Rights) outsiders(q *Question) (list []Outsider) {
	asked := &policy.Request{Verb: q.Verb, IsResource: q.Path == "", Group: q.Group, Resource: q.Resource, Subresource: q.Subresource, Namespace: q.Namespace, Name: q.Name, Path: q.Path}
	for i, name := range r.chain {
		if policy.BuiltinAuthorizer(name) {
			continue
		}
		o := Outsider{Authorizer: name, MayAllow: true}
		// An ABAC policy file can allow, but not deny.
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

// abacAuthorizer is the operator's ABAC policy file.
const abacAuthorizer = "abac"

// Keeping compares the holders of some rights with earlier rights. It must be used by one goroutine
// only.
type Keeping struct {
	is, was *Rights
	of      map[policy.Subject]*kept
}

// kept is what the comparison needs for one subject, made once.
type kept struct {
	*partition
	differing []box // where the rules differ; elsewhere the decisions are the same
}

// Against returns a comparison with earlier rights.
func (r *Rights) Against(was *Rights) *Keeping {
	return &Keeping{is: r, was: was, of: map[policy.Subject]*kept{}}
}

// Held reports whether under the earlier rights a holder could do all of it, by any rule: without a
// condition, or with the same one. The error is [ErrIntricate], or the context's.
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
