package top

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"stele.dev/stele/cmd/stele/internal/client"
)

// overview is what a server does, as a document. Rates are of the time between two samples.
type overview struct {
	APIVersion  string          `json:"apiVersion"`
	Kind        string          `json:"kind"`
	Server      string          `json:"server"`
	Version     string          `json:"version,omitempty"`
	Time        time.Time       `json:"time"`
	Started     *time.Time      `json:"started,omitempty"`
	Seconds     float64         `json:"seconds"` // between the samples
	Requests    []requests      `json:"requests"`
	Watches     []resourceCount `json:"watches"`
	Memory      memory          `json:"memory"`
	Log         logState        `json:"log"`
	Connections *connections    `json:"connections,omitempty"`
	Levels      []level         `json:"levels"`
}

// requests are the answered requests of a verb. A latency in the first bucket is not known: only that it is less.
type requests struct {
	Verb      string             `json:"verb"`
	PerSecond float64            `json:"perSecond"`
	Codes     map[string]float64 `json:"codes"` // per second
	P50       *latency           `json:"p50,omitempty"`
	P99       *latency           `json:"p99,omitempty"`
}

// latency is a quantile of durations.
type latency struct {
	Seconds float64 `json:"seconds"`
	Less    bool    `json:"less,omitempty"` // it is less than Seconds
	More    bool    `json:"more,omitempty"` // it is more than Seconds
}

// resourceCount is a number of watches.
type resourceCount struct {
	Resource string `json:"resource"`
	Count    int    `json:"count"`
}

// memory is what the process uses, and what requests have taken of the budget.
type memory struct {
	HeapBytes        float64            `json:"heapBytes"`
	ResidentBytes    float64            `json:"residentBytes"`
	BudgetBytes      float64            `json:"budgetBytes,omitempty"`
	TakenBytes       map[string]float64 `json:"takenBytes,omitempty"` // by kind
	Waiting          float64            `json:"waiting,omitempty"`    // requests that wait for memory
	RefusedPerSecond float64            `json:"refusedPerSecond,omitempty"`
}

// connections are the clients' connections.
type connections struct {
	Open              float64 `json:"open"`
	Limit             float64 `json:"limit,omitempty"`
	Opening           float64 `json:"opening"` // before their first request
	Sources           float64 `json:"sources"` // addresses
	AcceptedPerSecond float64 `json:"acceptedPerSecond"`
	RefusedPerSecond  float64 `json:"refusedPerSecond"`
	ClosedPerSecond   float64 `json:"closedPerSecond"` // by a limit
}

// logState is the state of the log.
type logState struct {
	Revision       float64  `json:"revision"`
	PerSecond      float64  `json:"appendedPerSecond"`
	HistoryLag     float64  `json:"historyLag"` // revisions
	UsedBytes      float64  `json:"usedBytes,omitempty"`
	AllocatedBytes float64  `json:"allocatedBytes,omitempty"`
	LimitBytes     float64  `json:"limitBytes,omitempty"`
	AppendP50      *latency `json:"appendP50,omitempty"`
	AppendP99      *latency `json:"appendP99,omitempty"`
}

// level is a priority level, with the seats that it has now.
type level struct {
	Name             string  `json:"name"`
	Seats            float64 `json:"seats"`
	Nominal          float64 `json:"nominalSeats"`
	Taken            float64 `json:"takenSeats"`
	Executing        float64 `json:"executing"`
	Waiting          float64 `json:"waiting"`
	RefusedPerSecond float64 `json:"refusedPerSecond"`
}

// exempt is the name of the level whose requests never wait. It has no limit of seats.
const exempt = "exempt"

// compare returns what a server did between two samples.
func compare(server string, before, after *sample) *overview {
	o := &overview{APIVersion: client.DocumentVersion, Kind: "Top", Server: server, Time: after.at.UTC(), Seconds: after.at.Sub(before.at).Seconds()}
	if started, known := after.sum("process_start_time_seconds"); known {
		at := time.UnixMilli(int64(started * 1000)).UTC()
		o.Started = &at
	}
	d := delta{before, after, o.Seconds}
	o.Requests = d.requests()
	o.Watches = watches(after)
	o.Memory = d.memory()
	o.Log = d.log()
	o.Connections = d.connections()
	o.Levels = d.levels()
	return o
}

// delta computes rates.
type delta struct {
	before, after *sample
	seconds       float64
}

// rates returns how fast the series of a counter rise, added up by the values of labels, which are joined by a zero byte.
func (d delta) rates(name string, labels ...string) map[string]float64 {
	earlier := map[string]float64{}
	every := func(m string, into map[string]float64, s *sample) {
		s.eachSeries(m, func(v float64, values []string) { into[strings.Join(values, "\x00")] += v }, labels...)
	}
	now := map[string]float64{}
	every(name, earlier, d.before)
	every(name, now, d.after)
	for key, v := range now {
		if v >= earlier[key] { // else the server has restarted
			v -= earlier[key]
		}
		now[key] = v / d.seconds
	}
	return now
}

// rate returns how fast a counter rises.
func (d delta) rate(name string) float64 { return d.rates(name)[""] }

