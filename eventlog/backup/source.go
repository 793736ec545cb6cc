package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"stele.dev/stele/eventlog"
)

// State is what a server has of its log, as the files that a backup copies.
type State struct {
	Format int      `json:"format"` // FormatVersion
	Log    string   `json:"log"`    // the log's ID
	Head   Position `json:"head"`   // the newest batch
	// Oldest is the position before the oldest batch that is kept, besides the first one; zero if all are.
	Oldest Position `json:"oldest"`
	// Segments are in the order of the log, without gaps.
	Segments    []Segment         `json:"segments,omitempty"`
	Checkpoints []StateCheckpoint `json:"checkpoints,omitempty"`
	// Floors are the oldest revisions at which objects can be read, by plural.group: retention may have erased what only
	// earlier ones need.
	Floors map[string]uint64 `json:"floors,omitempty"`
}

// Segment is a segment of the archive.
type Segment struct {
	Before    Position            `json:"before"`
	After     Position            `json:"after"`
	First     time.Time           `json:"firstTime"`
	Last      time.Time           `json:"lastTime"`
	ClockSets []eventlog.ClockSet `json:"clockSets,omitempty"`
	Files     []StateFile         `json:"files"`
}

// StateCheckpoint is a checkpoint of the projections.
type StateCheckpoint struct {
	Revision uint64    `json:"revision"`
	File     StateFile `json:"file"`
}

// StateFile is a file of a server.
type StateFile struct {
	Name   string `json:"name"` // below the data directory, such as segments/….log
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256,omitempty"` // in hexadecimal; empty if the server does not know it
}

// Source is a log to back up. Implementations are safe for concurrent use.
type Source interface {
	// State returns what there is now.
	State(ctx context.Context) (*State, error)
	// Batches returns the stored batches after revision `after` up to the batch that ends at `until`, as
	// [WriteBatch] writes them. It may have fewer if they have left the log's store meanwhile: the caller checks.
	Batches(ctx context.Context, after, until uint64) (io.ReadCloser, error)
	// File opens a file of the state, from an offset on. The error is [fs.ErrNotExist] if it is gone.
	File(ctx context.Context, name string, offset int64) (io.ReadCloser, error)
}

// StoredLog is the part of [eventlog.Log] that batches are copied from.
type StoredLog interface {
	Stored(ctx context.Context, from uint64) ([]eventlog.Stored, error)
}

// WriteBatches writes the stored batches after revision `after` up to the one that has revision `until`, and calls
// flush after each group. It ends early at a gap, where batches have left the log's store.
func WriteBatches(ctx context.Context, w io.Writer, log StoredLog, after, until uint64, flush func()) error {
	for after < until {
		batches, err := log.Stored(ctx, after+1)
		if err != nil || len(batches) == 0 {
			return err
		}
		for _, s := range batches {
			if s.First > until {
				return nil
			}
			if err := WriteBatch(w, s.Value); err != nil {
				return err
			}
			after = s.First
		}
		flush()
	}
	return nil
}

// check returns the log's ID, or an error if the state cannot be backed up.
func (s *State) check() (eventlog.ID, error) {
	id, err := parseID(s.Log)
	switch {
	case s.Format > FormatVersion:
		return id, errors.New("the server is newer than this program; use the stele of its version")
	case err != nil:
		return id, fmt.Errorf("the server's state: %w", err)
	case s.Head.Revision == 0:
		return id, errors.New("the server's state: the log is empty")
	}
	at := s.Oldest
	for _, g := range s.Segments {
		if g.Before != at || g.After.Revision <= at.Revision {
			return id, fmt.Errorf("the server's state: the segment after revision %d does not continue what is before it", g.Before.Revision)
		}
		at = g.After
	}
	if at.Revision > s.Head.Revision {
		return id, fmt.Errorf("the server's state: segments up to revision %d, and the log ends at %d", at.Revision, s.Head.Revision)
	}
	return id, nil
}
