package flowapi

import (
	"fmt"
	"hash/fnv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"stele.dev/stele/core/catalog"
	"stele.dev/stele/core/catalog/discovery"
	"stele.dev/stele/core/load/flow"
	"stele.dev/stele/core/read"
)

// Resources returns the virtual resources of flows and priority levels.
func Resources(rd *read.Reader, c *flow.Control) []*catalog.Resource {
	return []*catalog.Resource{
		read.NewPresent(rd, discovery.NewResource(Group, Version, FlowKind, FlowPlural), FlowColumns, func() []FlowObject { return Flows(c.Flows(), time.Now()) }),
		read.NewPresent(rd, discovery.NewResource(Group, Version, LevelKind, LevelPlural), LevelColumns, func() []PriorityLevelObject { return Levels(c.Levels(), c.Flows()) }),
	}
}

// Name returns the name of a flow: that of its flow schema, and a hash of its distinguisher if that is not empty. It is the
// same on all servers.
func Name(schema, distinguisher string) string {
	if distinguisher == "" {
		return schema
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(distinguisher))
	return fmt.Sprintf("%s:%016x", schema, h.Sum64())
}

// Flows returns flows as objects.
func Flows(states []flow.FlowState, now time.Time) []FlowObject {
	list := make([]FlowObject, len(states))
	for i, f := range states {
		x := FlowStatus{
			FlowSchema: f.FlowState.Schema, DistinguisherMethod: f.Schema.Distinguisher, Distinguisher: f.Distinguisher, PriorityLevel: f.Level, Exempt: f.Exempt,
			Source: f.Schema.Source.String(), Executing: int64(f.Executing), Seats: int64(f.Taken), Waiting: int64(f.Waiting), WaitingSeats: int64(f.WaitingSeats),
			LongestWait: wait(f.Waits), Watches: int64(f.Watches), WatchLimit: int64(f.Schema.Watches),
			Refused: f.Refused.Total(), Refusals: counts(f.Refused), RefusedSince: moment(f.First), LastRefused: moment(f.Last),
		}
		list[i] = FlowObject{TypeMeta: metav1.TypeMeta{APIVersion: Group + "/" + Version, Kind: FlowKind}, ObjectMeta: metav1.ObjectMeta{Name: Name(x.FlowSchema, x.Distinguisher)}, Status: x}
	}
	return list
}

// Levels returns priority levels as objects.
func Levels(states []flow.LevelState, of []flow.FlowState) []PriorityLevelObject {
	longest := map[string]time.Duration{}
	for _, f := range of {
		longest[f.Level] = max(longest[f.Level], f.Waits)
	}
	list := make([]PriorityLevelObject, len(states))
	for i, l := range states {
		d := l.Seats.Demand
		x := PriorityLevelStatus{
			Exempt: l.Exempt, Draining: l.Draining, Source: l.Source.String(), Shares: int64(l.NominalConcurrencyShares),
			NominalSeats: int64(l.Seats.Nominal), LowerLimitSeats: int64(l.Seats.Lower), UpperLimitSeats: int64(l.Seats.Upper), CurrentSeats: int64(l.Seats.Current),
			Seats: int64(l.Queues.Taken), Executing: int64(l.Queues.Executing), Waiting: int64(l.Queues.Waiting), WaitingSeats: int64(l.Queues.WaitingSeats), LongestWait: wait(longest[l.Name]),
			MaxSeatsPerRequest: int64(l.PerRequest),
			Demand:             Demand{HighWatermark: int64(d.High), Average: d.Average, StandardDeviation: d.Deviation, Smoothed: d.Smoothed},
			Dispatched:         int64(l.Queues.Dispatched), Refused: l.Refused.Total(), Refusals: counts(l.Refused), RetryAfterSeconds: l.RetryAfter,
		}
		if q := l.Queuing; q != nil {
			x.Queues, x.HandSize, x.QueueLengthLimit = int64(q.Queues), int64(q.HandSize), int64(q.QueueLengthLimit)
		}
		list[i] = PriorityLevelObject{TypeMeta: metav1.TypeMeta{APIVersion: Group + "/" + Version, Kind: LevelKind}, ObjectMeta: metav1.ObjectMeta{Name: l.Name}, Status: x}
	}
	return list
}

// counts returns the refusals that there are.
func counts(c flow.Counts) (list []Refusal) {
	for i, n := range c {
		if n > 0 {
			list = append(list, Refusal{flow.Reasons[i], n})
		}
	}
	return list
}

// wait returns how long a request waits, to the millisecond.
func wait(d time.Duration) string {
	if d <= 0 {
		return ""
	}
	return d.Round(time.Millisecond).String()
}

func moment(t time.Time) *metav1.Time {
	if t.IsZero() {
		return nil
	}
	m := metav1.NewTime(t.Truncate(time.Second).UTC())
	return &m
}
