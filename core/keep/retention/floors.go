package retention

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/core/commit"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/segment"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/reach"
)

// floor says what of a kind is kept: versions that were in force at revision history or later, and records of
// changes after which such versions, or those in force at revision records, were in force.
type floor struct{ history, records uint64 }

// floors returns the floor of each kind that segments have. They are never above limit, nor below those that were
// reached before.
func (e *Eraser) floors(ctx context.Context, tip *commit.Tip, segments []segment.Info, horizon time.Time, limit uint64) (map[schema.GroupResource]floor, error) {
	moments := map[time.Duration]uint64{reach.Forever: 0}
	before := func(age time.Duration) (uint64, error) {
		if revision, known := moments[age]; known {
			return revision, nil
		}
		first := segments[0].Kept.Revision + 1
		revision, err := eventlog.LastBefore(ctx, e.Log, tip.ClockSets, first, limit, horizon.Add(-age))
		if err != nil && ctx.Err() == nil { // a segment is damaged: its neighbors say enough
			revision, err = lastSegmentBefore(segments, tip.ClockSets, limit, horizon.Add(-age)), nil
		}
		moments[age] = revision
		return revision, err
	}
	all := map[schema.GroupResource]floor{}
	beyond := e.beyondBytes(segments)
	for r, stored := range kinds(segments) {
		kept := e.kept(tip.Policy, r)
		var f floor
		var err error
		if f.history, err = before(kept.History); err != nil {
			return nil, err
		}
		if f.records, err = before(kept.Records); err != nil {
			return nil, err
		}
		if kept.Bytes > 0 {
			f.history = max(f.history, beyondOf(segments, r, stored-kept.Bytes))
		}
		f.history, f.records = max(f.history, beyond), max(f.records, beyond)
		f.history = max(min(f.history, limit), e.History.OldestOf(r))
		f.records = min(f.records, f.history)
		all[r] = f
	}
	return all, nil
}

// kept returns how long a kind is kept by the policy and the flags.
func (e *Eraser) kept(p *policy.Policy, r schema.GroupResource) reach.Kept {
	kept := reach.Kept{History: reach.Forever, Records: reach.Forever}
	if p != nil {
		kept = p.Retention(r)
	}
	kept.History, kept.Records = min(kept.History, e.Longest), min(kept.Records, e.Longest)
	return kept
}

// kinds returns the kinds that segments have, with the bytes of their payloads in files.
func kinds(segments []segment.Info) map[schema.GroupResource]int64 {
	stored := map[schema.GroupResource]int64{}
	for _, s := range segments {
		for _, g := range s.Groups {
			if r := groupResource(&g); !r.Empty() {
				stored[r] += g.Stored
			}
		}
	}
	return stored
}

func groupResource(g *segment.Group) schema.GroupResource {
	return schema.GroupResource{Group: g.Group, Resource: g.Resource}
}

// beyondOf returns the last revision of the oldest segments that together have at least excess bytes of a kind's
// payloads; 0 if excess is not positive.
func beyondOf(segments []segment.Info, r schema.GroupResource, excess int64) (revision uint64) {
	for _, s := range segments {
		if excess <= 0 {
			break
		}
		for _, g := range s.Groups {
			if groupResource(&g) == r {
				excess -= g.Stored
			}
		}
		revision = s.Last
	}
	return revision
}

// beyondBytes returns the last revision of the oldest segments whose files do not fit into MaxBytes any more; 0 if
// all fit.
func (e *Eraser) beyondBytes(segments []segment.Info) (revision uint64) {
	if e.MaxBytes <= 0 {
		return 0
	}
	excess := -e.MaxBytes
	for _, s := range segments {
		excess += s.Size()
	}
	for _, s := range segments {
		if excess <= 0 {
			break
		}
		excess -= s.Size()
		revision = s.Last
	}
	return revision
}

// lastSegmentBefore returns the last revision of the newest segment, up to a revision, that ends before a time; 0 if there
// is none.
func lastSegmentBefore(segments []segment.Info, sets eventlog.ClockSets, upto uint64, limit time.Time) (revision uint64) {
	for i := range segments {
		if s := &segments[i]; s.Last <= upto && sets.Time(s.Last, s.LastTime).Before(limit) {
			revision = s.Last
		}
	}
	return revision
}
