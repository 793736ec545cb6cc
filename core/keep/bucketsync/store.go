package bucketsync

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"

	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/bucket"
	"stele.dev/stele/eventlog/segment"
)

// store stores the segments that the bucket lacks, oldest first, and removes earlier generations. It notes how far the
// bucket covers the log.
func (s *Syncer) store(ctx context.Context, content *bucket.Content) error {
	begins, err := s.storeBegins(ctx)
	if err != nil {
		return err
	}
	covered, whole := uint64(0), true
	at := uint64(0) // revision up to which the segments of this replica have no gap
	for _, info := range s.o.Archive.Segments() {
		whole = whole && info.Before.Revision == at
		at = info.Last
		same, err := s.storeSegment(ctx, content, &info, begins)
		if err != nil {
			if errors.As(err, new(*segment.DamagedError)) || bucket.Gone(err) { // rewritten meanwhile, or to be fetched
				whole = false
				continue
			}
			return err
		}
		if whole = whole && same; whole {
			covered = info.Last
			s.covered.Store(max(covered, s.covered.Load()))
		}
	}
	s.covered.Store(covered) // less if files have gone from the bucket
	for _, outdated := range content.Outdated {
		if err := s.remove(ctx, outdated); err != nil {
			return err
		}
	}
	return nil
}

// storeBegins returns the revision with which the log's store goes on behind its first batch: segments that end before it
// are needed for no trim.
func (s *Syncer) storeBegins(ctx context.Context) (uint64, error) {
	stored, err := s.o.Log.Stored(ctx, 2)
	if err != nil || len(stored) == 0 {
		return 0, err
	}
	return stored[0].First, nil
}

// storeSegment stores a segment if the bucket lacks it, and reports whether the bucket has one with the same revisions. It
// reads the one of another replica only if the log's store still has its batches.
func (s *Syncer) storeSegment(ctx context.Context, content *bucket.Content, info *segment.Info, begins uint64) (bool, error) {
	found, state := match(content, info)
	if state == present {
		if err := s.adopt(ctx, found, info); err != nil {
			return false, err
		}
	}
	switch {
	case state == overlaps:
		s.o.Logger.Warn("a segment is cut differently from those of the bucket, and is not stored: start all replicas with the same --segment-revisions and --segment-bytes", "segment", segment.Name(info.First, info.Last, info.Generation))
		return false, nil
	case state == absent || found.Generation < info.Generation:
		put, err := s.put(ctx, info)
		if err != nil || state == absent {
			return err == nil, err
		}
		s.o.Logger.Info("a segment that was rewritten is in the bucket", "segment", put.Name())
		return true, s.remove(ctx, found)
	case s.verified[info.First] == found || info.Last < begins:
		return true, nil
	}
	err := s.o.Bucket.Verify(ctx, found, info, s.o.Dir)
	if err != nil && ctx.Err() == nil && !bucket.Gone(err) && !errors.Is(err, eventlog.ErrDiverged) && found.Sum == hex.EncodeToString(info.Files[0].SHA256[:]) {
		s.o.Logger.Warn("a segment of the bucket is damaged; it is stored again", "error", err)
		_, err = s.put(ctx, info)
	}
	if err != nil {
		return false, err
	}
	s.verified[info.First] = found
	return true, nil
}

// adopt makes this replica erase what another leader has erased of a segment that the bucket has in its place, so that what
// this one stores next lacks it, too. It reads the floors of such a segment once.
func (s *Syncer) adopt(ctx context.Context, found bucket.Segment, info *segment.Info) error {
	if found.Generation == 0 || s.verified[info.First] == found || s.adopted[info.First] == found || found.Sum == hex.EncodeToString(info.Files[0].SHA256[:]) {
		return nil
	}
	floors, err := s.o.Bucket.ReadFloors(ctx, found)
	if err == nil {
		err = s.adoptFloors(ctx, found, floors)
	}
	if err == nil {
		s.adopted[info.First] = found
	}
	return err
}

// put stores a segment.
func (s *Syncer) put(ctx context.Context, info *segment.Info) (bucket.Segment, error) {
	put, err := s.o.Bucket.PutSegment(ctx, s.o.Archive.Dir(), info, s.source.Floors())
	if err != nil {
		return put, fmt.Errorf("store segment %s in the bucket %s: %w", segment.Name(info.First, info.Last, info.Generation), s.o.Bucket.Place(), err)
	}
	s.verified[info.First] = put
	s.stored.Add(float64(put.Size))
	return put, nil
}

// remove removes a segment of which the bucket has a later generation. Stores that cannot remove files keep it.
func (s *Syncer) remove(ctx context.Context, found bucket.Segment) error {
	if err := s.o.Bucket.Remove(ctx, found); !errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	return nil
}

// matching says whether a bucket has a segment.
type matching int

const (
	absent matching = iota
	present
	overlaps // it has others with its revisions
)

// match returns the segment of the bucket with the same revisions.
func match(content *bucket.Content, info *segment.Info) (bucket.Segment, matching) {
	for _, found := range content.Segments {
		switch {
		case found.First == info.First && found.Last == info.Last:
			return found, present
		case found.First <= info.Last && found.Last >= info.First:
			return found, overlaps
		}
	}
	return bucket.Segment{}, absent
}

// keptCheckpoints is how many checkpoints the bucket keeps.
const keptCheckpoints = 2

// storeCheckpoints stores the recorded checkpoints that are newer than those of the bucket, and removes all but the newest two.
func (s *Syncer) storeCheckpoints(ctx context.Context, content *bucket.Content) error {
	has := content.Checkpoints // the newest first
	for _, own := range s.source.Checkpoints.Recorded() {
		newer := 0
		for newer < len(has) && has[newer].Revision > own.Revision {
			newer++
		}
		if newer >= keptCheckpoints || newer < len(has) && has[newer].Revision == own.Revision {
			continue
		}
		put, err := s.o.Bucket.PutCheckpoint(ctx, own.Revision, own.File)
		if bucket.Gone(err) { // a newer one has been made
			continue
		}
		if err != nil {
			return fmt.Errorf("store a checkpoint in the bucket %s: %w", s.o.Bucket.Place(), err)
		}
		s.stored.Add(float64(put.Size))
		has = append(has[:newer:newer], append([]bucket.Checkpoint{put}, has[newer:]...)...)
	}
	if len(has) < keptCheckpoints {
		return nil
	}
	s.checkpoints.Store(has[keptCheckpoints-1].Revision)
	for _, old := range has[keptCheckpoints:] {
		if err := s.o.Bucket.RemoveCheckpoint(ctx, old); err != nil && !errors.Is(err, errors.ErrUnsupported) {
			return err
		}
	}
	return nil
}
