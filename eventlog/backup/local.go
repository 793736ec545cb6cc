package backup

import (
	"context"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"stele.dev/stele/eventlog"
)

// Local is the source of a log that is open in this process. It is safe for concurrent use.
type Local struct {
	Log *eventlog.Log
	// Dir is the data directory, of whose files a backup has some; none if empty.
	Dir string
}

var _ Source = (*Local)(nil)

// State implements [Source].
func (l *Local) State(ctx context.Context) (*State, error) {
	tip, err := l.Log.Tip(ctx)
	if err != nil {
		return nil, err
	}
	return &State{Format: FormatVersion, Log: l.Log.ID().String(), Head: PositionOf(tip)}, nil
}

// Batches implements [Source].
func (l *Local) Batches(ctx context.Context, after, until uint64) (io.ReadCloser, error) {
	r, w := io.Pipe()
	go func() { w.CloseWithError(WriteBatches(ctx, w, l.Log, after, until, func() {})) }()
	return r, nil
}

// File implements [Source].
func (l *Local) File(_ context.Context, name string, offset int64) (io.ReadCloser, error) {
	if l.Dir == "" || !filepath.IsLocal(name) {
		return nil, fs.ErrNotExist
	}
	f, err := os.Open(filepath.Join(l.Dir, filepath.FromSlash(name)))
	if err != nil {
		return nil, err
	}
	if _, err := f.Seek(offset, io.SeekStart); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}
