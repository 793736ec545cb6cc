package audit

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	"stele.dev/stele/eventlog"
	"stele.dev/stele/limits/steady"
)

// arrival is what came next in one of the logs, or the error with which the log of record ended.
type arrival struct {
	which   int
	batches []*eventlog.Batch
	gap     *Gap // what is missing before the batches; nil for nothing
	err     error
}

// Gap is what a log does not have any more although it was not read.
type Gap struct {
	From, To uint64 // the first and the last missing revision
}

// follow reads both logs from the position on. It reads ahead one answer of each log. The function that it returns ends
// that.
func (w *Writer) follow(ctx context.Context) (arrivals <-chan arrival, end func()) {
	ctx, cancel := context.WithCancel(ctx)
	all := make(chan arrival)
	var running sync.WaitGroup
	for which, log := range w.readers {
		if log != nil {
			after := w.at.heads[which]
			running.Go(func() { w.followOne(ctx, which, after, all) })
		}
	}
	return all, func() { cancel(); running.Wait() }
}

func (w *Writer) followOne(ctx context.Context, which int, after eventlog.Head, all chan<- arrival) {
	var gap *Gap
	for ctx.Err() == nil {
		batches, err := w.readers[which].Next(ctx, after)
		forgotten := (*eventlog.ForgottenError)(nil)
		a := arrival{which: which, batches: batches, gap: gap}
		switch {
		case err == nil:
			after, gap = batches[len(batches)-1].Head(), nil
		case errors.As(err, &forgotten) && forgotten.Oldest.Revision > after.Revision:
			gap = w.forgot(which, after, forgotten.Oldest)
			after = forgotten.Oldest
			continue
		case eventlog.IsFatal(err) && which == mainLog:
			a.err = err
		case eventlog.IsFatal(err): // the next start compares the file with what it has
			w.o.Logger.Error("the log of decisions cannot be read; the audit log goes on without it until the next start", "error", err)
			return
		default: // the backend is unavailable
			_ = steady.Wait(ctx, syncEvery)
			continue
		}
		select {
		case all <- a:
		case <-ctx.Done():
		}
	}
}

// forgot records that a log does not have what follows a position.
func (w *Writer) forgot(which int, after, oldest eventlog.Head) *Gap {
	gap := &Gap{From: after.Revision + 1, To: oldest.Revision}
	w.o.Logger.Warn("records were not kept until the audit log had them", "log", logName(which), "from", gap.From, "to", gap.To)
	return gap
}

func logName(which int) string {
	if which == decisionLog {
		return "decisions"
	}
	return "record"
}

// gapID begins the audit ID of lines that say that lines are missing.
const gapID = "lost-lines-"

// appendForgotten appends a line that says that a log does not have what follows a position. It has no time, because the
// records are gone.
func appendForgotten(b []byte, which int, g *Gap) []byte {
	return AppendGap(b, logName(which), *g)
}

// AppendGap appends a line that says that the lines of a span of a log, "record" or "decisions", are missing.
func AppendGap(b []byte, log string, g Gap) []byte {
	from, to := strconv.FormatUint(g.From, 10), strconv.FormatUint(g.To, 10)
	return appendGap(b, gapID+log+"-"+from+"-"+to, time.Time{}, time.Time{}, annotations{
		{LostAnnotation, strconv.FormatUint(g.To-g.From+1, 10)},
		{LostReasonAnnotation, "the log of " + log + " does not keep revisions " + from + " to " + to + " any more"},
	})
}
