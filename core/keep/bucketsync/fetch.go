package bucketsync

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/archive"
	"stele.dev/stele/eventlog/bucket"
	"stele.dev/stele/eventlog/segment"
	"stele.dev/stele/limits/durable"
	"stele.dev/stele/limits/steady"
	"stele.dev/stele/projections/checkpoint"
)

// atOnce is how many segments are fetched at the same time.
const atOnce = 4

// fetchListed lists the bucket and fetches what the archive can use, up to a revision. It begins again if another replica
// has replaced a segment meanwhile, or has stored another one and trimmed the log's store.
func (s *Syncer) fetchListed(ctx context.Context, upto uint64) (*bucket.Content, error) {
	const attempts = 10 // without a new segment
	for attempt := 1; ; attempt++ {
		before := len(s.o.Archive.Segments())
		content, err := s.o.Bucket.List(ctx)
		if err == nil {
			err = s.fetch(ctx, content, upto)
		}
		if err == nil {
			return content, nil
		}
		if len(s.o.Archive.Segments()) > before {
			attempt = 0
		}
		if !bucket.Gone(err) && !errors.As(err, new(*eventlog.MissingError)) || attempt == attempts {
			return nil, err
		}
		if err := steady.Wait(ctx, 100*time.Millisecond); err != nil {
			return nil, err
		}
	}
}

// fetch fetches and installs the segments that the archive can use: in the place of others, and up to a revision behind
// its end.
func (s *Syncer) fetch(ctx context.Context, content *bucket.Content, upto uint64) error {
	var lacking []bucket.Segment
	behind := false
	for _, found := range content.Segments {
		switch s.o.Archive.Lacks(found.First, found.Last, found.Generation) {
		case archive.LacksNewest:
			if found.First > upto {
				continue
			}
			behind = true
		case archive.LacksNothing:
			continue
		}
		lacking = append(lacking, found)
	}
	if behind {
		if err := s.checkEnd(ctx, lacking[len(lacking)-1]); err != nil {
			return err
		}
	}
	for done := 0; done < len(lacking); {
		some := lacking[done:min(done+atOnce, len(lacking))]
		text := fmt.Sprintf("segment %d of %d from the bucket", done+1, len(lacking))
		s.fetching.Store(&text)
		if err := s.fetchSome(ctx, some); err != nil {
			return err
		}
		done += len(some)
	}
	return nil
}

