// Package rights computes exact sets of requests: who can do something, and who gained or lost what
// between two policies. It does not try single requests.
package rights

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"stele.dev/stele/policy"
)

// Ground is the binding or deny that causes a right.
type Ground struct {
	ID     string `json:"id"`
	Source string `json:"source,omitempty"`
}

// claim is a box that a rule grants or denies to a subject.
type claim struct {
	box
	subject   policy.Subject
	denies    bool
	condition string // text of when or unless; "" if there is none
	ground    Ground
	rule      *policy.Rule
	role      string
	reason    string // of a deny
}

// key returns a key: claims with equal keys say the same, whatever their position.
func (c *claim) key() string {
	return fmt.Sprintf("%t%q%s", c.denies, c.condition, c.box.key())
}

// Rights are the grants and denies of each subject. They never change and are safe for concurrent
// use.
type Rights struct {
	access *policy.Access
	chain  []string
	inside []string // the built-in authorizers of the chain, each once
	claims map[policy.Subject][]*claim
	left   int // remaining claims of maxClaims
}

// maxClaims limits the claims of one policy. A binding has a claim for each rule, subject and
// namespace, so that a few lines of text could need more memory than exists.
const maxClaims = 1 << 19

// New returns the rights of an access. The error says what is inconsistent, or is [ErrIntricate].
func New(a *policy.Access) (*Rights, error) {
	r := &Rights{access: a, chain: policy.Chain(a.Authorizers), claims: map[policy.Subject][]*claim{}, left: maxClaims}
	for _, name := range r.chain {
		if policy.BuiltinAuthorizer(name) && !slices.Contains(r.inside, name) {
			r.inside = append(r.inside, name)
		}
	}
	roles := map[string]*policy.Role{}
	for i := range a.Roles {
		roles[a.Roles[i].Name] = &a.Roles[i]
	}
	for i := range a.Denies {
		d := &a.Denies[i]
		c := claim{denies: true, ground: Ground{d.ID, d.Source.String()}, reason: d.Reason}
		if d.Unless != nil {
			c.condition = d.Unless.Text
		}
		if err := r.add(c, d.Subjects, d.Rules, []string{"*"}); err != nil {
			return nil, err
		}
	}
	for i := range a.Bindings {
		b := &a.Bindings[i]
		role := roles[b.Role]
		if role == nil {
			return nil, fmt.Errorf("binding %s names the role %q, which does not exist", b.ID, b.Role)
		}
		c := claim{ground: Ground{b.ID, b.Source.String()}, role: role.Name}
		if b.When != nil {
			c.condition = b.When.Text
		}
		if err := r.add(c, b.Subjects, role.Rules, b.Namespaces); err != nil {
			return nil, err
		}
	}
	return r, nil
}

func (r *Rights) add(c claim, subjects []policy.Subject, rules []policy.Rule, namespaces []string) error {
	for i := range rules {
		c.rule = &rules[i]
		boxes := len(c.rule.NonResourceURLs) + len(resourceBoxes(c.rule.Resources))*len(namespaces)
		if r.left -= boxes * len(subjects); r.left < 0 {
			return ErrIntricate
		}
		for _, b := range boxesOf(c.rule, namespaces) {
			c.box = b
			for _, s := range subjects {
				one := c
				one.subject = s
				r.claims[s] = append(r.claims[s], &one)
			}
		}
	}
	return nil
}

// boxesOf returns the requests of a rule.
func boxesOf(rule *policy.Rule, namespaces []string) (boxes []box) {
	everywhere := slices.Contains(namespaces, "*")
	if everywhere {
		for _, path := range rule.NonResourceURLs {
			b := box{path: true, where: region{in: path}}
			if strings.HasSuffix(path, "*") {
				b.where.in = strings.TrimRight(path, "*") + "*"
			}
			b.sets = [...]set{setOf(rule.Verbs), anything, anything, anything, anything}
			boxes = append(boxes, b)
		}
		namespaces = []string{"*"}
	}
	names := anything
	if len(rule.ResourceNames) > 0 {
		names = set{words: slices.Compact(slices.Sorted(slices.Values(rule.ResourceNames)))}
	}
	if len(rule.APIGroups) == 0 {
		return boxes
	}
	for _, x := range resourceBoxes(rule.Resources) {
		for _, n := range namespaces {
			if n != "*" {
				n = anyNamed(n)
			}
			boxes = append(boxes, box{where: region{in: n}, sets: [...]set{setOf(rule.Verbs), setOf(rule.APIGroups), x[0], x[1], names}})
		}
	}
	return boxes
}

