package replicas

import (
	"context"
	"errors"

	"stele.dev/stele/core/commit"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/logpb"
)

// raise raises the format level of the log to the highest that every live replica reads, but not beyond the operator's
// limit. A replica that is not live now, and does not read it, refuses to start.
func (r *Registry) raise(ctx context.Context) {
	// Confirming first shows the leases that were renewed while this process did not run.
	tip, err := r.o.Committer.Confirm(ctx)
	if err != nil || tip.Policy == nil {
		return
	}
	now := r.o.Log.Level()
	level, by := r.common()
	if level <= now {
		return
	}
	entry, err := eventlog.Encode(&eventlog.Event{Meta: &logpb.Metadata{
		Type: logpb.Type_TYPE_LEVEL_RAISED, Actor: &logpb.Actor{User: User},
		Detail: &logpb.Metadata_LevelRaised{LevelRaised: &logpb.LevelRaised{Format: level}},
	}})
	if err == nil {
		_, _, err = r.o.Committer.Commit(ctx, &commit.Proposal{Entry: entry, Checks: commit.Checks{PolicyRevision: tip.PolicyRevision()}})
	}
	switch {
	case err == nil:
		r.o.Logger.Warn("the format level of the log was raised; older versions of the program cannot read it any more", "from", now, "to", level, "replicas", by)
	case ctx.Err() == nil && !errors.As(err, new(*commit.Stale)):
		r.o.Logger.Warn("the format level of the log could not be raised; it is tried again", "to", level, "error", err)
	}
}

// common returns the highest level that every live replica reads, within the operator's limit, and how many they are.
func (r *Registry) common() (level uint32, live int) {
	level = r.o.Log.Reads()
	if r.o.Level > 0 {
		level = min(level, r.o.Level)
	}
	all := r.Live()
	for _, x := range all {
		level = min(level, x.Reads)
	}
	return level, len(all)
}
