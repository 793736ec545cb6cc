package audit

import (
	"context"
	"errors"
	"io/fs"
	"math"
	"time"

	"stele.dev/stele/eventlog"
	"stele.dev/stele/projections/audit"
)

const (
	// saveEvery is how often the cursor is stored.
	saveEvery = time.Second
	// lookBack is how many batches are searched for how far the sink has got, if there is no cursor.
	lookBack = 20000
)

// open reads the cursor. Without one, the sink gets what follows the position that another replica has recorded; without
// that, it is new and gets what follows the log's end. A log of decisions is sent from its beginning.
func (f *Feeder) open(ctx context.Context) error {
	if err := audit.RemoveUnfinished(f.o.File); err != nil {
		return err
	}
	at, err := audit.ReadHead(f.o.File, f.o.Start.Log)
	stored := err == nil
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if at, err = f.startPosition(ctx); err != nil {
			return err
		}
	case errors.Is(err, audit.ErrNoHead):
		f.o.Logger.Warn("the cursor of a sink is damaged or of another log; the sink may get lines again", "sink", f.o.Sink.Name(), "file", f.o.File)
		if at, err = f.recorded(ctx); err != nil {
			return err
		}
	case err != nil:
		return err
	}
	f.note(at)
	if f.saved = at; !stored { // a sink may take nothing for long, and a start after a crash has to know where it began
		f.saved = eventlog.Head{}
		f.save(true)
	}
	f.drop()
	return nil
}

// startPosition returns where a sink begins that has no cursor here.
func (f *Feeder) startPosition(ctx context.Context) (eventlog.Head, error) {
	at, err := f.recorded(ctx)
	if err != nil || at != f.o.Start || f.o.LogName != RecordLog {
		return at, err
	}
	if f.o.Begin != (eventlog.Head{}) {
		return f.o.Begin, nil
	}
	newest, err := f.o.Log.Back(ctx, math.MaxUint64, 1)
	if err != nil || len(newest) == 0 {
		return f.o.Start, err
	}
	return newest[0].Head(), nil
}

// recorded returns the position that a replica has recorded in the log; the log's beginning if there is none.
func (f *Feeder) recorded(ctx context.Context) (eventlog.Head, error) {
	if f.o.LogName != RecordLog {
		return f.o.Start, nil
	}
	for from, n := uint64(math.MaxUint64), 0; n < lookBack && from > 0; {
		older, err := f.o.Log.Back(ctx, from, 64)
		if errors.As(err, new(*eventlog.ForgottenError)) || err == nil && len(older) == 0 {
			break
		}
		if err != nil {
			return f.o.Start, err
		}
		for _, b := range older {
			if revision := f.anchored(b); revision > 0 {
				return f.newest(ctx, revision)
			}
		}
		from, n = older[len(older)-1].First-1, n+len(older)
	}
	return f.o.Start, nil
}

// RecordLog and DecisionsLog are the names of the logs.
const (
	RecordLog    = "record"
	DecisionsLog = "decisions"
)

// save stores the cursor, if it has changed and the last time is long enough ago.
func (f *Feeder) save(now bool) {
	if f.at == f.saved || f.at == (eventlog.Head{}) || !now && time.Since(f.savedAt) < saveEvery {
		return
	}
	f.savedAt = time.Now()
	if err := audit.WriteHead(f.o.File, f.at); err != nil {
		f.o.Logger.Warn("the cursor of a sink cannot be stored; after a crash the sink gets lines again", "sink", f.o.Sink.Name(), "error", err)
		return
	}
	f.saved = f.at
}
