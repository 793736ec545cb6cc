package commit_test

import (
	"context"
	"testing"
	"time"

	"stele.dev/stele/core/commit"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/memlog"
	"stele.dev/stele/projections/objects"
)

// A checkpoint can be of a revision at which no batch of the log ends any more. Whoever folds the log up to there learns
// that, and does not read the batch that follows for ever.
func TestARebuildEndsBeforeABatchThatGoesFurther(t *testing.T) {
	log, err := eventlog.Open(t.Context(), new(memlog.Store).Open(nil), eventlog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	begun, err := log.CatchUp(t.Context(), log.Start()) // the batch that names the log
	if err != nil || len(begun) == 0 {
		t.Fatal(begun, err)
	}
	tip := begun[len(begun)-1].Head()
	for _, names := range [][]string{{"a"}, {"b", "c", "d"}} {
		var entries []*eventlog.Entry
		for _, name := range names {
			entries = append(entries, create(t, name))
		}
		won, _, err := log.Append(t.Context(), tip, eventlog.NewDraft(entries))
		if err != nil || won == nil {
			t.Fatal(won, err)
		}
		tip = won.Head()
	}
	first, last := tip.Revision-3, tip.Revision
	for to, want := range map[uint64]uint64{first: first, first + 1: first, first + 2: first, last: last} {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		got, err := commit.Rebuild(ctx, commit.Options{Log: log, Objects: objects.New(1)}, nil, to, ctx.Err)
		if err != nil || got.Revision() != want {
			t.Errorf("up to %d: %v, %v, want %d", to, got, err, want)
		}
	}
}
