package flows

import (
	"cmp"
	"math/bits"
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"stele.dev/stele/policy"
)

// wildcard stands for all values of a list.
const wildcard = "*"

// index finds the first rule that matches a request. Rules are numbered in the order in which they are tried, and a set of
// rules is a bit for each. For every value of a verb, a resource and so on there is the set of the rules that admit it, so
// that a request needs few lookups, and one pass over the rules of each of its subjects.
type index struct {
	resources resourceRules
	paths     pathRules

	everyone subject
	users    map[string]*subject
	groups   map[string]*subject
	accounts map[string]*subject // all service accounts of a namespace
}

// resourceRules are the rules for resources.
type resourceRules struct {
	schemas    []*Schema // of each rule
	verbs      terms[string]
	groups     terms[string]
	resources  terms[resource]
	namespaces terms[string]
	outside    set // rules for requests outside of namespaces
}

// pathRules are the rules for requests that are for no resource.
type pathRules struct {
	schemas []*Schema // of each rule
	verbs   terms[string]
	exact   map[string]set
	below   map[string]set // by prefix, which ends with a slash
	all     set
	longest int // length of the longest prefix
}

type resource struct{ name, subresource string }

// set is a set of rules. The rule n is the bit n%64 of the word n/64.
type set []uint64

func newSet(rules int) set { return make(set, (rules+63)/64) }

func (s set) add(rule int) { s[rule/64] |= 1 << (rule % 64) }

func (s set) join(t set) {
	for i := range t {
		s[i] |= t[i]
	}
}

// terms has the sets of rules that admit the values of something.
type terms[K comparable] struct {
	by   map[K]set
	rest set // of values without an entry: the rules that admit all
}

func newTerms[K comparable](rules int) terms[K] {
	return terms[K]{by: map[K]set{}, rest: newSet(rules)}
}

func (t *terms[K]) add(rules int, k K, rule int) {
	if t.by[k] == nil {
		t.by[k] = newSet(rules)
	}
	t.by[k].add(rule)
}

// close adds the rules that admit all to every entry.
func (t *terms[K]) close() {
	for _, s := range t.by {
		s.join(t.rest)
	}
}

func (t *terms[K]) find(k K) set {
	if s, ok := t.by[k]; ok {
		return s
	}
	return t.rest
}

// subject has the rules of a user, a group or a service account.
type subject struct{ resources, paths []block }

// block is a word of a set. Most subjects are in few rules, so that they have only the words that are not zero.
type block struct {
	word int
	bits uint64
}

func addBlock(blocks []block, rule int) []block {
	if n := len(blocks); n == 0 || blocks[n-1].word != rule/64 {
		blocks = append(blocks, block{word: rule / 64})
	}
	blocks[len(blocks)-1].bits |= 1 << (rule % 64)
	return blocks
}

// numbered is a rule with its number.
type numbered struct {
	schema *Schema
	rule   *policy.FlowRule
}

func newIndex(schemas []*Schema) index {
	x := index{users: map[string]*subject{}, groups: map[string]*subject{}, accounts: map[string]*subject{}}
	var resources, paths []numbered
	for _, s := range schemas {
		r, p := len(resources), len(paths)
		for i := range s.Rules {
			if rule := &s.Rules[i]; len(rule.NonResourceURLs) > 0 {
				paths = append(paths, numbered{s, rule})
			} else {
				resources = append(resources, numbered{s, rule})
			}
		}
		for _, of := range x.subjectsOf(s) {
			for i := r; i < len(resources); i++ {
				of.resources = addBlock(of.resources, i)
			}
			for i := p; i < len(paths); i++ {
				of.paths = addBlock(of.paths, i)
			}
		}
	}
	x.resources, x.paths = newResourceRules(resources), newPathRules(paths)
	return x
}

// subjectsOf returns the entries of the subjects of a flow schema.
func (x *index) subjectsOf(s *Schema) (list []*subject) {
	entry := func(by map[string]*subject, name string) *subject {
		if by[name] == nil {
			by[name] = &subject{}
		}
		return by[name]
	}
	for _, u := range s.Subjects {
		switch namespace, name, isAccount := splitAccount(u.User); {
		case u.User == wildcard || u.Group == wildcard:
			list = append(list, &x.everyone)
		case u.Group != "":
			list = append(list, entry(x.groups, u.Group))
		case isAccount && name == wildcard:
			list = append(list, entry(x.accounts, namespace))
		case u.User != "":
			list = append(list, entry(x.users, u.User))
		}
	}
	return list
}

// splitAccount returns namespace and name of the service account that a user is. The name is not checked.
func splitAccount(user string) (namespace, name string, ok bool) {
	if rest, is := strings.CutPrefix(user, serviceaccount.ServiceAccountUsernamePrefix); is {
		return strings.Cut(rest, serviceaccount.ServiceAccountUsernameSeparator)
	}
	return "", "", false
}

