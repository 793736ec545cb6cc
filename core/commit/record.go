package commit

import (
	"context"
	"errors"

	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/logpb"
)

// Record commits an event about the log itself, under whatever policy is in force, and returns its revision. Errors are those
// of [Committer.Commit].
func (c *Committer) Record(ctx context.Context, entry *eventlog.Entry) (uint64, error) {
	for {
		_, revision, err := c.Commit(ctx, &Proposal{Entry: entry, Checks: Checks{PolicyRevision: c.Tip().PolicyRevision()}})
		if !errors.As(err, new(*Stale)) || ctx.Err() != nil {
			return revision, err
		}
		if _, err := c.Confirm(ctx); err != nil { // another policy was activated
			return 0, err
		}
	}
}

// RecordHead commits an event that is never forgotten, so that the tree head that ends with it stays comparable.
func (c *Committer) RecordHead(ctx context.Context) (uint64, error) {
	entry, err := eventlog.Encode(&eventlog.Event{Meta: &logpb.Metadata{Type: logpb.Type_TYPE_TREE_HEAD_TAKEN, Skippable: true}})
	if err != nil {
		return 0, err
	}
	return c.Record(ctx, entry)
}
