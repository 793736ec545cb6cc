package audits

import (
	"math/bits"
	"slices"
	"strings"

	"stele.dev/stele/policy"
)

// wildcard stands for all resources, groups or paths.
const wildcard = "*"

// index finds the first rule that matches a request. A set of rules is a bit for each. For every value of a verb, a resource
// and so on there is the set of the rules that admit it, so that a request needs few lookups, whatever the number of rules.
type index struct {
	rules int
	words int // of a set

	users, groups subjects // either of them is enough
	members       terms    // the groups of which the user must be in one as well
	verbs         terms

	resources  resources
	apiGroups  terms
	names      terms
	namespaces terms

	anything set // rules for all requests, whether for resources or for paths
	paths    paths
}

// set is a set of rules. The rule n is the bit n%64 of the word n/64. An empty set may be nil.
type set []uint64

func (s set) word(i int) uint64 {
	if s == nil {
		return 0
	}
	return s[i]
}

// add returns the set with a rule.
func (s set) add(words, rule int) set {
	if s == nil {
		s = make(set, words)
	}
	s[rule/64] |= 1 << (rule % 64)
	return s
}

// terms has the sets of rules that admit a value of something.
type terms struct {
	by   map[string]set
	rest set // the rules that admit all values
}

func (t *terms) add(words, rule int, values []string) {
	if len(values) == 0 {
		t.rest = t.rest.add(words, rule)
		return
	}
	for _, v := range values {
		if t.by == nil {
			t.by = map[string]set{}
		}
		t.by[v] = t.by[v].add(words, rule)
	}
}

// find returns the word i of the rules that admit a value.
func (t *terms) find(value string, i int) uint64 {
	w := t.rest.word(i)
	if len(t.by) > 0 {
		w |= t.by[value].word(i)
	}
	return w
}

// findAny returns the word i of the rules that admit one of some values.
func (t *terms) findAny(values []string, i int) uint64 {
	w := t.rest.word(i)
	if len(t.by) > 0 {
		for _, v := range values {
			w |= t.by[v].word(i)
		}
	}
	return w
}

// subjects has the sets of rules of users, or of groups.
type subjects = terms

// resources has the sets of rules that admit a resource with its subresource.
type resources struct {
	all    set              // "*", and rules without resources
	exact  map[string]named // "pods", "pods/log"
	within map[string]set   // "pods/*", which is pods as well
	subs   map[string]set   // "*/scale"
}

// named has the rules for a resource, without and with a subresource.
type named struct {
	itself set
	subs   map[string]set
}

func (x *resources) add(words, rule int, list []string) {
	if len(list) == 0 {
		x.all = x.all.add(words, rule)
	}
	for _, r := range list {
		name, sub, isSub := strings.Cut(r, "/")
		if r == wildcard {
			x.all = x.all.add(words, rule)
			continue
		}
		n := x.exact[name]
		if !isSub {
			n.itself = n.itself.add(words, rule)
		} else {
			if n.subs == nil {
				n.subs = map[string]set{}
			}
			n.subs[sub] = n.subs[sub].add(words, rule)
		}
		if x.exact == nil {
			x.exact = map[string]named{}
		}
		x.exact[name] = n
		if isSub && name == wildcard {
			x.subs = addTo(x.subs, sub, words, rule)
		}
		if within, ok := strings.CutSuffix(r, "/*"); ok {
			x.within = addTo(x.within, within, words, rule)
		}
	}
}

func addTo(sets map[string]set, key string, words, rule int) map[string]set {
	if sets == nil {
		sets = map[string]set{}
	}
	sets[key] = sets[key].add(words, rule)
	return sets
}

func (x *resources) find(name, sub string, i int) uint64 {
	w := x.all.word(i)
	if len(x.exact) > 0 {
		if n, ok := x.exact[name]; ok {
			if sub == "" {
				w |= n.itself.word(i)
			} else {
				w |= n.subs[sub].word(i)
			}
		}
	}
	if len(x.within) > 0 {
		w |= x.within[name].word(i)
	}
	if sub != "" && len(x.subs) > 0 {
		w |= x.subs[sub].word(i)
	}
	return w
}

