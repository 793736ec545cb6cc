package plane

import (
	"context"
	"time"

	"stele.dev/stele/core/record/audit"
	"stele.dev/stele/core/record/decisions"
	"stele.dev/stele/eventlog"
)

// Decisions says how the log of decisions is kept, which is in the folder decisions of Dir. See package decisions.
type Decisions struct {
	// Bytes and Age say how much is kept; 0 for the defaults of package decisions.
	Bytes int64
	Age   time.Duration
	// Budget is how fast the log grows; the zero Budget for [decisions.DefaultBudget].
	Budget decisions.Budget
	// Unanchored leaves out the events in the log of record that have the head of the log of decisions.
	Unanchored bool
}

// DecisionsFolder is the name of the folder of the log of decisions, in the folder of a plane.
const DecisionsFolder = "decisions"

// openDecisions opens the log of decisions.
func (p *Plane) openDecisions(ctx context.Context) (err error) {
	c := &p.config.Decisions
	o := decisions.Options{
		Key: p.hashes, Keys: p.contentKeys(), Dir: p.path(DecisionsFolder), Bytes: c.Bytes, Age: c.Age, Budget: c.Budget, Software: "stele " + p.config.Version.GitVersion, Logger: p.config.Logger,
	}
	if !c.Unanchored {
		o.Anchor = p.anchorDecisions
	}
	if p.Decisions, err = decisions.Open(ctx, o); err != nil {
		return err
	}
	p.onClose(p.Decisions.Close)
	return p.register(p.Decisions.Metrics())
}

// anchorDecisions records the head of the log of decisions in the log of record, and how far shared sinks are.
func (p *Plane) anchorDecisions(ctx context.Context, head eventlog.Head) error {
	entry, err := decisions.Anchor(p.Replicas.ID(), head, audit.Cursors(p.sharedSinks()))
	if err != nil {
		return err
	}
	_, err = p.Committer.Record(ctx, entry)
	return err
}

// backDecisions says where a search in the log of decisions goes on.
func (p *Plane) backDecisions(revision uint64, user, rule string) uint64 {
	return p.Decisions.Back(revision, decisions.Sought{User: user, Rule: rule})
}
