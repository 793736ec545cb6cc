package backup

import (
	"context"
	"errors"
	"fmt"

	"filippo.io/age"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/backup/stores"
	"stele.dev/stele/eventlog/proof"
	"stele.dev/stele/eventlog/verify"
)

// VerifyOptions for [Verify].
type VerifyOptions struct {
	Store    stores.Store
	Manifest *Manifest
	// Identities decrypt the backup. Without them only the checksums of what is stored are compared.
	Identities []age.Identity
	// FoldOf reads checkpoints, to compare them with what the log has recorded.
	FoldOf FoldOf
	// Heads are tree heads that the log must agree with.
	Heads    []proof.TreeHead
	Patience stores.Patience
	// Temporary is the folder for files that are being read; the system's if empty.
	Temporary string
	Progress  func(Progress) // nil for none
}

// Verification is the result of [Verify].
type Verification struct {
	Files           int
	Bytes           int64
	Batches, Events uint64
	// Unrecorded are the revisions of checkpoints that the log has not recorded. A restore leaves them out.
	Unrecorded []uint64
	// Sealed are the checkpoints that were not compared, because a part of them is encrypted.
	Sealed []*SealedError
	// Incomparable says which tree heads and batches could not be compared; nil if none.
	Incomparable *verify.IncomparableError
	// Floors says that the floors of the manifest are not those that the log has recorded; nil if they are. A restore takes those
	// of the log.
	Floors *FloorsError
	// Chain is set if the hash chain was followed from the first batch to the manifest's head.
	Chain bool
	// Problems name all files that are missing or damaged, and the first break of the chain.
	Problems []error
}

// Verify reads a backup back. It compares the checksums of all files, and follows the hash chain of all batches to the
// manifest's head, so that no batch is missing, twice or changed. Checkpoints must be as the log has recorded them. All that is of the
// place alone: only tree heads find a log that was replaced as a whole. The error is nil if the backup was read, however
// many problems it has.
func Verify(ctx context.Context, o VerifyOptions) (*Verification, error) {
	v := &Verification{}
	progress := Progress{Head: o.Manifest.Head.Revision}
	f := &fetcher{store: stores.WithPatience(o.Store, o.Patience), manifest: o.Manifest, identities: o.Identities, done: func(f File) {
		v.Files++
		v.Bytes += f.Size
		progress.Bytes, progress.File = v.Bytes, f.Name
		if o.Progress != nil {
			o.Progress(progress)
		}
	}}
	blind := o.Manifest.Encrypted() && len(o.Identities) == 0
	at := o.Manifest.newChain()
	at.v = v
	for _, part := range o.Manifest.Parts {
		var err error
		if blind {
			err = sumAll(ctx, f, part.Files)
		} else {
			err = at.follow(ctx, f, part, o.Temporary)
		}
		if err := v.note(ctx, err); err != nil {
			return nil, err
		}
		progress.Revision = part.After.Revision
	}
	var rest []File
	for i := range o.Manifest.Checkpoints {
		if c := &o.Manifest.Checkpoints[i]; blind {
			rest = append(rest, c.File)
		} else if err := v.note(ctx, f.checkCheckpoint(ctx, c, at.records, o.FoldOf, o.Temporary)); err != nil {
			return nil, err
		}
	}
	if err := v.note(ctx, sumAll(ctx, f, append(rest, o.Manifest.Keys...))); err != nil {
		return nil, err
	}
	if !blind && len(v.Problems) == 0 {
		err := at.checkPast(o.Manifest)
		if len(o.Heads) > 0 { // they bind batches before a gap, too
			err = f.compareHeads(ctx, o.Heads, o.Temporary)
		}
		if err := errors.Join(v.note(ctx, err), v.note(ctx, at.checkFloors(o.Manifest.Floors))); err != nil {
			return nil, err
		}
	}
	v.Chain = !blind && len(v.Problems) == 0
	return v, nil
}