// resourceBoxes returns resources and subresources, as pairs of sets.
func resourceBoxes(resources []string) (pairs [][2]set) {
	if slices.Contains(resources, "*") {
		return [][2]set{{anything, anything}}
	}
	bases := map[string][]string{} // by subresource
	for _, x := range resources {
		base, sub, _ := strings.Cut(x, "/")
		bases[sub] = append(bases[sub], base)
	}
	for _, sub := range slices.Sorted(maps.Keys(bases)) {
		pairs = append(pairs, [2]set{setOf(bases[sub]), {words: []string{sub}}})
	}
	return pairs
}

// all returns the claims of a subject and of its certain groups.
func (r *Rights) all(s policy.Subject) []*claim {
	list := slices.Clip(r.claims[s])
	for _, g := range Implied(s) {
		list = append(list, r.claims[g]...)
	}
	return list
}

// verdict is the decision for a subject on requests that claims cover: the conditional steps of the
// chain, and the decision if none of them applies.
type verdict struct {
	steps   []step
	allowed bool
}

// step is a list of conditions, one of which is enough: to deny (unless it holds) or to allow (if it
// holds).
type step struct {
	denies bool
	texts  []string // sorted
}

func (v *verdict) never() bool { return !v.allowed && len(v.steps) == 0 }

func (v *verdict) always() bool { return v.allowed && len(v.steps) == 0 }

// text describes the conditions; "" if there are none.
func (v *verdict) text() string {
	var parts []string
	for _, s := range v.steps {
		word := "when "
		if s.denies {
			word = "only if "
		}
		parts = append(parts, word+strings.Join(s.texts, map[bool]string{true: " and ", false: " or "}[s.denies]))
	}
	if v.allowed && len(parts) > 0 && !v.steps[len(v.steps)-1].denies {
		parts = append(parts, "or else always")
	}
	return strings.Join(parts, ", ")
}

// includes reports whether the texts of the conditions show that v allows everything that w allows.
func (v *verdict) includes(w *verdict) bool {
	if v.always() || w.never() {
		return true
	}
	if v.allowed != w.allowed || len(v.steps) != 1 || len(w.steps) != 1 || v.steps[0].denies != w.steps[0].denies {
		return false
	}
	more, fewer := v.steps[0].texts, w.steps[0].texts
	if v.steps[0].denies { // each of which may refuse
		more, fewer = fewer, more
	}
	return !slices.ContainsFunc(fewer, func(text string) bool { return !slices.Contains(more, text) })
}

func (v *verdict) key() string { return fmt.Sprintf("%t%v", v.allowed, v.steps) }

// verdict walks the chain without the outside authorizers.
func (r *Rights) verdict(s policy.Subject, covering []*claim) (v verdict) {
	for _, name := range r.inside {
		if name == policy.MastersAuthorizer {
			if v.allowed = s.Group == policy.MastersGroup; v.allowed {
				break
			}
			continue
		}
		x := step{denies: name == policy.DenyAuthorizer}
		decided := false
		for _, c := range covering {
			if c.denies != x.denies {
				continue
			}
			if decided = c.condition == ""; decided {
				break
			}
			if i, found := slices.BinarySearch(x.texts, c.condition); !found {
				x.texts = slices.Insert(x.texts, i, c.condition)
			}
		}
		if decided {
			v.allowed = !x.denies
			break
		}
		if len(x.texts) > 0 {
			v.steps = append(v.steps, x)
		}
	}
	// Steps with the same result as the end say nothing.
	for len(v.steps) > 0 && v.steps[len(v.steps)-1].denies != v.allowed {
		v.steps = v.steps[:len(v.steps)-1]
	}
	return v
}

// deniedAlways is the verdict of a deny without an exception.
const deniedAlways = "always"

// denied returns the verdict of the denies alone: "" if there are none, deniedAlways, or the exceptions, all of which must
// hold.
func (r *Rights) denied(covering []*claim) string {
	if !slices.Contains(r.inside, policy.DenyAuthorizer) {
		return ""
	}
	var texts []string
	for _, c := range covering {
		switch {
		case c.denies && c.condition == "":
			return deniedAlways
		case c.denies:
			texts = append(texts, c.condition)
		}
	}
	slices.Sort(texts)
	if texts = slices.Compact(texts); len(texts) == 0 {
		return ""
	}
	return "unless " + strings.Join(texts, " and ")
}

// Chain returns the authorizers, in the order in which they are asked. The caller must not change
// it.
func (r *Rights) Chain() []string { return r.chain }
