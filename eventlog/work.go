package eventlog

import "sync/atomic"

// Work is how much of a log a process has read: from the backend and from the archive, each time that it did. What it appended itself, and
// what it had in memory, does not count.
type Work struct {
	Batches, Events int64
	// Bytes are those of the batches as they are stored.
	Bytes int64
}

// work counts a Work. It is safe for concurrent use.
type work struct{ batches, events, bytes atomic.Int64 }

func (w *work) add(batches ...*Batch) {
	for _, b := range batches {
		w.batches.Add(1)
		w.events.Add(int64(len(b.Events)))
		w.bytes.Add(int64(b.Size))
	}
}

// Work returns how much this process has read of the log. It is safe for concurrent use.
func (l *Log) Work() Work {
	return Work{Batches: l.work.batches.Load(), Events: l.work.events.Load(), Bytes: l.work.bytes.Load()}
}
