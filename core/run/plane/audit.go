package plane

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	auditing "stele.dev/stele/core/record/audit"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/limits/steady"
	"stele.dev/stele/projections/audit"
)

// Audit says where the audit log goes, beside or in place of a file.
type Audit struct {
	// Rotation says how large the file gets, and how many are kept.
	Rotation audit.Rotation
	// Sinks get the lines, too.
	Sinks []AuditSink
}

// AuditSink is one that gets audit lines.
type AuditSink struct {
	auditing.Sink
	Batching auditing.Batching
	// Local says that the sink belongs to this replica: it gets the lines of all writes, as the file does. Other sinks get
	// those from the leader.
	Local bool
}

// sink is what sends the lines of one log to a sink.
type sink struct {
	*auditing.Feeder
	log    string
	shared bool // among replicas
}

// openAudit opens the audit file and what feeds the sinks.
func (p *Plane) openAudit() (err error) {
	c := &p.config
	record := p.Decisions.Log()
	if c.AuditFile != "" {
		p.audit, err = audit.Open(audit.Options{
			File: c.AuditFile, Log: p.Log, Start: p.Log.Start(), Decisions: record, DecisionsStart: record.Start(), Rotation: c.Audit.Rotation, Key: p.hashes, Logger: c.Logger,
		})
		if err != nil {
			return err
		}
	}
	if err := p.register([]prometheus.Collector{prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "apiserver_audit_event_total", Help: "Counter of audit events generated and sent to the audit backend.",
	}, p.auditLines)}); err != nil || len(c.Audit.Sinks) == 0 {
		return err
	}
	if err := os.MkdirAll(p.path("audit"), 0o700); err != nil {
		return err
	}
	metrics := auditing.NewMetrics()
	for _, s := range c.Audit.Sinks {
		o := auditing.Options{Sink: s.Sink, Batching: s.Batching, Key: p.hashes, Metrics: metrics, Logger: c.Logger}
		o.LogName, o.Log, o.Start, o.File = auditing.DecisionsLog, record, record.Start(), p.path("audit", fmt.Sprintf("sink-%s-decisions.cursor", s.Name()))
		p.sinks = append(p.sinks, sink{auditing.NewFeeder(o), o.LogName, false})
		o.LogName, o.Log, o.Start, o.File = auditing.RecordLog, p.Log, p.Log.Start(), p.path("audit", fmt.Sprintf("sink-%s-record.cursor", s.Name()))
		o.Begin = p.Committer.Tip().Head // what is written from now on
		if !s.Local {
			o.Leads = func() bool { return p.Replicas.Alone() || p.Replicas.Leading() }
		}
		p.sinks = append(p.sinks, sink{auditing.NewFeeder(o), o.LogName, !s.Local})
	}
	return c.Metrics.Register(metrics)
}

// auditLines returns how many lines of the audit log this process has made: those of the file, or without one those that the first
// sink has taken.
func (p *Plane) auditLines() (n float64) {
	if p.audit != nil {
		return float64(p.audit.Lines())
	}
	for _, s := range p.sinks[:min(2, len(p.sinks))] { // for each sink there are two: one for each log
		n += float64(s.Lines())
	}
	return n
}

// addAudit adds what writes the audit log.
func (p *Plane) addAudit(g *group) {
	if len(p.sinks) > 0 {
		g.actor("audit lines", p.feedSinks)
	}
	if len(p.sinks) > 0 && !p.config.Decisions.Unanchored {
		g.oncePrepared("cursors of audit sinks", p.anchorSinks)
	}
	if p.audit != nil {
		g.actor("audit", p.audit.Run)
	}
}

// feedSinks sends lines to all sinks until the context ends. They get their last lines at the same time, so that those that hang hold up
// the end no longer than one does.
func (p *Plane) feedSinks(ctx context.Context) error {
	var running sync.WaitGroup
	for _, s := range p.sinks {
		running.Go(func() { _ = s.Run(ctx) }) // the error is that of the context
	}
	running.Wait()
	return ctx.Err()
}

// sinkFloor returns the revision up to which no sink needs the log any more.
func (p *Plane) sinkFloor() uint64 {
	floor := uint64(math.MaxUint64)
	for _, s := range p.sinks {
		if s.log == auditing.RecordLog {
			floor = min(floor, s.Floor())
		}
	}
	return floor
}

// sinkHealth returns which sinks take no lines.
func (p *Plane) sinkHealth() error {
	var errs []error
	for _, s := range p.sinks {
		errs = append(errs, s.Health())
	}
	return errors.Join(errs...)
}

// sharedSinks returns what feeds the sinks that this replica feeds for all; nil if it does not lead.
func (p *Plane) sharedSinks() (shared []*auditing.Feeder) {
	if p.Replicas.Alone() || !p.Replicas.Leading() {
		return nil
	}
	for _, s := range p.sinks {
		if s.shared {
			shared = append(shared, s.Feeder)
		}
	}
	return shared
}

// anchorSinks records in the log how far the sinks are that this replica feeds for all: when it begins to lead, so that a replica
// which starts later knows where they began, and each minute in which it has sent something.
func (p *Plane) anchorSinks(ctx context.Context) error {
	var anchored uint64 // lines that were sent before the newest record
	var at time.Time    // of the newest record; the zero Time while this replica does not lead
	for range steady.Every(ctx, time.Second) {
		shared := p.sharedSinks()
		lines, ready := uint64(0), len(shared) > 0
		for _, s := range shared {
			lines, ready = lines+s.Lines(), ready && s.Cursor().GetRevision() > 0
		}
		if !ready {
			at = time.Time{}
			continue
		}
		if !at.IsZero() && (time.Since(at) < time.Minute || lines == anchored) {
			continue
		}
		head, err := p.decisionsHead(ctx)
		if err == nil {
			err = p.anchorDecisions(ctx, head)
		}
		if err != nil && at.IsZero() {
			continue // the next second tries again
		}
		if at = time.Now(); err != nil {
			p.config.Logger.Warn("how far the sinks of the audit log are is not recorded in the log; the next minute tries again", "error", err)
			continue
		}
		anchored = lines
	}
	return ctx.Err()
}

// decisionsHead returns the newest position of the log of decisions.
func (p *Plane) decisionsHead(ctx context.Context) (eventlog.Head, error) {
	newest, err := p.Decisions.Log().Back(ctx, math.MaxUint64, 1)
	if err != nil || len(newest) == 0 {
		return p.Decisions.Log().Start(), err
	}
	return newest[0].Head(), nil
}
