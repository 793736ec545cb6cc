package backup

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/segment"
)

// Local is the source of a log that is open in this process. It is safe for concurrent use.
type Local struct {
	Log *eventlog.Log
	// Archive has the segments of the log; nil if there are none.
	Archive Archive
	// Checkpoints returns the good checkpoints, the oldest first, and the folder of their files; nil if there are none.
	Checkpoints func() (dir string, checkpoints []StateCheckpoint)
	// Floors returns State.Floors; nil if nothing is ever erased.
	Floors func() (map[string]uint64, error)
}

// Archive is the part of an archive of segments that is backed up.
type Archive interface {
	Segments() []segment.Info
	Damaged() []error
	Dir() string
}

var _ Source = (*Local)(nil)

// State implements [Source]. It fails if a segment is damaged.
func (l *Local) State(ctx context.Context) (*State, error) {
	s := &State{Format: FormatVersion, Log: l.Log.ID().String()}
	if l.Archive != nil {
		if damaged := l.Archive.Damaged(); len(damaged) > 0 {
			return nil, fmt.Errorf("a segment is damaged, so the log cannot be backed up as a whole: %w", damaged[0])
		}
		for _, i := range l.Archive.Segments() {
			s.Segments = append(s.Segments, segmentOf(&i))
		}
	}
	if len(s.Segments) > 0 {
		s.Oldest = s.Segments[0].Before
	}
	if l.Floors != nil { // after the segments: floors are raised before anything is erased
		var err error
		if s.Floors, err = l.Floors(); err != nil {
			return nil, err
		}
	}
	if l.Checkpoints != nil {
		_, s.Checkpoints = l.Checkpoints()
	}
	tip, err := l.Log.Tip(ctx) // last: the segments and checkpoints are not newer
	s.Head = PositionOf(tip)
	return s, err
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
func (l *Local) OpenFile(_ context.Context, name string) (*os.File, error) {
	folder, file := path.Split(name)
	switch {
	case folder == segmentsFolder+"/" && l.Archive != nil:
		for _, i := range l.Archive.Segments() {
			if i.Files[0].Name == file || i.Files[1].Name == file {
				return os.Open(filepath.Join(l.Archive.Dir(), file))
			}
		}
	case l.Checkpoints != nil:
		dir, checkpoints := l.Checkpoints()
		for _, c := range checkpoints {
			if c.File.Name == name {
				return os.Open(filepath.Join(dir, file))
			}
		}
	}
	return nil, fs.ErrNotExist
}
