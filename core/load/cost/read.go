package cost

import (
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/core/call"
	"stele.dev/stele/policy"
	"stele.dev/stele/projections/objects"
)

// Times of reads, for each object or change.
const (
	listed    = 40 * time.Nanosecond  // found and appended to a list
	selected  = 100 * time.Nanosecond // matched with selectors
	named     = 15 * time.Nanosecond  // compared with a name, in all namespaces
	undone    = 400 * time.Nanosecond // undone, for a recent state
	restored  = 15 * time.Microsecond // read from the history, for an older state
	eventTime = 500 * time.Nanosecond // sent to a watch, besides its bytes
	replayed  = 6 * time.Microsecond  // read from the history for a watch, besides its bytes
	// pastGet is a get of an object from the history, and pastState what a request below /at takes for the policy of its moment.
	pastGet   = 400 * time.Microsecond
	pastState = 200 * time.Microsecond
	// evaluated is what a row takes that is computed of an object.
	evaluated = 5 * time.Microsecond
	// fewUndone is how many changes are always undone rather than reading the history.
	fewUndone = 2000
	// selectedShare is the share of the objects that selectors are assumed to select: one in so many.
	selectedShare = 2
	// fewScanned is the number of objects below which it is not worth to look for an index.
	fewScanned = 500
)

// get returns the time of a get.
func (e *Estimator) get(c *call.Call, kind *policy.Version) time.Duration {
	q := query{}
	if c.HTTP.URL.RawQuery != "" {
		q = parse(c.HTTP.URL.RawQuery)
	}
	switch revision, past := q.past(c); {
	case !past || q.match != "Exact" && c.Past.Moment == nil:
	case kind.Kind.View != nil:
		return pastGet + e.state(c, kind, revision) // all rows are computed
	case c.Past.Moment != nil:
		return pastGet + pastState
	default:
		return pastGet
	}
	return answer(c, stored(c, kind))
}

// stored returns the size of the object that a call names. It looks only for large objects: for others it returns 0.
func stored(c *call.Call, kind *policy.Version) int64 {
	r, ns := kind.Kind.Stored().GroupResource(), namespace(c, kind)
	if c.Tip.Objects.Total(r, ns).Large == 0 {
		return 0
	}
	o := c.Tip.Objects.Get(r, ns, c.Info.Name)
	if o == nil || len(o.JSON) < objects.LargeObject {
		return 0
	}
	return int64(len(o.JSON))
}

// list returns the time of a list.
func (e *Estimator) list(c *call.Call, kind *policy.Version) time.Duration {
	q := parse(c.HTTP.URL.RawQuery)
	found, d := e.find(c, kind, &q, q.page())
	return d + answer(c, found.Bytes)
}

// find returns how many objects a list finds, and the time to find them.
func (e *Estimator) find(c *call.Call, kind *policy.Version, q *query, limit int) (found objects.Total, d time.Duration) {
	r, ns := kind.Kind.Stored().GroupResource(), namespace(c, kind)
	all := e.total(c, kind, ns)
	revision, past := q.past(c)
	if past {
		d = e.state(c, kind, revision)
	}
	if c.Info.Name != "" { // from a selector, or the path of a watch
		if ns == "" {
			d += time.Duration(all.Objects) * named
		}
		return part(all, 1), d
	}
	found = all
	if q.selects() {
		found = part(all, (all.Objects+selectedShare-1)/selectedShare)
		scanned := all.Objects
		if scanned >= fewScanned && !past && kind.Kind.View == nil {
			if sel, ok := q.selection(kind.Kind, ns); ok {
				scanned = c.Tip.Objects.Scanned(r, &sel)
				found = part(found, scanned)
			}
		}
		d += time.Duration(scanned) * selected
	}
	if limit > 0 {
		found = part(found, limit)
	}
	return found, d + time.Duration(found.Objects)*listed
}

// part returns the total of up to n objects of average size.
func part(all objects.Total, n int) objects.Total {
	if all.Objects <= n {
		return all
	}
	return objects.Total{Objects: n, Bytes: all.Bytes * int64(n) / int64(all.Objects)}
}

