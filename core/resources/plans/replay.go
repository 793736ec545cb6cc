package plans

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/logpb"
	"stele.dev/stele/limits/batches"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/plan"
	"stele.dev/stele/policy/rights"
)

// A flipKey groups requests that would be decided otherwise for the same reason.
type flipKey struct {
	user, verb, resource, stage, rule, path string
	refused                                 bool // they would be
}

// flips are the results of a replay.
type flips struct {
	groups    map[flipKey]*plan.Flip
	writes    int
	refusals  int
	reads     int
	undecided map[string]int
	faults    map[flipKey]failure
	altered   map[alterKey]*alteration
	ungranted map[flipKey]map[asker]bool // who made the requests that nothing grants any more

	waiting []*eventlog.Event // refusals that depend on stored objects
}

// An asker is what a right is granted by, besides the user, the verb and the resource of a request.
type asker struct{ groups, namespace, name string }

// isUngranted reports whether nothing grants the requests any more.
func (k flipKey) isUngranted() bool { return k.refused && k.stage == "authorization" && k.rule == "" }

// ask notes who made a request, if nothing grants it any more.
func (f *flips) ask(k flipKey, meta *logpb.Metadata) {
	if !k.isUngranted() {
		return
	}
	if f.ungranted[k] == nil {
		f.ungranted[k] = map[asker]bool{}
	}
	f.ungranted[k][asker{strings.Join(meta.GetActor().GetGroups(), "\n"), meta.GetObject().GetNamespace(), meta.GetObject().GetName()}] = true
}

func newFlips() *flips {
	return &flips{groups: map[flipKey]*plan.Flip{}, undecided: map[string]int{}, faults: map[flipKey]failure{}, altered: map[alterKey]*alteration{}, ungranted: map[flipKey]map[asker]bool{}}
}

// auditIDs is the number of requests that a group names.
const auditIDs = 3

