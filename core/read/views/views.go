// Package views answers what the rows of a view are: at the tip, at a past revision, and as a watch. Package core/read serves
// them, as it serves the objects of any kind.
//
// At the tip, and at revisions that memory goes back to, the rows are those that projections/views keeps. At older revisions they
// are computed from the objects of that revision. A read below /at uses the definition of the view that was in force then; a read
// of an exact revision without /at uses today's.
package views

import (
	"context"
	"errors"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	"stele.dev/stele/core/commit"
	"stele.dev/stele/core/object/versions"
	"stele.dev/stele/core/past"
	"stele.dev/stele/core/status"
	"stele.dev/stele/limits/lru"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/views"
	"stele.dev/stele/projections/objects"
	projection "stele.dev/stele/projections/views"
)

// Options for [New].
type Options struct {
	Committer *commit.Committer
	Past      *past.Past
	Logger    *slog.Logger
}

// Service answers what the rows of views are. It is safe for concurrent use.
type Service struct {
	Options
	*projection.Projection
	computed *lru.Cache[place, *objects.State] // at past revisions
}

// place is a view of a policy, a namespace and a revision.
type place struct {
	view      *views.View
	namespace string
	revision  uint64
}

// bytesKept limits the memory of rows at past revisions.
const bytesKept = 16 << 20

// New returns a service.
func New(o Options) *Service {
	return &Service{Options: o, computed: lru.New[place, *objects.State](bytesKept), Projection: projection.New(projection.Options{
		Objects: o.Committer.Objects(), Newest: func() projection.Snapshot { return snapshot(o.Committer.Tip()) },
		PolicyChanged: o.Committer.PolicyChanged, Show: show, Logger: o.Logger,
	})}
}

func snapshot(tip *commit.Tip) projection.Snapshot {
	return projection.Snapshot{Revision: tip.Revision(), Objects: tip.Objects, Policy: tip.Policy}
}

// show returns the function that converts stored objects to a version. An object that cannot be converted is shown as it is
// stored, so that expressions of the view fail on it, which leaves it out.
func show(v *policy.Version) func([]byte) []byte {
	as := versions.As(v)
	return func(json []byte) []byte {
		text, err := as.Of(json)
		if err != nil {
			return json
		}
		return text
	}
}

// State returns the rows of a version of a view's kind at a tip. It waits for rows that are being computed, for a limited time.
func (s *Service) State(ctx context.Context, tip *commit.Tip, rows *policy.Version) (*objects.State, error) {
	v, err := views.Of(rows)
	if err != nil {
		return nil, err
	}
	state, err := s.Projection.State(ctx, snapshot(tip), v)
	return state, notReady(v, err)
}

// Wait waits for rows that are being computed, for a limited time.
func (s *Service) Wait(ctx context.Context, tip *commit.Tip, rows *policy.Version) error {
	v, err := views.Of(rows)
	if err != nil {
		return err
	}
	return notReady(v, s.Projection.Wait(ctx, snapshot(tip), v))
}

// notReady returns the error as clients get it.
func notReady(v *views.View, err error) error {
	if errors.Is(err, projection.ErrNotReady) {
		return status.Unavailable("the view " + v.Form.Name + " is being computed, because the server has started or the definition of the view or its kind has changed; try again soon")
	}
	return err
}

// At returns the rows at a revision up to that of the tip. They may be of a namespace only, if that is not "".
func (s *Service) At(ctx context.Context, tip *commit.Tip, rows *policy.Version, namespace string, revision uint64) (*objects.State, error) {
	v, err := views.Of(rows)
	if err != nil {
		return nil, err
	}
	if tip.Policy.Version(rows.GroupVersionResource()) == rows {
		if state, ok := s.Recent(snapshot(tip), v, revision); ok {
			return state, nil
		}
	}
	if v.Grouped() {
		namespace = ""
	}
	at := place{v, namespace, revision}
	if state, found := s.computed.Get(at); found {
		return state, nil
	}
	of, err := s.Past.Objects(ctx, tip, v.Source, namespace, revision)
	if err != nil {
		return nil, err
	}
	state, err := projection.Compute(ctx, v, of, show(v.Kind.Reads), namespace)
	if err != nil {
		return nil, err
	}
	s.computed.Add(at, state, int(state.Total(v.Resource, "").Bytes)+256*state.Len(v.Resource))
	return state, nil
}

// Watch returns the source of the events after a revision up to that of the tip.
func (s *Service) Watch(tip *commit.Tip, rows *policy.Version, sel objects.Selection, after uint64, resumed bool) (*projection.Watcher, error) {
	v, err := views.Of(rows)
	if err != nil {
		return nil, err
	}
	return s.Projection.Watch(snapshot(tip), v, sel, after, resumed)
}

// Changes returns the events from one state of the rows to a later one. Deletions have the revision of the later one.
func Changes(rows *policy.Version, before, after *objects.State, sel *objects.Selection) (events []objects.Event) {
	r := rows.Kind.GroupResource()
	for was := range before.List(r, sel, "", "") {
		if is := after.Get(r, was.Namespace, was.Name); is == nil || !sel.Matches(is) {
			events = append(events, objects.Event{Type: objects.Deleted, Object: was.At(after.Revision)})
		}
	}
	for is := range after.List(r, sel, "", "") {
		switch was := before.Get(r, is.Namespace, is.Name); {
		case was == nil || !sel.Matches(was):
			events = append(events, objects.Event{Type: objects.Added, Object: is})
		case !was.SameJSON(is):
			events = append(events, objects.Event{Type: objects.Modified, Object: is})
		}
	}
	return events
}

// Collector returns the metrics of views.
func (s *Service) Collector() prometheus.Collector { return collector{s} }

type collector struct{ *Service }

var (
	rowsMetric     = prometheus.NewDesc("stele_view_rows", "Rows of a view.", []string{"view"}, nil)
	bytesMetric    = prometheus.NewDesc("stele_view_bytes", "Size of the rows of a view in JSON.", []string{"view"}, nil)
	readyMetric    = prometheus.NewDesc("stele_view_ready", "0 while a view is being computed.", []string{"view"}, nil)
	failedMetric   = prometheus.NewDesc("stele_view_failed_expressions_total", "Expressions of a view that failed on an object, for example because a field is missing.", []string{"view"}, nil)
	computedMetric = prometheus.NewDesc("stele_views_computed_total", "Views that were computed from all objects.", nil, nil)
)

// Describe implements prometheus.Collector.
func (c collector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{rowsMetric, bytesMetric, readyMetric, failedMetric, computedMetric} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (c collector) Collect(to chan<- prometheus.Metric) {
	stats, computed := c.Stats()
	for _, s := range stats {
		ready := 0.0
		if s.Ready {
			ready = 1
		}
		to <- prometheus.MustNewConstMetric(rowsMetric, prometheus.GaugeValue, float64(s.Rows.Objects), s.Name)
		to <- prometheus.MustNewConstMetric(bytesMetric, prometheus.GaugeValue, float64(s.Rows.Bytes), s.Name)
		to <- prometheus.MustNewConstMetric(readyMetric, prometheus.GaugeValue, ready, s.Name)
		to <- prometheus.MustNewConstMetric(failedMetric, prometheus.CounterValue, float64(s.Failed), s.Name)
	}
	to <- prometheus.MustNewConstMetric(computedMetric, prometheus.CounterValue, float64(computed))
}
