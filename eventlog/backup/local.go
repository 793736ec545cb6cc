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
	go func() { w.CloseWithError(l.WriteTo(ctx, w, after, until, func() {})) }()
	return r, nil
}

// WriteTo writes what [Local.Batches] returns, and calls flush now and then.
func (l *Local) WriteTo(ctx context.Context, w io.Writer, after, until uint64, flush func()) error {
	return WriteBatches(ctx, w, l.Log, after, until, flush)
}

// File implements [Source].
func (l *Local) File(ctx context.Context, name string, offset int64) (io.ReadCloser, error) {
	f, err := l.OpenFile(ctx, name)
	if err != nil {
		return nil, err
	}
	if _, err := f.Seek(offset, io.SeekStart); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// OpenFile opens a file that the state names. The error is [fs.ErrNotExist] for every other name.
func (l *Local) OpenFile(ctx context.Context, name string) (*os.File, error) {
	state, err := l.State(ctx)
	if err != nil {
		return nil, err
	}
	for _, s := range state.Segments {
		for _, f := range s.Files {
			if f.Name == name {
				return os.Open(filepath.Join(l.Dir, filepath.FromSlash(name)))
			}
		}
	}
	for _, c := range state.Checkpoints {
		if c.File.Name == name {
			return os.Open(filepath.Join(l.Dir, filepath.FromSlash(name)))
		}
	}
	return nil, fs.ErrNotExist
}
