package commit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/projections/checkpoint"
	"stele.dev/stele/projections/objects"
	"stele.dev/stele/projections/policies"
	"stele.dev/stele/projections/quotas"
)

// The sections of a checkpoint, in their order.
const (
	sectionTip      = "tip"
	sectionPolicies = "policies"
	sectionKinds    = "kinds"
	sectionObjects  = "objects"
)

// foldVersion is the version of what [Tip] has beside the projections, and of how the policy in force renders objects.
// It is raised whenever the same log gives another tip, or the same tip other records.
const foldVersion = 1

// Save puts the tip into a checkpoint. The records depend on the log up to the tip's revision alone: they are equal on
// every replica. It is safe for concurrent use and holds up nobody.
func (t *Tip) Save(to checkpoint.Sink) error {
	if err := to.Begin(sectionTip, foldVersion); err != nil {
		return err
	}
	if err := to.Put(t.encode()); err != nil {
		return err
	}
	if err := to.Begin(sectionPolicies, policies.FoldVersion); err != nil {
		return err
	}
	if err := to.Of(eventlog.PolicyKind); err != nil {
		return err
	}
	if err := t.Policies.Export(to.Put); err != nil {
		return err
	}
	if err := to.Begin(sectionKinds, objects.FoldVersion); err != nil {
		return err
	}
	begun := false
	object := func(o *objects.Object, record []byte) error {
		if !begun {
			begun = true
			if err := to.Begin(sectionObjects, objects.FoldVersion); err != nil {
				return err
			}
		}
		if err := to.Of(kindOf(o)); err != nil {
			return err
		}
		return to.Put(record)
	}
	if err := t.Objects.Export(to.Put, object); err != nil || begun {
		return err
	}
	return to.Begin(sectionObjects, objects.FoldVersion)
}

// kindOf returns the kind of an object, as far as it decides on whether it is encrypted.
func kindOf(o *objects.Object) eventlog.Kind {
	r := o.Resource()
	return eventlog.Kind{Group: r.Group, Resource: r.Resource, Sensitive: o.Secret()}
}

// encode encodes position, log time, time of the activation (both in Unix nanoseconds, 0 for none), start of the epoch,
// and the revision and time of each clock set.
func (t *Tip) encode() []byte {
	b := protowire.AppendBytes(nil, t.Head.Encode())
	b = appendTime(b, t.Time)
	b = appendTime(b, t.Activated)
	b = protowire.AppendVarint(b, t.EpochStart)
	for _, set := range t.ClockSets {
		b = appendTime(protowire.AppendVarint(b, set.Revision), set.Time)
	}
	return b
}

func appendTime(b []byte, t time.Time) []byte {
	if t.IsZero() {
		return protowire.AppendVarint(b, 0)
	}
	return protowire.AppendVarint(b, protowire.EncodeZigZag(t.UnixNano()))
}

func decodeTip(record []byte) (t *Tip, err error) {
	short := false
	consume := func(n int) {
		if short = short || n < 0; !short {
			record = record[n:]
		}
	}
	number := func() uint64 {
		v, n := protowire.ConsumeVarint(record)
		consume(n)
		return v
	}
	at := func() time.Time {
		if v := number(); v != 0 {
			return time.Unix(0, protowire.DecodeZigZag(v)).UTC()
		}
		return time.Time{}
	}
	head, n := protowire.ConsumeBytes(record)
	consume(n)
	t = &Tip{Time: at(), Activated: at(), EpochStart: number()}
	for len(record) > 0 && !short {
		t.ClockSets = append(t.ClockSets, eventlog.ClockSet{Revision: number(), Time: at()})
	}
	if short {
		return nil, errors.New("commit: the record of the tip is not one of this version")
	}
	t.Head, err = eventlog.DecodeHead(head)
	return t, err
}

// readTip reads a tip from a checkpoint. loaded counts its objects meanwhile. The tip has no policy yet.
func readTip(ctx context.Context, r *checkpoint.Reader, log eventlog.ID, loaded *atomic.Int64) (tip *Tip, err error) {
	same := func(record []byte) ([]byte, error) { return bytes.Clone(record), nil }
	if err := r.Section(sectionTip, foldVersion); err != nil {
		return nil, err
	}
	err = checkpoint.Records(ctx, r, same, func(record []byte) error { tip, err = decodeTip(record); return err })
	if err != nil {
		return nil, err
	}
	if tip == nil {
		return nil, errors.New("commit: the checkpoint has no position")
	}
	if tip.Head.Log != log {
		return nil, fmt.Errorf("%w: it is of log %s, this one is %s", ErrForeign, tip.Head.Log, log)
	}
	if err := r.Section(sectionPolicies, policies.FoldVersion); err != nil {
		return nil, err
	}
	var in policies.Importer
	if err := checkpoint.Records(ctx, r, same, in.Add); err != nil {
		return nil, err
	}
	if tip.Policies, err = in.State(); err != nil {
		return nil, err
	}
	var all objects.Importer
	if err := r.Section(sectionKinds, objects.FoldVersion); err != nil {
		return nil, err
	}
	if err := checkpoint.Records(ctx, r, same, all.Kind); err != nil {
		return nil, err
	}
	if err := r.Section(sectionObjects, objects.FoldVersion); err != nil {
		return nil, err
	}
	err = checkpoint.Records(ctx, r, all.Object, func(o *objects.Object) error {
		loaded.Add(1)
		return all.Add(o)
	})
	if err != nil {
		return nil, err
	}
	tip.Objects = all.State(tip.Head.Revision)
	_, err = r.Info() // nothing of it is believed before
	return tip, err
}