// replay decides the recorded writes again under the new policy, and those that it refuses under the older one. What
// both refuse is not an effect of the change. It does the same with recorded refusals and reads.
func replay(ctx context.Context, s plan.Sides, o *Options, p *plan.Plan) (*flips, error) {
	c, err := newContrasts(ctx, s, o)
	if err != nil {
		return nil, err
	}
	all, refusals := newFlips(), []*eventlog.Event(nil)
	if o.Decided != nil {
		if all, refusals, err = c.replayDecided(ctx, o); err != nil {
			return nil, err
		}
	}
	done := new(atomic.Int64)
	parts, err := batches.Do(ctx, o.Records.Writes(ctx, c.read, refusals), newFlips, func(ctx context.Context, batch []*Record, into *flips) error {
		for _, r := range batch {
			again := c.decideAgain
			if r.refusal != nil {
				again = c.decideRefusal
			}
			if err := again(ctx, r, into, o); err != nil {
				return fmt.Errorf("revision %d: %w", r.Revision, err)
			}
		}
		if n := done.Add(int64(len(batch))); o.Progress != nil {
			o.Progress(int(n), 0)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("recorded requests cannot be decided again: %w", err)
	}
	for _, part := range parts {
		all.add(part)
	}
	p.Replay = all.replay(o.Records)
	p.Checked.Replayed = all.writes
	return all, nil
}

// decideAgain decides one write again.
func (c *contrasts) decideAgain(ctx context.Context, r *Record, f *flips, o *Options) error {
	if why, err := c.unread(ctx, placeOf(r.Object).GroupResource, o); err != nil || why != "" {
		f.undecided[why]++
		return err
	}
	q := r.question()
	v, err := c.to.decide(ctx, r, q)
	if err != nil {
		return err
	}
	if v.unknown == "" && (v.stage != "" || c.differ(r, v.made)) {
		before, err := c.from.decide(ctx, r, q)
		if err != nil {
			return err
		}
		made := c.from.policy.Digest()
		switch {
		case before.unknown != "":
			v.unknown = before.unknown
		case v.stage == "":
			if before.stage == "" {
				f.alter(r, before.made, v.made, o)
			}
		case before.stage != "" && bytes.Equal(r.Meta.GetPolicyDigest(), made[:]):
			v.unknown = isUnlike
		case before.stage != "":
			v.stage = "" // the change does not introduce it
		}
	}
	if v.unknown != "" {
		f.undecided[v.unknown]++
		return nil
	}
	f.writes++
	if v.stage != "" {
		f.count(r, v, o)
	}
	return nil
}

// count adds a write that would be refused.
func (f *flips) count(r *Record, v verdict, o *Options) {
	at := placeOf(r.Object)
	request := r.Meta.GetRequest()
	resource := at.String()
	if sub := request.GetSubresource(); sub != "" {
		resource += "/" + sub
	}
	k := flipKey{r.Meta.GetActor().GetUser(), request.GetVerb(), resource, v.stage, v.rule, v.path, true}
	g := &plan.Flip{
		Refused: true, User: k.user, Verb: k.verb, Resource: resource, Stage: v.stage, Rule: v.rule, Path: v.path, Source: v.source,
		Count: 1, First: r.Revision, Last: r.Revision, Message: "the new policy refuses it",
	}
	if !o.secret(at.GroupResource) {
		g.Message = v.message
	}
	if id := request.GetAuditId(); id != "" {
		g.AuditIDs = []string{id}
	}
	f.ask(k, r.Meta)
	f.merge(k, g, v.failure)
}

// merge adds a group. The message is that of the first revision, and the audit IDs are the first few by their text.
func (f *flips) merge(k flipKey, g *plan.Flip, of failure) {
	is := f.groups[k]
	if is == nil {
		f.groups[k], f.faults[k] = g, of
		return
	}
	other := f.faults[k]
	f.faults[k] = *earlierFailure(&other, &of)
	is.Count += g.Count
	if g.First < is.First {
		is.First, is.Message, is.Source = g.First, g.Message, g.Source
	}
	is.Last = max(is.Last, g.Last)
	is.AuditIDs = append(is.AuditIDs, g.AuditIDs...)
	slices.Sort(is.AuditIDs)
	is.AuditIDs = is.AuditIDs[:min(len(is.AuditIDs), auditIDs)]
}

// add adds the results of another worker.
func (f *flips) add(other *flips) {
	f.writes, f.refusals, f.reads = f.writes+other.writes, f.refusals+other.refusals, f.reads+other.reads
	for why, n := range other.undecided {
		f.undecided[why] += n
	}
	for k, g := range other.groups {
		f.merge(k, g, other.faults[k])
	}
	for k, all := range other.ungranted {
		if f.ungranted[k] == nil {
			f.ungranted[k] = map[asker]bool{}
		}
		maps.Copy(f.ungranted[k], all)
	}
	for k, x := range other.altered {
		f.mergeAlteration(k, x)
	}
}

// replay returns the groups, the largest first.
func (f *flips) replay(records Records) *plan.Replay {
	r := &plan.Replay{Writes: f.writes, Refusals: f.refusals, Reads: f.reads, Flips: []plan.Flip{}}
	r.Since, r.Until = records.Span()
	for _, why := range slices.Sorted(maps.Keys(f.undecided)) {
		r.Undecided += f.undecided[why]
		r.Why = append(r.Why, fmt.Sprintf("%d: %s", f.undecided[why], why))
	}
	for _, k := range f.keys() {
		r.Flips = append(r.Flips, *f.groups[k])
	}
	r.Alterations = f.alterations()
	return r
}

// keys returns the keys of the groups, the largest group first.
func (f *flips) keys() []flipKey {
	return slices.SortedFunc(maps.Keys(f.groups), func(a, b flipKey) int {
		return cmp.Or(cmp.Compare(f.groups[b].Count, f.groups[a].Count), cmp.Compare(a.user, b.user), cmp.Compare(a.verb, b.verb),
			cmp.Compare(a.resource, b.resource), cmp.Compare(a.stage, b.stage), cmp.Compare(a.rule, b.rule), cmp.Compare(a.path, b.path), cmp.Compare(fmt.Sprint(b.refused), fmt.Sprint(a.refused)))
	})
}

// withdrawn returns the ID of the finding that takes from a user, or from a group of the user, the right to make all of some requests;
// "" if there is none, or if there are several.
func withdrawn(findings []plan.Finding, k flipKey, askers map[asker]bool) (id string) {
	resource, subresource, _ := strings.Cut(k.resource, "/")
	gr := schema.ParseGroupResource(resource)
	user := rights.SubjectName(policy.Subject{User: k.user})
	for i := range findings {
		f := &findings[i]
		var scopes []rights.Scope
		if f.Rule != "GRANT_REMOVED" || json.Unmarshal(f.Scope, &scopes) != nil {
			continue
		}
		subjects := strings.Split(f.Subject, ", ")
		scopes = slices.DeleteFunc(scopes, func(s rights.Scope) bool { return !s.Has(k.verb, gr.Group, gr.Resource, subresource) })
		takes := func(a asker) bool {
			return (slices.Contains(subjects, user) || slices.ContainsFunc(strings.Split(a.groups, "\n"), func(g string) bool { return slices.Contains(subjects, "group:"+g) })) &&
				slices.ContainsFunc(scopes, func(s rights.Scope) bool { return s.Meets(a.namespace, a.name) })
		}
		if !every(askers, takes) {
			continue
		}
		if id != "" {
			return ""
		}
		id = f.ID
	}
	return id
}

// every reports whether there are askers, and something holds of each.
func every(askers map[asker]bool, holds func(asker) bool) bool {
	for a := range askers {
		if !holds(a) {
			return false
		}
	}
	return len(askers) > 0
}

// link names for each group the finding that explains it. The findings have their IDs.
func (f *flips) link(s plan.Sides, p *plan.Plan) {
	for i, k := range f.keys() {
		resource, _, _ := strings.Cut(k.resource, "/")
		fault := f.faults[k]
		kind := s.To.Kind(schema.ParseGroupResource(resource))
		best := 0
		if k.isUngranted() && kind != nil {
			p.Replay.Flips[i].Finding = withdrawn(p.Findings, k, f.ungranted[k])
			continue
		}
		for j := range p.Findings {
			x := &p.Findings[j]
			n := 0
			switch {
			case k.stage == "schema" && kind != nil, k.stage == "validation" && kind != nil:
				t := &kindTrial{is: kind}
				n = t.explains(x, &fault)
			case kind == nil && x.Rule == "KIND_REMOVED" && x.Kind == resource:
				n = 1
			case k.stage == "mutation" && x.Path != "" && strings.HasPrefix(k.rule, x.Path+"/"):
				n = 1
			case (k.stage == "authorization" || k.stage == "conditions") && k.rule != "" && (x.Path == k.rule || strings.HasSuffix(k.rule, "/"+x.Path) && x.Path != ""):
				n = 1
			}
			if n > best {
				best = n
				p.Replay.Flips[i].Finding = x.ID
			}
		}
	}
	for i := range p.Replay.Alterations {
		a := &p.Replay.Alterations[i]
		if j := slices.IndexFunc(p.Findings, func(x plan.Finding) bool { return x.Path != "" && strings.HasPrefix(a.Rule, x.Path+"/") }); j >= 0 {
			a.Finding = p.Findings[j].ID
		}
	}
}
