package proof

import (
	"context"

	"stele.dev/stele/eventlog"
)

// LogSource reads a log that is not split into segments.
type LogSource struct{ Log *eventlog.Log }

var _ Source = LogSource{}

// Segments implements [Source].
func (LogSource) Segments() []Run { return nil }

// Read implements [Source].
func (s LogSource) Read(ctx context.Context, after eventlog.Head) ([]Item, error) {
	batches, err := s.Log.Verbatim(ctx, after)
	items := make([]Item, len(batches))
	for i, b := range batches {
		items[i].Batch = b
	}
	return items, err
}
