package shadow

import (
	"cmp"
	"maps"
	"regexp"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/core/decide"
	"stele.dev/stele/policy/plan"
)

// auditIDs is the number of requests that a group names: the first ones.
const auditIDs = 3

// group is what requests of one group share.
type group struct {
	refused                                 bool
	user, verb, resource, stage, rule, path string
}

// found is what a comparison has found. It is not safe for concurrent use.
type found struct {
	requests Requests
	reasons  map[string]uint64
	groups   map[group]*plan.Flip
	unlisted uint64
}

func newFound() found {
	return found{reasons: map[string]uint64{}, groups: map[group]*plan.Flip{}}
}

func (f *found) count(outcome string) {
	switch outcome {
	case outcomeSame:
		f.requests.Same++
	case outcomeRefused:
		f.requests.Refused++
	case outcomeAllowed:
		f.requests.Allowed++
	case outcomeUndecided:
		f.requests.Undecided++
	case outcomeDropped:
		f.requests.Dropped++
	}
}

// undecided counts why a request could not be decided.
func (f *found) undecided(why string) {
	if _, known := f.reasons[why]; !known && len(f.reasons) >= maxReasons {
		why = "other reasons"
	}
	f.reasons[why]++
}

// anIndex matches the index of an element in the path of a field. Elements of one list are one group.
var anIndex = regexp.MustCompile(`\[\d+\]`)

// add adds a request that the policies decide differently, and why.
func (f *found) add(seen *Seen, refused bool, by *decide.Verdict) {
	i := seen.Info
	resource := i.Path
	if i.IsResourceRequest {
		if resource = (schema.GroupResource{Group: i.APIGroup, Resource: i.Resource}).String(); i.Subresource != "" {
			resource += "/" + i.Subresource
		}
	}
	g := group{refused, seen.User.GetName(), i.Verb, resource, by.Stage, by.Rule, anIndex.ReplaceAllString(by.Path, "[]")}
	revision := seen.Tip.Revision()
	is := f.groups[g]
	if is == nil {
		if len(f.groups) >= maxGroups {
			f.unlisted++
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

// The messages in place of those that a user may not read.
const (
	hiddenRefused = "the proposed policy refuses it"
	hiddenAllowed = "the policy in force refuses it"
)

// writeStatus sets the status to the counts and the sorted differences.
func (f *found) writeStatus(s *Status, mayShow func(resource string) bool) {
	s.Requests, s.Unlisted, s.Differences = f.requests, f.unlisted, make([]plan.Flip, 0, len(f.groups))
	for _, why := range slices.Sorted(maps.Keys(f.reasons)) {
		s.Undecided = append(s.Undecided, Reason{why, f.reasons[why]})
	}
	slices.SortStableFunc(s.Undecided, func(a, b Reason) int { return cmp.Compare(b.Count, a.Count) })
	for g, is := range f.groups {
		d := *is
		d.AuditIDs = slices.Clone(is.AuditIDs)
		if ofObject(g.stage) && !mayShow(g.resource) {
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

// ofObject reports whether the messages of a stage may quote the object.
func ofObject(stage string) bool {
	return stage == "decode" || stage == "schema" || stage == "validation" || stage == "conditions"
}