func newResourceRules(rules []numbered) resourceRules {
	n := len(rules)
	x := resourceRules{verbs: newTerms[string](n), groups: newTerms[string](n), resources: newTerms[resource](n), namespaces: newTerms[string](n), outside: newSet(n)}
	for i, r := range rules {
		x.schemas = append(x.schemas, r.schema)
		addWords(&x.verbs, n, r.rule.Verbs, i)
		addWords(&x.groups, n, r.rule.APIGroups, i)
		for _, name := range r.rule.Resources {
			plain, sub, isSub := strings.Cut(name, "/")
			switch {
			case name == wildcard:
				x.resources.rest.add(i)
			case !isSub || sub != "": // no request is for "pods/"
				x.resources.add(n, resource{plain, sub}, i)
			}
		}
		for _, name := range r.rule.Namespaces {
			switch name {
			case wildcard:
				x.namespaces.rest.add(i)
			case "":
				x.outside.add(i)
			default:
				x.namespaces.add(n, name, i)
			}
		}
		if len(r.rule.Namespaces) == 0 {
			x.namespaces.rest.add(i)
			x.outside.add(i)
		}
	}
	x.verbs.close()
	x.groups.close()
	x.resources.close()
	x.namespaces.close()
	return x
}

// addWords adds the words of a list of a rule.
func addWords(t *terms[string], rules int, words []string, rule int) {
	for _, w := range words {
		if w == wildcard {
			t.rest.add(rule)
		} else {
			t.add(rules, w, rule)
		}
	}
}

func newPathRules(rules []numbered) pathRules {
	n := len(rules)
	x := pathRules{verbs: newTerms[string](n), exact: map[string]set{}, below: map[string]set{}, all: newSet(n)}
	add := func(to map[string]set, key string, rule int) {
		if to[key] == nil {
			to[key] = newSet(n)
		}
		to[key].add(rule)
	}
	for i, r := range rules {
		x.schemas = append(x.schemas, r.schema)
		addWords(&x.verbs, n, r.rule.Verbs, i)
		for _, path := range r.rule.NonResourceURLs {
			if path == wildcard {
				x.all.add(i)
				continue
			}
			prefix := strings.TrimSuffix(path, wildcard)
			if !strings.HasSuffix(prefix, "/") {
				prefix += "/"
			}
			add(x.exact, path, i)
			add(x.below, prefix, i)
			x.longest = max(x.longest, len(prefix))
		}
	}
	x.verbs.close()
	// Every prefix gets the rules of the prefixes that it begins with: the shorter ones have theirs already.
	prefixes := make([]string, 0, len(x.below))
	for p := range x.below {
		prefixes = append(prefixes, p)
	}
	slices.SortFunc(prefixes, func(a, b string) int { return cmp.Compare(len(a), len(b)) })
	for _, p := range prefixes {
		x.below[p].join(x.underneath(p[:len(p)-1]))
	}
	for p, s := range x.exact {
		s.join(x.underneath(p))
	}
	return x
}

// underneath returns the rules whose prefixes a path begins with, and those for all paths.
func (x *pathRules) underneath(path string) set {
	for end := min(len(path), x.longest); end > 0; end-- {
		if path[end-1] == '/' {
			if s, ok := x.below[path[:end]]; ok {
				return s
			}
		}
	}
	return x.all
}

func (x *pathRules) find(path string) set {
	if s, ok := x.exact[path]; ok {
		return s
	}
	return x.underneath(path)
}

// firstSchema returns the flow schema of the first rule that matches a request, or nil.
func (x *index) firstSchema(r *policy.Request) *Schema {
	if !r.IsResource {
		p := &x.paths
		path := p.find(r.Path)
		return x.search(r, p.schemas, &matching{p.verbs.find(r.Verb), path, path, path}, func(s *subject) []block { return s.paths })
	}
	v := &x.resources
	places := v.outside
	if r.Namespace != "" {
		places = v.namespaces.find(r.Namespace)
	}
	m := matching{v.verbs.find(r.Verb), v.resources.find(resource{r.Resource, r.Subresource}), v.groups.find(r.Group), places}
	return x.search(r, v.schemas, &m, func(s *subject) []block { return s.resources })
}

// search returns the flow schema of the first matching rule that names a subject of the request, or nil.
func (x *index) search(r *policy.Request, schemas []*Schema, m *matching, of func(*subject) []block) *Schema {
	best := m.firstMatch(of(&x.everyone), len(schemas))
	if s := x.users[r.User]; s != nil {
		best = m.firstMatch(of(s), best)
	}
	if len(x.accounts) > 0 {
		if namespace, _, is := splitAccount(r.User); is {
			if s := x.accounts[namespace]; s != nil {
				best = m.firstMatch(of(s), best)
			}
		}
	}
	for _, g := range r.Groups {
		if s := x.groups[g]; s != nil {
			best = m.firstMatch(of(s), best)
		}
	}
	if best == len(schemas) {
		return nil
	}
	return schemas[best]
}

// matching has the rules that match a request: those that are in all four sets.
type matching [4]set

// firstMatch returns the first rule of the blocks that matches the request and is before another one, or else that one.
func (m *matching) firstMatch(blocks []block, before int) int {
	for _, b := range blocks {
		if b.word*64 >= before {
			break
		}
		if found := b.bits & m[0][b.word] & m[1][b.word] & m[2][b.word] & m[3][b.word]; found != 0 {
			return min(before, b.word*64+bits.TrailingZeros64(found))
		}
	}
	return before
}