// fetchSome fetches segments, and then installs them in their order.
func (s *Syncer) fetchSome(ctx context.Context, some []bucket.Segment) error {
	paths, floors := make([]string, len(some)), make([]bucket.Floors, len(some))
	group, fetching := errgroup.WithContext(ctx)
	for i := range some {
		group.Go(func() (err error) {
			paths[i], floors[i], err = s.o.Bucket.FetchSegment(fetching, some[i], s.o.Dir)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	for i := range some {
		if err := s.install(ctx, some[i], paths[i], floors[i]); err != nil {
			return err
		}
	}
	return nil
}

// install adds a segment that was fetched to the archive. What is erased of it is known to readers before.
func (s *Syncer) install(ctx context.Context, found bucket.Segment, path string, floors bucket.Floors) error {
	s.fetched.Add(float64(found.Size))
	if err := s.adoptFloors(ctx, found, floors); err != nil {
		return err
	}
	// The archive compares a later generation with the one that it has.
	lack := s.o.Archive.Lacks(found.First, found.Last, found.Generation)
	if lack == archive.LacksDamaged {
		if err := s.checkRepair(ctx, path); err != nil {
			return fmt.Errorf("segment %s of the bucket %s: %w; find out who can write to the bucket", found.Name(), s.o.Bucket.Place(), err)
		}
	}
	installed, err := s.o.Archive.Install(ctx, path)
	if err != nil {
		return fmt.Errorf("segment %s of the bucket %s: %w", found.Name(), s.o.Bucket.Place(), err)
	}
	if !installed {
		return nil
	}
	s.o.Logger.Info("a segment was fetched from the bucket", "segment", found.Name())
	for _, info := range s.o.Archive.Segments() {
		if !s.started && lack != archive.LacksGeneration && info.First == found.First {
			s.foreign = append(s.foreign, info)
		}
	}
	return nil
}

// checkRepair returns an error if a segment, which is to take the place of a damaged one, is not the one of which the log has
// recorded the hashes.
func (s *Syncer) checkRepair(ctx context.Context, path string) error {
	of, err := segment.Open(path, nil)
	if err != nil {
		return err
	}
	all := append(s.o.Archive.Segments(), of.Info())
	slices.SortFunc(all, func(a, b segment.Info) int { return cmp.Compare(a.First, b.First) })
	_, err = s.o.Past(ctx, all)
	return err
}

// adoptFloors erases here what another replica has erased, as the floors of its segment say. It refuses floors after the end of the
// log: no replica writes them, and they would hide every change until the log reaches them.
func (s *Syncer) adoptFloors(ctx context.Context, found bucket.Segment, floors bucket.Floors) error {
	if len(floors) == 0 {
		return nil
	}
	tip, err := s.o.Log.Tip(ctx)
	if err != nil {
		return err
	}
	for kind, floor := range floors {
		if erased := max(floor.Contents, floor.Records); erased > tip.Revision {
			return fmt.Errorf("segment %s of the bucket %s says that %s are erased up to revision %d, and the log ends at %d: no replica has written that; find out who can write to the bucket",
				found.Name(), s.o.Bucket.Place(), kind, erased, tip.Revision)
		}
	}
	if err := s.source.Adopt(ctx, floors); err != nil {
		return fmt.Errorf("segment %s of the bucket %s: %w", found.Name(), s.o.Bucket.Place(), err)
	}
	return nil
}

// checkGaps refuses to begin from segments of the bucket of which batches are forgotten, unless the log has recorded what they were: a
// gap binds what is before it to nothing that follows, so that whoever can write to the bucket could put another past there. The
// segments are removed again, so that the next start does not take them for its own.
func (s *Syncer) checkGaps(ctx context.Context) error {
	gaps := slices.IndexFunc(s.foreign, func(i segment.Info) bool { return i.Gaps() })
	if gaps < 0 {
		return nil
	}
	bound, err := s.o.Past(ctx, s.o.Archive.Segments())
	if err == nil && (bound || s.o.AcceptGaps) {
		return nil
	}
	if err == nil {
		first := s.foreign[gaps]
		err = fmt.Errorf("batches of the segment %s in the bucket %s are forgotten, and the log has no record of what they were, so that nothing shows that it is of this log: let a replica of this version that has a data directory run until it has looked at what to erase, which takes ten minutes; if nobody else can write to the bucket, start once with --accept-unrecorded-checkpoint",
			segment.Name(first.First, first.Last, first.Generation), s.o.Bucket.Place())
	} else {
		err = fmt.Errorf("the bucket %s: %w; find out who can write to it", s.o.Bucket.Place(), err)
	}
	for _, info := range s.foreign {
		for _, file := range info.Files {
			if e := os.Remove(filepath.Join(s.o.Archive.Dir(), file.Name)); !errors.Is(e, fs.ErrNotExist) {
				err = errors.Join(err, e)
			}
		}
	}
	return err
}

// checkEnd returns an error if the log does not continue the newest segment that is to be used: then the segments are of
// a past that this log has not had.
func (s *Syncer) checkEnd(ctx context.Context, newest bucket.Segment) error {
	path, _, err := s.o.Bucket.FetchSegment(ctx, newest, s.o.Dir)
	if err != nil {
		return err
	}
	opened, err := segment.Open(path, nil)
	if err != nil {
		return fmt.Errorf("the bucket %s: %w", s.o.Bucket.Place(), err)
	}
	info := opened.Info()
	err = s.o.Log.Continues(ctx, info.After)
	switch missing := (*eventlog.MissingError)(nil); {
	case err == nil:
		return nil
	case errors.As(err, &missing):
		return fmt.Errorf("the bucket %s has the log up to revision %d, and the log's store what follows revision %d: either that bucket is not the one of this log's replicas, or the log was restored from a backup and needs a new, empty bucket: %w",
			s.o.Bucket.Place(), info.Last, missing.To, err)
	case eventlog.IsFatal(err):
		return fmt.Errorf("the bucket %s has another past than this log: the log was restored from a backup, and needs a new, empty bucket: %w", s.o.Bucket.Place(), err)
	}
	return err
}

// fetchCheckpoint fetches the newest checkpoint into a folder, unless a checkpoint there is as new as the older one of the
// bucket. A start from that one needs nothing that was erased from the log. Whoever writes to the bucket can put a
// checkpoint there, so one is used only if the log has recorded it. Without any the start reads the whole log.
func (s *Syncer) fetchCheckpoint(ctx context.Context, content *bucket.Content, dir string) error {
	if len(content.Checkpoints) == 0 {
		return nil
	}
	folder, err := checkpoint.Open(dir, nil, s.o.Log.Keys())
	if err != nil {
		return err
	}
	has, err := folder.Revisions()
	if err != nil {
		return err
	}
	if older := content.Checkpoints[min(1, len(content.Checkpoints)-1)]; len(has) > 0 && has[0] >= older.Revision {
		return nil
	}
	if err := durable.MakeFolder(filepath.Clean(dir)); err != nil {
		return err
	}
	for _, found := range content.Checkpoints { // the newest first
		used, err := s.fetchRecorded(ctx, found, folder)
		if err != nil || used {
			return err
		}
	}
	return nil
}

// fetchRecorded fetches a checkpoint into a folder if the log has recorded it, and reports whether it has.
func (s *Syncer) fetchRecorded(ctx context.Context, found bucket.Checkpoint, to *checkpoint.Folder) (bool, error) {
	text := fmt.Sprintf("the checkpoint of revision %d from the bucket", found.Revision)
	s.fetching.Store(&text)
	apart, err := checkpoint.Open(filepath.Join(s.o.Dir, "checkpoints"), nil, s.o.Log.Keys())
	if err != nil {
		return false, err
	}
	file := apart.Path(found.Revision)
	if err := s.o.Bucket.FetchCheckpoint(ctx, found, file); err != nil {
		return false, err
	}
	s.fetched.Add(float64(found.Size))
	_, err = apart.Verify(ctx, found.Revision, 0, func(info checkpoint.Info) error { return s.o.Recorded(ctx, found.Revision, info.Fold) })
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	if err != nil {
		s.o.Logger.Error("a checkpoint of the bucket is not used", "bucket", s.o.Bucket.Place(), "revision", found.Revision, "reason", err)
		return false, nil
	}
	if err := os.Rename(file, to.Path(found.Revision)); err != nil {
		return false, err
	}
	s.o.Logger.Info("a checkpoint was fetched from the bucket", "revision", found.Revision)
	return true, durable.SyncFolder(filepath.Dir(to.Path(found.Revision)))
}
