package filelog

import (
	"context"
	"fmt"
	"os"

	"stele.dev/stele/eventlog"
)

// Verified sums up a log that was verified.
type Verified struct {
	Oldest  eventlog.Head // the position before the oldest batch, beside the first
	Head    eventlog.Head // of the newest batch
	Batches uint64
	Events  uint64
	// Anchors is how many of the given heads are of batches that are there.
	Anchors int
}

// Verify reads all of the log in a folder, and checks every record, every hash, that each batch continues the one before,
// and that the log has the given heads, as far as their batches are kept. Those of other logs are ignored. visit is called
// for each batch; nil for nothing. It changes nothing. The error names what is wrong, and the file.
func Verify(ctx context.Context, dir string, heads []eventlog.Head, visit func(*eventlog.Batch)) (*Verified, error) {
	b, err := Open(dir, Options{ReadOnly: true})
	if err != nil {
		return nil, err
	}
	defer b.Close()
	if b.newest == 0 {
		return nil, fmt.Errorf("filelog: there is no log in %s", dir)
	}
	w := &walk{dir: dir, mark: b.mark, want: map[uint64]eventlog.Hash{}}
	v := b.view()
	for i := range v.files {
		if err := w.file(ctx, &v, i, heads, visit); err != nil {
			return nil, err
		}
	}
	w.Head = w.at
	for _, h := range heads {
		if h.Log == w.at.Log && h.Revision > w.at.Revision {
			return nil, fmt.Errorf("%s: it ends at revision %d, but the log of record has its head at revision %d: what follows is lost, or was taken away", dir, w.at.Revision, h.Revision)
		}
	}
	return &w.Verified, nil
}

// walk is what has been verified.
type walk struct {
	Verified
	dir  string
	mark uint64
	at   eventlog.Head
	want map[uint64]eventlog.Hash // by last revision: the heads that are expected
}

// file verifies the batches of a file that are not removed.
func (w *walk) file(ctx context.Context, v *view, i int, heads []eventlog.Head, visit func(*eventlog.Batch)) error {
	f := v.files[i]
	records, err := v.records(i)
	if err != nil {
		return err
	}
	in, err := os.Open(f.name)
	if err != nil {
		return err
	}
	defer in.Close()
	for _, r := range records {
		if err := ctx.Err(); err != nil {
			return err
		}
		_, value, err := readRecord(in, f.name, r)
		if err != nil {
			return err
		}
		b, err := eventlog.DecodeBatch(r.first, value)
		if err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
		if err := w.batch(b, heads); err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
		if visit != nil {
			visit(b)
		}
	}
	return nil
}

// batch verifies that a batch continues what is before it.
func (w *walk) batch(b *eventlog.Batch, heads []eventlog.Head) error {
	switch {
	case w.Batches == 0:
		w.at = eventlog.Head{Log: b.Log}
		w.Oldest = w.at
		for _, h := range heads {
			if h.Log == b.Log {
				w.want[h.Revision] = h.Hash
			}
		}
	case w.Batches == 1 && b.First > w.at.Revision+1 && b.First-1 <= w.mark: // older ones are not kept
		w.at = eventlog.Head{Log: w.at.Log, Epoch: b.Epoch, Revision: b.First - 1, Hash: b.Previous}
		w.Oldest = w.at
	}
	if err := w.at.Continued(b); err != nil {
		return err
	}
	w.at = b.Head()
	w.Batches, w.Events = w.Batches+1, w.Events+uint64(len(b.Events))
	if hash, ok := w.want[w.at.Revision]; ok {
		if hash != w.at.Hash {
			return fmt.Errorf("revision %d has the hash %v, but the log of record has %v: the log was written again", w.at.Revision, w.at.Hash, hash)
		}
		w.Anchors++
	}
	return nil
}