// sumAll compares the checksums of files. It goes on after a bad file, and returns all that are bad.
func sumAll(ctx context.Context, f *fetcher, files []File) error {
	var errs []error
	for _, file := range files {
		err := f.sum(ctx, file)
		if bad := (*BadFileError)(nil); err != nil && !errors.As(err, &bad) {
			return err
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// note notes problems of the backup. It returns errors that are not about the backup.
func (v *Verification) note(ctx context.Context, err error) error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok && joined != nil {
		for _, err := range joined.Unwrap() {
			if err := v.note(ctx, err); err != nil {
				return err
			}
		}
		return nil
	}
	if unrecorded := (*UnrecordedError)(nil); errors.As(err, &unrecorded) {
		v.Unrecorded = append(v.Unrecorded, unrecorded.Revision)
		return nil
	}
	if sealed := (*SealedError)(nil); errors.As(err, &sealed) {
		v.Sealed = append(v.Sealed, sealed)
		return nil
	}
	if errors.As(err, &v.Incomparable) || errors.As(err, &v.Floors) {
		return nil
	}
	bad, broken, different := (*BadFileError)(nil), (*brokenError)(nil), (*verify.Difference)(nil)
	if err == nil || ctx.Err() == nil && (errors.As(err, &bad) || errors.As(err, &broken) || errors.As(err, &different)) {
		if err != nil {
			v.Problems = append(v.Problems, err)
		}
		return nil
	}
	return err
}

// brokenError reports a break in the chain of batches, in a file whose checksum is right.
type brokenError struct {
	file string
	err  error
}

func (e *brokenError) Error() string { return fmt.Sprintf("%s: %v", e.file, e.err) }
func (e *brokenError) Unwrap() error { return e.err }

// chain follows the batches of a backup.
type chain struct {
	head eventlog.Head
	v    *Verification
	// records are noted of parts that end behind a revision.
	records     records
	recordsFrom uint64
	past        past
	// visit is called with each batch, and with its stored bytes, which are valid until it returns; nil for none.
	visit func(b *eventlog.Batch, value func() []byte) error
}

// follow checks the files of a part and the batches in them. After a part that cannot be read it goes on behind it.
func (c *chain) follow(ctx context.Context, f *fetcher, part Part, temporary string) error {
	c.begin(part)
	defer func() { c.head = part.After.Head(c.head.Log) }()
	if part.Kind == SegmentPart {
		return c.followSegment(ctx, f, part, temporary)
	}
	s, err := f.spooled(ctx, part.Files[0], temporary)
	if err != nil {
		return err
	}
	defer s.discard()
	return c.followBatches(part, s)
}

// begin goes to the beginning of a part.
func (c *chain) begin(part Part) {
	if PositionOf(c.head) != part.Before {
		clear(c.records) // nothing binds them to what follows
		c.past.binding, c.past.lacking = nil, true
	}
	c.head = part.Before.Head(c.head.Log)
}

// followBatches checks the batches of a file.
func (c *chain) followBatches(part Part, s *spool) error {
	var stopped error // by visit
	at, err := ReadBatches(s.reader(), part.Before.Head(c.head.Log), func(b *eventlog.Batch, value []byte) error {
		stopped = c.see(b, func() []byte { return value })
		return stopped
	})
	if stopped != nil {
		return stopped
	}
	return ended(part, at, err)
}

func (c *chain) see(b *eventlog.Batch, value func() []byte) error {
	if err := c.note(b); err != nil {
		return err
	}
	if c.v != nil {
		c.v.Batches++
		c.v.Events += uint64(len(b.Events))
	}
	if c.visit == nil {
		return nil
	}
	return c.visit(b, value)
}

// note notes the records in a batch.
func (c *chain) note(b *eventlog.Batch) error {
	if c.records != nil {
		c.records.note(b)
	}
	if c.past.binding == nil {
		return nil
	}
	return c.past.binding.Batch(b)
}

// ended returns the error for a part whose batches were read up to a position.
func ended(part Part, at eventlog.Head, err error) error {
	if err == nil && PositionOf(at) != part.After {
		err = fmt.Errorf("its batches end at revision %d with the hash %.8s, the manifest says %d and %.8s", at.Revision, at.Hash, part.After.Revision, part.After.Hash)
	}
	if err != nil {
		return &brokenError{part.Files[0].Stored, err}
	}
	return nil
}
