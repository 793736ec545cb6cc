package shadow

import (
	"cmp"
	"maps"
	"regexp"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/core/decide"
	"stele.dev/stele/core/read"
	"stele.dev/stele/policy/plan"
)

// auditIDs is the number of requests that a group names: the first ones.
const auditIDs = 3

// group is what requests of one group share.
type group struct {
	refused                                       bool
	user, verb, kind, resource, stage, rule, path string
}

// found is what a comparison has found. It is not safe for concurrent use.
type found struct {
	// of has the numbers of requests by kind, "" for requests that are about no stored kind.
	of     map[string]*numbers
	groups map[group]*plan.Flip
}

// numbers are those of the requests about one kind.
type numbers struct {
	requests Requests
	reasons  map[string]uint64
	unlisted uint64
}

func newFound() found { return found{of: map[string]*numbers{}, groups: map[group]*plan.Flip{}} }

// about returns the numbers of a kind.
func (f *found) about(kind string) *numbers {
	if f.of[kind] == nil {
		f.of[kind] = &numbers{reasons: map[string]uint64{}}
	}
	return f.of[kind]
}

func (n *numbers) count(outcome string) {
	switch outcome {
	case outcomeSame:
		n.requests.Same++
	case outcomeRefused:
		n.requests.Refused++
	case outcomeAllowed:
		n.requests.Allowed++
	case outcomeUndecided:
		n.requests.Undecided++
	case outcomeDropped:
		n.requests.Dropped++
	}
}

// add adds the numbers of another kind.
func (n *numbers) add(other *numbers) {
	r := &other.requests
	n.requests.Same, n.requests.Refused, n.requests.Allowed = n.requests.Same+r.Same, n.requests.Refused+r.Refused, n.requests.Allowed+r.Allowed
	n.requests.Undecided, n.requests.Dropped, n.unlisted = n.requests.Undecided+r.Undecided, n.requests.Dropped+r.Dropped, n.unlisted+other.unlisted
	for why, count := range other.reasons {
		n.reasons[why] += count
	}
}

// hidden returns the numbers for a reader who may not know how requests about the kind are decided.
func (n *numbers) hidden() *numbers {
	r := n.requests
	all := r.Same + r.Refused + r.Allowed + r.Undecided
	return &numbers{requests: Requests{Undecided: all, Dropped: r.Dropped}, reasons: map[string]uint64{isHidden: all}}
}

// isHidden is the reason why a reader is not told how requests are decided.
const isHidden = "their kind, or one that rules for it read, is not one that you may list in all namespaces"

// undecided counts why a request could not be decided.
func (n *numbers) undecided(why string) {
	if _, known := n.reasons[why]; !known && len(n.reasons) >= maxReasons {
		why = "other reasons"
	}
	n.reasons[why]++
}

// anIndex matches the index of an element in the path of a field. Elements of one list are one group.
var anIndex = regexp.MustCompile(`\[\d+\]`)

// add adds a request that the policies decide differently, and why.
func (f *found) add(seen *Seen, kind string, refused bool, by *decide.Verdict) {
	i := seen.Info
	resource := i.Path
	if i.IsResourceRequest {
		if resource = (schema.GroupResource{Group: i.APIGroup, Resource: i.Resource}).String(); i.Subresource != "" {
			resource += "/" + i.Subresource
		}
	}
	g := group{refused, seen.User.GetName(), i.Verb, kind, resource, by.Stage, by.Rule, anIndex.ReplaceAllString(by.Path, "[]")}
	revision := seen.Tip.Revision()
	is := f.groups[g]
	if is == nil {
		if len(f.groups) >= maxGroups {
			f.about(kind).unlisted++
			return
		}
		is = &plan.Flip{
			Refused: refused, User: g.user, Verb: g.verb, Resource: g.resource, Stage: g.stage, Rule: g.rule, Path: g.path,
			Source: by.Source, Message: by.Message, First: revision, Last: revision,
		}
		f.groups[g] = is
	}
	is.Count++
	is.First, is.Last = min(is.First, revision), max(is.Last, revision)
	if len(is.AuditIDs) < auditIDs {
		is.AuditIDs = append(is.AuditIDs, seen.AuditID)
	}
}

// The messages in place of those that quote an object with secrets.
const (
	hiddenRefused = "the proposed policy refuses it"
	hiddenAllowed = "the policy in force refuses it"
)

// shown says what a reader may know of requests about a kind.
type shown int

const (
	nothing  shown = iota // nor numbers, which tell what is in objects
	decided               // and no messages: objects have secrets
	messages              // everything
)

// writeStatus sets the status to the counts and the sorted differences, as far as a reader may know them.
func (f *found) writeStatus(s *Status, may func(kind string) shown) {
	all := &numbers{reasons: map[string]uint64{}}
	known := map[string]shown{"": decided}
	for _, kind := range slices.Sorted(maps.Keys(f.of)) {
		if kind != "" {
			known[kind] = may(kind)
		}
		if known[kind] == nothing {
			all.add(f.of[kind].hidden())
		} else {
			all.add(f.of[kind])
		}
	}
	s.Requests, s.Unlisted, s.Differences = all.requests, all.unlisted, make([]plan.Flip, 0, len(f.groups))
	for _, why := range slices.Sorted(maps.Keys(all.reasons)) {
		if n := all.reasons[why]; n > 0 {
			s.Undecided = append(s.Undecided, Reason{why, n})
		}
	}
	slices.SortStableFunc(s.Undecided, func(a, b Reason) int { return cmp.Compare(b.Count, a.Count) })
	for g, is := range f.groups {
		if known[g.kind] == nothing {
			continue
		}
		d := *is
		d.AuditIDs = slices.Clone(is.AuditIDs)
		if read.Quotes(g.stage) && known[g.kind] != messages {
			if d.Message = hiddenAllowed; g.refused {
				d.Message = hiddenRefused
			}
		}
		s.Differences = append(s.Differences, d)
	}
	slices.SortFunc(s.Differences, func(a, b plan.Flip) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.User, b.User), cmp.Compare(a.Verb, b.Verb), cmp.Compare(a.Resource, b.Resource),
			cmp.Compare(a.Stage, b.Stage), cmp.Compare(a.Rule, b.Rule), cmp.Compare(a.Path, b.Path), cmp.Compare(side(a), side(b)))
	})
}

func side(f plan.Flip) int {
	if f.Refused {
		return 0
	}
	return 1
}