func (d delta) requests() []requests {
	by := map[string]*requests{}
	for key, rate := range d.rates("apiserver_request_total", "verb", "code") {
		verb, code, _ := strings.Cut(key, "\x00")
		if rate == 0 {
			continue
		}
		r := by[verb]
		if r == nil {
			r = &requests{Verb: verb, Codes: map[string]float64{}}
			by[verb] = r
		}
		r.PerSecond += rate
		r.Codes[code] += rate
	}
	const name = "apiserver_request_duration_seconds"
	earlier := d.before.histograms(name, "verb")
	for verb, h := range d.after.histograms(name, "verb") {
		if r := by[verb]; r != nil && verb != "WATCH" && verb != "CONNECT" { // they end when the client wants
			r.P50, r.P99 = quantiles(h.subtract(earlier[verb]))
		}
	}
	all := []requests{}
	for _, verb := range slices.Sorted(maps.Keys(by)) {
		all = append(all, *by[verb])
	}
	slices.SortStableFunc(all, func(a, b requests) int { return cmp.Compare(b.PerSecond, a.PerSecond) })
	return all
}

// quantiles returns the quantiles 0.5 and 0.99, nil without observations.
func quantiles(h *histogram) (p50, p99 *latency) {
	of := func(q float64) *latency {
		v, less := h.quantile(q)
		switch {
		case math.IsNaN(v):
			return nil
		case math.IsInf(v, 1):
			bound := 0.0
			for _, b := range h.bounds {
				if !math.IsInf(b, 1) {
					bound = b
				}
			}
			return &latency{Seconds: bound, More: true}
		}
		return &latency{Seconds: v, Less: less}
	}
	return of(0.5), of(0.99)
}

// watches counts the open watches by resource, most first.
func watches(s *sample) []resourceCount {
	by := map[string]int{}
	s.eachSeries("apiserver_longrunning_requests", func(v float64, l []string) {
		if v > 0 {
			by[strings.TrimSuffix(l[0]+"."+l[1], ".")] += int(v)
		}
	}, "resource", "group")
	all := []resourceCount{}
	for _, name := range slices.Sorted(maps.Keys(by)) {
		all = append(all, resourceCount{name, by[name]})
	}
	slices.SortStableFunc(all, func(a, b resourceCount) int { return cmp.Compare(b.Count, a.Count) })
	return all
}

func (d delta) memory() memory {
	var m memory
	m.HeapBytes, _ = d.after.sum("go_memstats_heap_inuse_bytes")
	m.ResidentBytes, _ = d.after.sum("process_resident_memory_bytes")
	m.BudgetBytes, _ = d.after.sum("stele_memory_budget_bytes")
	m.Waiting, _ = d.after.sum("stele_memory_waiting")
	m.RefusedPerSecond = d.rate("stele_memory_refused_total")
	d.after.eachSeries("stele_memory_taken_bytes", func(v float64, l []string) {
		if m.TakenBytes == nil {
			m.TakenBytes = map[string]float64{}
		}
		m.TakenBytes[l[0]] += v
	}, "kind")
	return m
}

func (d delta) log() logState {
	var l logState
	l.Revision, _ = d.after.sum("stele_log_revision")
	if before, known := d.before.sum("stele_log_revision"); known && before <= l.Revision {
		l.PerSecond = (l.Revision - before) / d.seconds
	}
	if past, known := d.after.sum("stele_history_revision"); known {
		l.HistoryLag = max(0, l.Revision-past)
	}
	l.UsedBytes, _ = d.after.sum("stele_log_used_bytes")
	l.AllocatedBytes, _ = d.after.sum("stele_log_allocated_bytes")
	l.LimitBytes, _ = d.after.sum("stele_log_limit_bytes")
	const name = "stele_etcd_request_seconds"
	if h := d.after.histograms(name, "operation")["append"]; h != nil {
		l.AppendP50, l.AppendP99 = quantiles(h.subtract(d.before.histograms(name, "operation")["append"]))
	}
	return l
}

// connections returns nil for an older server.
func (d delta) connections() *connections {
	const prefix = "stele_connections_"
	var c connections
	var known bool
	if c.Open, known = d.after.sum(prefix + "open"); !known {
		return nil
	}
	c.Limit, _ = d.after.sum(prefix + "limit")
	c.Opening, _ = d.after.sum(prefix + "opening")
	c.Sources, _ = d.after.sum(prefix + "sources")
	c.AcceptedPerSecond, c.RefusedPerSecond, c.ClosedPerSecond = d.rate(prefix+"accepted_total"), d.rate(prefix+"refused_total"), d.rate(prefix+"closed_total")
	return &c
}

// levels returns the priority levels by name.
func (d delta) levels() []level {
	const prefix = "apiserver_flowcontrol_"
	by := map[string]*level{}
	add := func(name string, field func(*level) *float64) {
		d.after.eachSeries(prefix+name, func(v float64, l []string) {
			if by[l[0]] == nil {
				by[l[0]] = &level{Name: l[0]}
			}
			*field(by[l[0]]) += v
		}, "priority_level")
	}
	add("nominal_limit_seats", func(l *level) *float64 { return &l.Nominal })
	add("current_limit_seats", func(l *level) *float64 { return &l.Seats })
	add("current_executing_seats", func(l *level) *float64 { return &l.Taken })
	add("current_executing_requests", func(l *level) *float64 { return &l.Executing })
	add("current_inqueue_requests", func(l *level) *float64 { return &l.Waiting })
	for name, rate := range d.rates(prefix+"rejected_requests_total", "priority_level") {
		if l := by[name]; l != nil {
			l.RefusedPerSecond = rate
		}
	}
	all := []level{}
	for _, name := range slices.Sorted(maps.Keys(by)) {
		all = append(all, *by[name])
	}
	slices.SortStableFunc(all, func(a, b level) int {
		return cmp.Or(cmp.Compare(b.Waiting, a.Waiting), cmp.Compare(b.Taken, a.Taken))
	})
	return all
}