// paths has the sets of rules for paths.
type paths struct {
	exact    map[string]set
	prefixes []prefix
}

type prefix struct {
	text  string
	rules set
}

func (x *paths) add(words, rule int, list []string) {
	for _, p := range list {
		if !strings.HasSuffix(p, wildcard) {
			x.exact = addTo(x.exact, p, words, rule)
			continue
		}
		text := strings.TrimRight(p, wildcard)
		i := slices.IndexFunc(x.prefixes, func(q prefix) bool { return q.text == text })
		if i < 0 {
			i = len(x.prefixes)
			x.prefixes = append(x.prefixes, prefix{text: text})
		}
		x.prefixes[i].rules = x.prefixes[i].rules.add(words, rule)
	}
}

func (x *paths) find(path string, i int) uint64 {
	w := x.exact[path].word(i)
	for _, p := range x.prefixes {
		if strings.HasPrefix(path, p.text) {
			w |= p.rules.word(i)
		}
	}
	return w
}

func newIndex(rules []policy.AuditRule) index {
	x := index{rules: len(rules), words: (len(rules) + 63) / 64}
	for i := range rules {
		r := &rules[i]
		var users, groups []string
		for _, s := range r.Subjects {
			if s.Group != "" {
				groups = append(groups, s.Group)
			} else {
				users = append(users, s.User)
			}
		}
		x.users.add(x.words, i, users)
		if len(users) == 0 && len(groups) > 0 {
			x.users.rest[i/64] &^= 1 << (i % 64)
		}
		if len(groups) > 0 {
			x.groups.add(x.words, i, groups)
		}
		x.members.add(x.words, i, r.MemberOf)
		x.verbs.add(x.words, i, r.Verbs)
		switch {
		case ForResources(r):
			x.resources.add(x.words, i, r.Resources)
			x.apiGroups.add(x.words, i, unlessAll(r.APIGroups))
			if len(r.Resources) == 0 {
				x.names.add(x.words, i, nil) // as upstream: without resources, names mean nothing
			} else {
				x.names.add(x.words, i, r.Names)
			}
			x.namespaces.add(x.words, i, r.Namespaces)
		case len(r.NonResourceURLs) > 0:
			x.paths.add(x.words, i, r.NonResourceURLs)
		default:
			x.anything = x.anything.add(x.words, i)
		}
	}
	return x
}

// ForResources reports whether a rule matches requests for resources only.
func ForResources(r *policy.AuditRule) bool {
	return len(r.Namespaces)+len(r.APIGroups)+len(r.Resources) > 0
}

// unlessAll returns the groups, or nil for all of them.
func unlessAll(groups []string) []string {
	if slices.Contains(groups, wildcard) {
		return nil
	}
	return groups
}

// firstRule returns the number of the first rule that matches a request, or the number of rules.
func (x *index) firstRule(r *policy.Request) int {
	for i := range x.words {
		w := x.users.find(r.User, i) | x.groups.findAny(r.Groups, i)
		w &= x.verbs.find(r.Verb, i)
		if w == 0 {
			continue
		}
		if w &= x.ruleWord(r, i); w == 0 {
			continue
		}
		if w &= x.members.findAny(r.Groups, i); w != 0 {
			return i*64 + bits.TrailingZeros64(w)
		}
	}
	return x.rules
}

// ruleWord returns the word i of the rules that admit what a request is for.
func (x *index) ruleWord(r *policy.Request, i int) uint64 {
	w := x.anything.word(i)
	if !r.IsResource {
		return w | x.paths.find(r.Path, i)
	}
	found := x.resources.find(r.Resource, r.Subresource, i)
	if found != 0 {
		found &= x.apiGroups.find(r.Group, i)
	}
	if found != 0 {
		found &= x.namespaces.find(r.Namespace, i) & x.names.find(r.Name, i)
	}
	return w | found
}
