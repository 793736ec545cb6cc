package retention

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/core/call"
	"stele.dev/stele/core/serve/nonresource"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/reach"
)

// Report says what is kept of each kind. It is the JSON of /log/retention.
type Report struct {
	// Horizon is the time from which ages are counted; zero before the first pass.
	Horizon time.Time `json:"horizon,omitzero"`
	// Bytes is the size of all segments, and MaxBytes its limit, if there is one.
	Bytes    int64  `json:"bytes"`
	MaxBytes int64  `json:"maxBytes,omitempty"`
	Kinds    []Kind `json:"kinds"`
}

// Kind says what is kept of one kind, in segments: newer events are in etcd.
type Kind struct {
	Group    string `json:"group,omitempty"`
	Resource string `json:"resource"`
	// History and Records are how long versions and records are kept, as durations; "all" for no limit.
	History  string `json:"history"`
	Records  string `json:"records"`
	MaxBytes int64  `json:"maxBytes,omitempty"`
	// Rule and Source name the retention in the policy; empty for the default of the program.
	Rule   string `json:"rule,omitempty"`
	Source string `json:"source,omitempty"`
	// Oldest is the oldest revision that can be read, and Since its time.
	Oldest uint64    `json:"oldest"`
	Since  time.Time `json:"since"`
	// Versions and Events are how many versions, and records of events, are kept. Bytes is what the versions take on
	// disk, and Metadata what the records take before compression.
	Versions uint64 `json:"versions"`
	Events   uint64 `json:"events"`
	Bytes    int64  `json:"bytes"`
	Metadata int64  `json:"metadata"`
}

// Report returns what is kept now. It is safe for concurrent use.
func (e *Eraser) Report(ctx context.Context) *Report {
	report := &Report{MaxBytes: e.MaxBytes, Kinds: []Kind{}}
	if at := e.at.Load(); at != nil {
		report.Horizon = *at
	}
	tip := e.Tip()
	byKind := map[schema.GroupResource]*Kind{}
	for _, s := range e.Archive.Segments() {
		report.Bytes += s.Size()
		for _, g := range s.Groups {
			r := groupResource(&g)
			if r.Empty() {
				continue
			}
			k := byKind[r]
			if k == nil {
				k = e.describe(ctx, tip.Policy, r)
				byKind[r] = k
			}
			k.Versions, k.Events, k.Bytes, k.Metadata = k.Versions+g.Payloads, k.Events+g.Events, k.Bytes+g.Stored, k.Metadata+g.Metadata
		}
	}
	for _, k := range byKind {
		report.Kinds = append(report.Kinds, *k)
	}
	slices.SortFunc(report.Kinds, func(a, b Kind) int { return strings.Compare(a.Resource+"."+a.Group, b.Resource+"."+b.Group) })
	return report
}

// describe returns how long a kind is kept, and since when.
func (e *Eraser) describe(ctx context.Context, p *policy.Policy, r schema.GroupResource) *Kind {
	kept := e.kept(p, r)
	k := &Kind{
		Group: r.Group, Resource: r.Resource, History: text(kept.History), Records: text(kept.Records), MaxBytes: kept.Bytes,
		Rule: kept.ID, Source: kept.Source.String(), Oldest: max(1, e.History.OldestOf(r)),
	}
	if at, err := e.History.Time(ctx, k.Oldest); err == nil {
		k.Since = at
	}
	return k
}

func text(d time.Duration) string {
	if d == reach.Forever {
		return "all"
	}
	return d.String()
}

// Path is the path of the [Report] in the API.
const Path = "/log/retention"

// Route serves the report.
func (e *Eraser) Route() nonresource.Route {
	return nonresource.Route{Path: Path, Serve: func(c *call.Call) error {
		return c.WriteRaw(http.StatusOK, e.Report(c.HTTP.Context()))
	}}
}
