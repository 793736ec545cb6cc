// Package checkpoints starts a control plane from the checkpoints of its data directory, and makes new ones while it
// runs. Package checkpoint has their files, and package commit what is in them.
package checkpoints

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"stele.dev/stele/core/commit"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/projections/checkpoint"
)

// Load moves a new committer to the newest checkpoint that is good, and that is the one that the log has recorded, if it
// has recorded one. It logs why others are not used, one line each. If none is good, the committer stays at the beginning
// of the log, which [commit.Committer.Replay] then reads as a whole.
// The error is that of a context that ended, or of a log that cannot be read at the moment.
func Load(ctx context.Context, folder *checkpoint.Folder, committer *commit.Committer, logger *slog.Logger) error {
	revisions, err := folder.Revisions()
	if err != nil {
		logger.Error("the checkpoints cannot be listed; the whole log is replayed", "error", err)
		return nil
	}
	for i, revision := range revisions {
		begun := time.Now()
		recorded := false
		err := folder.Read(revision, func(r *checkpoint.Reader) (err error) {
			recorded, err = committer.Restore(ctx, r)
			return err
		})
		switch {
		case err == nil:
			if recorded {
				folder.Record(revision)
			}
			logger.Info("the start goes on from a checkpoint", "revision", revision, "objects", committer.Loaded(), "for", time.Since(begun).Round(time.Millisecond))
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, commit.ErrUnreachable), errors.As(err, new(*eventlog.KeyError)): // the log is sealed under the same keys
			return err
		}
		instead := "the whole log"
		if i+1 < len(revisions) {
			instead = folder.Path(revisions[i+1])
		}
		if errors.Is(err, commit.ErrForged) {
			logger.Error("a checkpoint is not used: keep the file, and find out who has written it", "file", folder.Path(revision), "reason", err, "instead", instead)
		} else if errors.Is(err, eventlog.ErrDiverged) {
			logger.Error("the log does not continue a checkpoint: it has lost acknowledged writes, or is another one's backup", "file", folder.Path(revision), "reason", err, "instead", instead)
		} else {
			logger.Warn("a checkpoint is not used", "file", folder.Path(revision), "reason", err, "instead", instead)
		}
	}
	return nil
}
