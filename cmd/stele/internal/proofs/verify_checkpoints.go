package proofs

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/core/commit"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/verify"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/probes"
	"stele.dev/stele/projections/checkpoint"
	"stele.dev/stele/projections/objects"
	"stele.dev/stele/projections/policies"
)

// checkpoints verifies the checkpoints of a log that has been verified.
type checkpoints struct {
	log   *eventlog.Log
	tip   uint64        // its newest revision
	quick bool          // only their checksums
	keys  eventlog.Keys // nil for none; the log is read with them only to be folded
	// erased has for each kind the revision up to which retention may have erased events.
	erased map[schema.GroupResource]uint64
}

// verify verifies the checkpoints in a folder, the oldest first. The error is a [*verify.Difference] for the first one
// that is damaged, ahead of the log, or not what the log makes of the objects or has recorded. One that could be compared
// with neither vouches for no later one.
func (c *checkpoints) verify(ctx context.Context, path string, v *verified) error {
	folder, err := checkpoint.Open(path, nil, c.keys)
	if err != nil {
		return err
	}
	revisions, err := folder.Revisions()
	if err != nil {
		return err
	}
	slices.Reverse(revisions)
	before := uint64(0) // the newest checkpoint that has been compared
	for _, revision := range revisions {
		compared, err := c.compare(ctx, folder, before, revision)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		unknown := (*notCompared)(nil)
		if err != nil && !errors.As(err, &unknown) {
			return &verify.Difference{Where: folder.Path(revision), Revision: revision, What: err.Error()}
		}
		v.Checkpoints++
		if unknown != nil {
			v.NotCompared = unknown.Error()
		}
		if compared {
			v.Compared++
			before = revision
		}
	}
	return nil
}

// notCompared says why a checkpoint cannot be compared. The log itself is right: its policies or older contents cannot be
// read any more.
type notCompared struct{ error }

// compare reports whether a checkpoint is what the log makes of the objects, or, if that cannot be known or is not to be
// found out, what the log has recorded. The error is a [*notCompared] if neither is known.
func (c *checkpoints) compare(ctx context.Context, folder *checkpoint.Folder, before, revision uint64) (bool, error) {
	if revision > c.tip {
		return false, fmt.Errorf("it is ahead of the log, which ends at revision %d", c.tip)
	}
	info, err := folder.Verify(ctx, revision, 0, nil)
	if errors.As(err, new(*eventlog.KeyError)) {
		return false, &notCompared{fmt.Errorf("revision %d: %w", revision, err)}
	}
	if err != nil {
		return false, err
	}
	unknown := c.unknown(revision)
	if unknown == nil {
		var want checkpoint.Info
		if want, unknown = c.fold(ctx, folder, before, revision); unknown == nil && want != info {
			return false, fmt.Errorf("it does not hold what the log makes of the objects: its hash is %v, it should be %v", info.Fold, want.Fold)
		}
	}
	if unknown == nil {
		return true, nil
	}
	err = commit.CheckRecorded(ctx, c.log, revision, info.Fold)
	if errors.Is(err, commit.ErrUnrecorded) {
		err = &notCompared{fmt.Errorf("revision %d: %w; %w", revision, unknown, err)}
	}
	return err == nil, err
}

// unknown returns why what the log makes of the objects at a revision is not to be found out; nil if it is. Retention erases changes that
// later ones have superseded by its floor: before the floor, the objects cannot be made again.
func (c *checkpoints) unknown(revision uint64) error {
	if c.quick {
		return errors.New("--quick was given")
	}
	for r, floor := range c.erased {
		if revision < floor {
			return fmt.Errorf("%s are erased up to revision %d", r, floor)
		}
	}
	return nil
}

// fold returns what a checkpoint of a revision should be, from the log and the checkpoint of an earlier revision; 0 for
// none.
func (c *checkpoints) fold(ctx context.Context, folder *checkpoint.Folder, from, to uint64) (info checkpoint.Info, err error) {
	options := commit.Options{
		Log: c.log, Objects: objects.New(1),
		Load: func(p *policies.Proposal) (*policy.Policy, error) { return probes.Load(p.Form.Bytes()) },
	}
	options.Objects.MayLack(c.erased)
	c.log.SetKeys(c.keys)
	defer c.log.SetKeys(eventlog.LeaveSealed)
	rebuild := func(r *checkpoint.Reader) error {
		tip, err := commit.Rebuild(ctx, options, r, to, func() error { return ctx.Err() })
		if err == nil && tip.Revision() != to {
			err = errors.New("no batch ends at its revision")
		}
		if err == nil {
			info, err = checkpoint.HashOf(tip.Save)
		}
		return err
	}
	if from == 0 {
		return info, rebuild(nil)
	}
	err = folder.Read(from, rebuild)
	return info, err
}