// Restore moves the committer to the position of a checkpoint of this replica, if the log continues it. It may be called before
// [Committer.Replay], and again if it failed: an error changes nothing. The error is [ErrUnreachable] if the log could
// not be asked; every other one says why the checkpoint cannot be used. recorded reports whether the log has a record of it;
// one without is used, because it is a replica's own.
func (c *Committer) Restore(ctx context.Context, r *checkpoint.Reader) (recorded bool, err error) {
	c.loaded.Store(0)
	tip, err := c.read(ctx, r)
	if err != nil {
		return false, err
	}
	switch _, err := c.log.CatchUp(ctx, tip.Head); { // Replay reads the same again
	case eventlog.IsFatal(err):
		return false, err
	case err != nil:
		return false, fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	if recorded, err = c.checkOrigin(ctx, r, tip); err != nil {
		return false, err
	}
	c.log.Resume(tip.Head, tip.Time)
	c.use(tip)
	c.restored = tip.Head
	return recorded, nil
}

// checkOrigin compares a checkpoint with what the log has recorded of it, and its policy with the one that the log has
// activated.
func (c *Committer) checkOrigin(ctx context.Context, r *checkpoint.Reader, tip *Tip) (isRecorded bool, err error) {
	info, err := r.Info()
	if err == nil {
		err = recorded(ctx, c.log, tip.Head, info.Fold)
	}
	if isRecorded = err == nil; errors.Is(err, ErrUnrecorded) {
		err = checkActivation(ctx, c.log, tip)
	}
	if err != nil && !errors.Is(err, ErrForged) && !eventlog.IsFatal(err) {
		err = fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	return isRecorded, err
}

// read reads the tip of a checkpoint of this log, and loads its policy.
func (c *Committer) read(ctx context.Context, r *checkpoint.Reader) (*Tip, error) {
	tip, err := readTip(ctx, r, c.log.ID(), &c.loaded)
	if err != nil {
		return nil, err
	}
	if active := tip.Policies.Active; active != nil {
		if tip.Policy, err = c.load(active.Proposal); err != nil {
			return nil, fmt.Errorf("the policy activated at revision %d cannot be loaded: %w", active.Revision, err)
		}
		if active.Rendered == nil { // an earlier version of the program made the checkpoint
			if active.Rendered, err = policies.RecallRendered(ctx, c.log, active.Revision); err != nil && !eventlog.IsFatal(err) {
				err = fmt.Errorf("%w: %w", ErrUnreachable, err)
			}
			if err != nil {
				return nil, err
			}
		}
	}
	tip.Policy = c.Layered(tip.Policy, nil, tip.Objects)
	tip.Quotas = quotas.New(tip.Policy.Quotas(), tip.Objects)
	return tip, nil
}

// use makes a tip from a checkpoint the current one.
func (c *Committer) use(tip *Tip) {
	c.objects.Restore(tip.Objects)
	c.tip.Store(tip)
}

var (
	// ErrForeign reports a checkpoint of another log.
	ErrForeign = errors.New("the checkpoint is of another log")
	// ErrUnreachable reports that the log could not be asked whether it continues a checkpoint.
	ErrUnreachable = errors.New("commit: the log cannot be read")
)

// Restored returns the position of the checkpoint from which the committer started; the zero Head if there was none.
func (c *Committer) Restored() eventlog.Head { return c.restored }

// Loaded returns the number of objects that Restore has loaded so far, for messages about a start. It is safe for
// concurrent use.
func (c *Committer) Loaded() int64 { return c.loaded.Load() }

// Folded returns the number of bytes of all batches that were folded since the start, as they are stored. It is safe for
// concurrent use.
func (c *Committer) Folded() int64 { return c.folded.Load() }

// Rebuild folds a log up to a revision, apart from any other committer: from a checkpoint, or from the beginning if that is
// nil. If no batch ends at the revision, because a batch has it in its middle or was forgotten, the tip that it returns is
// of an earlier revision. pause is called between pieces of work. The objects take as much memory as those of the committer
// that serves.
func Rebuild(ctx context.Context, o Options, from *checkpoint.Reader, to uint64, pause func() error) (*Tip, error) {
	c := New(o)
	if from != nil {
		tip, err := c.read(ctx, from)
		if err != nil {
			return nil, err
		}
		c.use(tip)
	}
	for c.Tip().Revision() < to {
		batches, err := c.log.CatchUp(ctx, c.Tip().Head)
		if err == nil && len(batches) == 0 {
			err = fmt.Errorf("the log ends at revision %d, before %d", c.Tip().Revision(), to)
		}
		for _, b := range batches {
			if err == nil && b.Last() > to {
				return c.Tip(), nil
			}
			if err == nil {
				err = c.apply([]*eventlog.Batch{b})
			}
		}
		if err == nil {
			err = pause()
		}
		if err != nil {
			return nil, err
		}
	}
	return c.Tip(), nil
}

// DescribeRecord says what a record of [Tip.Save] is about: an object by its resource, name and revision, anything else
// by its section.
func DescribeRecord(t *Tip, section string, record []byte) string {
	if section == sectionObjects {
		if name, err := t.Objects.DescribeRecord(record); err == nil {
			return name
		}
	}
	return "a record of the " + section
}
