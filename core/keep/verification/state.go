package verification

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/core/commit"
	"stele.dev/stele/projections/checkpoint"
	"stele.dev/stele/projections/objects"
)

// Objects is the projection of the current objects and of the policies, which are folded together: a policy renders
// objects. It is rebuilt from the older recorded checkpoint and the log after it; from the whole log if no checkpoint is recorded.
type Objects struct {
	Committer *commit.Committer
	Folder    *checkpoint.Folder
	// Options are those of the committer. Its objects are not used.
	Options commit.Options
	// Erased returns for each kind the revision up to which retention may have erased events of the log.
	Erased func() map[schema.GroupResource]uint64
}

// Name implements [Projection].
func (*Objects) Name() string { return "objects" }

// Live implements [Projection].
func (o *Objects) Live(context.Context) (State, error) { return tipState{o.Committer.Tip()}, nil }

// Rebuild implements [Projection].
func (o *Objects) Rebuild(ctx context.Context, revision uint64, pause func() error) (State, error) {
	options := o.Options
	options.Objects = objects.New(1) // nobody watches
	options.Objects.MayLack(o.Erased())
	var from checkpoint.Checkpoint
	for _, c := range o.Folder.Recorded() { // the newest first
		if c.Revision <= revision {
			from = c
		}
	}
	if from.Revision == 0 {
		tip, err := commit.Rebuild(ctx, options, nil, revision, pause)
		return tipState{tip}, err
	}
	var tip *commit.Tip
	err := o.Folder.Read(from.Revision, func(r *checkpoint.Reader) (err error) {
		if tip, err = commit.Rebuild(ctx, options, r, revision, pause); err != nil {
			return err
		}
		if info, err := r.Info(); err != nil || info.Fold != from.Info.Fold {
			return errors.Join(commit.ErrForged, err)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("from the checkpoint of revision %d: %w", from.Revision, err)
	}
	return tipState{tip}, nil
}

// tipState is a tip as a [State].
type tipState struct{ tip *commit.Tip }

func (s tipState) Revision() uint64 { return s.tip.Revision() }

func (s tipState) Save(to checkpoint.Sink) error { return s.tip.Save(to) }

func (s tipState) Describe(section string, record []byte) string {
	return commit.DescribeRecord(s.tip, section, record)
}