// total returns the total of the objects of a kind in a namespace, or in all if that is "". The rows of a view that is being
// computed are assumed to be as many as its objects.
func (e *Estimator) total(c *call.Call, kind *policy.Version, namespace string) objects.Total {
	if kind.Kind.View == nil {
		return c.Tip.Objects.Total(kind.Kind.Stored().GroupResource(), namespace)
	}
	if e.Views != nil {
		if total, ok := e.Views.Total(kind.Kind.GroupResource(), namespace); ok {
			return total
		}
	}
	return c.Tip.Objects.Total(kind.Kind.Reads.Kind.Stored().GroupResource(), namespace)
}

// state returns the time to make the state at a past revision; 0 stands for a revision that is not known yet.
func (e *Estimator) state(c *call.Call, kind *policy.Version, revision uint64) (d time.Duration) {
	ns := namespace(c, kind)
	if kind.Kind.View == nil {
		r := kind.Kind.Stored().GroupResource()
		return e.stateOf(c, r, revision, c.Tip.Objects.Total(r, ns))
	}
	if revision > 0 && c.Past.Moment == nil && e.Views != nil {
		if n, ok := e.Views.Undone(kind.Kind.GroupResource(), revision); ok {
			return time.Duration(n) * undone
		}
	}
	r := kind.Kind.Reads.Kind.Stored().GroupResource()
	all := c.Tip.Objects.Total(r, ns) // groups are of all namespaces, and in none
	return e.stateOf(c, r, revision, all) + time.Duration(all.Objects)*evaluated
}

// stateOf returns the time to make the state of the objects of a resource at a past revision.
func (e *Estimator) stateOf(c *call.Call, r schema.GroupResource, revision uint64, all objects.Total) (d time.Duration) {
	if c.Past.Moment != nil {
		d = pastState
	}
	if revision > 0 {
		if n, ok := e.Objects.Undone(r, revision); ok && n <= max(fewUndone, 2*all.Objects) {
			return d + time.Duration(n)*undone
		}
	}
	return d + pastGet + time.Duration(all.Objects)*restored
}

// changesAfter returns about how many changes a watch sends after a revision, and whether all of them are in memory.
func (e *Estimator) changesAfter(kind *policy.Version, revision uint64) (n int, inMemory bool) {
	switch {
	case kind.Kind.View == nil:
		return e.Objects.ChangesAfter(kind.Kind.Stored().GroupResource(), revision)
	case e.Views == nil:
		return 0, true
	}
	n, _ = e.Views.ChangesAfter(kind.Kind.GroupResource(), revision)
	return n, true // if they are not, the watch ends at once
}

// watch returns the time of a watch until it has caught up: until its initial events, or the changes since its revision,
// are sent. From there on it has no seats.
func (e *Estimator) watch(c *call.Call, kind *policy.Version) time.Duration {
	q := parse(c.HTTP.URL.RawQuery)
	initial := q.newest()
	if q.initial != "" {
		initial, _ = strconv.ParseBool(q.initial)
	}
	if initial {
		after := q
		after.match, after.token, after.limit = "", "", 0 // a watch starts at the newest revision, or that of its path
		found, d := e.find(c, kind, &after, 0)
		return d + time.Duration(found.Objects)*eventTime + answer(c, found.Bytes)
	}
	from, err := strconv.ParseUint(q.revision, 10, 64)
	if err != nil {
		return 0
	}
	if c.Past.Moment != nil && kind.Kind.View != nil { // it sends what differs between two states
		d := e.state(c, kind, from) + e.state(c, kind, c.Past.Moment.Revision)
		all := e.total(c, kind, namespace(c, kind))
		return d + time.Duration(all.Objects)*listed*2
	}
	n, inMemory := e.changesAfter(kind, from)
	if n == 0 {
		return 0
	}
	all, in := e.total(c, kind, ""), e.total(c, kind, namespace(c, kind))
	sent := n
	if c.Info.Name != "" {
		sent = 1
	} else if in.Objects < all.Objects {
		sent = int(int64(n) * int64(in.Objects) / int64(all.Objects))
	}
	d := time.Duration(n)*selected + time.Duration(sent)*eventTime
	if !inMemory {
		d += pastGet + time.Duration(sent)*replayed
	}
	if all.Objects > 0 {
		d += answer(c, all.Bytes/int64(all.Objects)*int64(sent))
	}
	return d
}
