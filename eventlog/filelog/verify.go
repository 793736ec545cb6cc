package filelog

import (
	"context"
	"fmt"
	"os"
	"time"

	"stele.dev/stele/eventlog"
)

// Verified sums up a log that was verified.
type Verified struct {
	Oldest  eventlog.Head // the position before the oldest batch, beside the first
	Head    eventlog.Head // of the newest batch
	Since   time.Time     // of the oldest batch, beside the first
	Batches uint64
	Events  uint64
	// Anchors is how many of the given heads are of batches that are there.
	Anchors int
}

// Verify reads all of the log in a folder, and checks every record, every hash, that each batch continues the one before,
// and that the log has the given heads, as far as their batches are kept. heads returns the heads that were recorded since
// a moment, also those of other logs; nil for none. It changes nothing, and the log may be in use. The error names what is
// wrong, and the file.
func Verify(ctx context.Context, dir string, heads func(ctx context.Context, since time.Time) ([]eventlog.Head, error)) (*Verified, error) {
	if _, err := os.Stat(dir); err != nil {
		return nil, err
	}
	b, err := Open(dir, Options{ReadOnly: true})
	if err != nil {
		return nil, err
	}
	defer b.Close()
	if b.newest == 0 {
		return nil, fmt.Errorf("filelog: there is no log in %s", dir)
	}
	w := &walk{dir: dir, mark: b.mark, heads: heads}
	v := b.view()
	for i := range v.files {
		if err := w.file(ctx, &v, i); err != nil {
			return nil, err
		}
	}
	w.Head = w.at
	if err := w.load(ctx, w.Since); err != nil {
		return nil, err
	}
	for revision := range w.want {
		if revision > w.at.Revision {
			return nil, fmt.Errorf("%s: it ends at revision %d, but the log of record has its head at revision %d: what follows is lost, or was taken away", dir, w.at.Revision, revision)
		}
	}
	return &w.Verified, nil
}

// walk is what has been verified.
type walk struct {
	Verified
	dir   string
	mark  uint64
	at    eventlog.Head
	heads func(ctx context.Context, since time.Time) ([]eventlog.Head, error)
	want  map[uint64]eventlog.Hash // by last revision: the heads that are expected; nil until they are loaded
}

// load reads the heads that are expected, once.
func (w *walk) load(ctx context.Context, since time.Time) error {
	if w.want != nil {
		return nil
	}
	w.want = map[uint64]eventlog.Hash{}
	if w.heads == nil {
		return nil
	}
	heads, err := w.heads(ctx, since)
	for _, h := range heads {
		if h.Log == w.at.Log {
			w.want[h.Revision] = h.Hash
		}
	}
	return err
}

// file verifies the batches of a file that are not removed.
func (w *walk) file(ctx context.Context, v *view, i int) error {
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
		if err := w.batch(ctx, b); err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
	}
	return nil
}

// batch verifies that a batch continues what is before it, and agrees with the heads.
func (w *walk) batch(ctx context.Context, b *eventlog.Batch) error {
	switch {
	case w.Batches == 0:
		w.at, w.Since = eventlog.Head{Log: b.Log}, b.Time
		w.Oldest = w.at
	case w.Batches == 1:
		if b.First > w.at.Revision+1 && b.First-1 <= w.mark { // older ones are not kept
			w.at = eventlog.Head{Log: w.at.Log, Epoch: b.Epoch, Revision: b.First - 1, Hash: b.Previous}
			w.Oldest = w.at
		}
		w.Since = b.Time
		if err := w.load(ctx, w.Since); err != nil {
			return err
		}
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
