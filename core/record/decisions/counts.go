package decisions

import (
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/logpb"
)

// maxCounts is how many kinds of decisions are counted apart in a minute. All others are counted as one, in which only
// the outcome is known.
const maxCounts = 1024

// maxOwned is how many kinds of decisions about one owner are counted apart in a minute, so that counts take little of the
// log, too. The others are counted as those beyond maxCounts.
const maxOwned = 64

// allAccounts stands for the service accounts of all namespaces: together they have half of maxCounts.
const allAccounts = serviceaccount.AllServiceAccountsGroup

// maxName is the most bytes that a counter keeps of a name.
const maxName = 256

// alike is what counted decisions have in common.
type alike struct {
	outcome                     logpb.Outcome
	code                        uint32
	stage, reason, rule, source string
	user, verb, group, resource string
	from                        string // the source address of requests without a user, else empty
}

// counter counts decisions that are alike.
type counter struct {
	count       uint64
	first, last time.Time
}

// counts counts decisions. It is safe for concurrent use.
type counts struct {
	mu    sync.Mutex
	by    map[alike]*counter
	owned map[string]int // how many kinds each owner has, and allAccounts
}

func alikeOf(e *eventlog.Event) alike {
	m := e.Meta
	d, q := m.GetDecision(), m.GetRequest()
	a := alike{
		outcome: d.GetOutcome(), code: q.GetStatus(), stage: d.GetStage(), reason: cut(d.GetReason()), rule: cut(d.GetRule()), source: cut(d.GetSource()),
		user: cut(m.GetActor().GetUser()), verb: cut(q.GetVerb()), group: cut(m.GetObject().GetGroup()), resource: cut(m.GetObject().GetResource()),
	}
	if a.user == "" && len(q.GetSourceIps()) > 0 {
		a.from = q.GetSourceIps()[0]
	}
	return a
}

func cut(s string) string {
	if len(s) > maxName {
		s = strings.ToValidUTF8(s[:maxName], "")
	}
	return s
}

// add counts n decisions that are like an event.
func (c *counts) add(e *eventlog.Event, n uint64) {
	now := time.Now()
	c.merge(alikeOf(e), ownerOf(e), counter{n, now, now})
}

// merge adds a counter of decisions about an owner. An empty owner is for those that are bounded otherwise.
func (c *counts) merge(a alike, owner string, n counter) {
	c.mu.Lock()
	defer c.mu.Unlock()
	x := c.by[a]
	if x == nil && (len(c.by) >= maxCounts || owner != "" && c.owned[owner] >= maxOwned || isAccounts(owner) && c.owned[allAccounts] >= maxCounts/2) {
		a, owner = alike{outcome: a.outcome}, ""
		x = c.by[a]
	}
	if x == nil {
		if c.by == nil {
			c.by, c.owned = map[alike]*counter{}, map[string]int{}
		}
		c.by[a] = &n
		if c.owned[owner]++; isAccounts(owner) {
			c.owned[allAccounts]++
		}
		return
	}
	x.count += n.count
	if n.first.Before(x.first) {
		x.first = n.first
	}
	if n.last.After(x.last) {
		x.last = n.last
	}
}

// take returns the counts as events, the largest first, and begins anew.
func (c *counts) take(now time.Time) (events []*eventlog.Event) {
	c.mu.Lock()
	by := c.by
	c.by, c.owned = nil, nil
	c.mu.Unlock()
	for a, n := range by {
		m := &logpb.Metadata{
			Type:    logpb.Type_TYPE_DECISIONS_COUNTED,
			Request: &logpb.Request{Verb: a.verb, Status: a.code},
			Detail: &logpb.Metadata_DecisionsCounted{DecisionsCounted: &logpb.DecisionsCounted{
				Count: n.count, FirstUnixNano: n.first.UnixNano(), LastUnixNano: n.last.UnixNano(),
				Like: &logpb.Decision{Outcome: a.outcome, Stage: a.stage, Reason: a.reason, Rule: a.rule, Source: a.source, RecordedUnixNano: now.UnixNano()},
			}},
		}
		if a.from != "" {
			m.Request.SourceIps = []string{a.from}
		}
		if a.user != "" {
			m.Actor = &logpb.Actor{User: a.user}
		}
		if a.resource != "" {
			m.Object = &logpb.Object{Group: a.group, Resource: a.resource}
		}
		events = append(events, &eventlog.Event{Meta: m})
	}
	slices.SortFunc(events, func(x, y *eventlog.Event) int {
		a, b := x.Meta.GetDecisionsCounted(), y.Meta.GetDecisionsCounted()
		if a.GetCount() != b.GetCount() {
			return int(min(max(int64(b.GetCount())-int64(a.GetCount()), -1), 1))
		}
		return int(min(max(a.GetFirstUnixNano()-b.GetFirstUnixNano(), -1), 1))
	})
	return events
}

// putBack counts again what could not be written.
func (c *counts) putBack(e *eventlog.Event) {
	m, d := e.Meta, e.Meta.GetDecisionsCounted()
	like := &eventlog.Event{Meta: &logpb.Metadata{Object: m.GetObject(), Actor: m.GetActor(), Request: m.GetRequest(), Detail: &logpb.Metadata_Decision{Decision: d.GetLike()}}}
	c.merge(alikeOf(like), "", counter{d.GetCount(), time.Unix(0, d.GetFirstUnixNano()), time.Unix(0, d.GetLastUnixNano())})
}
