// Package moving moves a log from one store to another: from an embedded etcd to a cluster, and back. The log keeps its id,
// its revisions and its head; nobody who reads it notices.
//
// At no moment two stores can be used. [Move] first marks the empty target as one with an unfinished copy
// ([eventlog.Copying]). Then it marks the source as moved ([eventlog.Moved]), in one step that compares the head: what was
// acknowledged before is in the head that is copied, and no writer succeeds afterwards, whether it knows of the move or
// not, because writers compare the head, too. Then it copies the batches as they are stored, reads them back, and as the
// last step gives the target the head of the source. If it is interrupted at any moment, calling it again continues.
// [Abandon] makes the source usable again, as long as the target is not.
//
// Both marks have the same random name of the move. Of several moves of one log to different places, only the one whose
// name the source has can be completed.
//
// Only what the source's store has is copied. Segments of older batches stay where they are.
package moving

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"

	"stele.dev/stele/eventlog"
)

// Options for [Move] and [Abandon].
type Options struct {
	From, To eventlog.Values
	// FromPlace and ToPlace say where these stores are, for errors.
	FromPlace, ToPlace string
	// Older checks that what a store lacks before a batch, the first one behind a gap, is kept elsewhere. It is called
	// before anything is written.
	Older func(context.Context, *eventlog.Batch) error
	// Check is called with the head of the log before anything is written; nil for no check.
	Check func(eventlog.Head) error
	// Progress is called often with the last revision that was copied; nil for none.
	Progress func(revision, head uint64)
}

// Moved is the result of [Move].
type Moved struct {
	Head    eventlog.Head
	Batches int
	// Before is set if an earlier call had completed the move, and nothing was left to do.
	Before bool
}

// Move moves the log, or completes an interrupted move.
func Move(ctx context.Context, o Options) (*Moved, error) {
	m := &move{o}
	if m.Progress == nil {
		m.Progress = func(uint64, uint64) {}
	}
	head, moved, err := m.source(ctx)
	if err != nil {
		return nil, err
	}
	mark, complete, err := m.target(ctx, head, moved)
	if err != nil {
		return nil, err
	}
	if m.Check != nil {
		if err := m.Check(head); err != nil {
			return nil, err
		}
	}
	if complete {
		return &Moved{Head: head, Before: true}, nil
	}
	if moved == nil { // before anything is written
		if _, err := m.read(ctx, m.From, head, m.checkOlder); err != nil {
			return nil, fmt.Errorf("%s: %w", m.FromPlace, err)
		}
	}
	if mark, err = m.markTarget(ctx, mark, head); err != nil {
		return nil, err
	}
	if head, err = m.fence(ctx, head, mark); err != nil {
		return nil, err
	}
	sum, err := m.read(ctx, m.From, head, m.checkOlder)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", m.FromPlace, err)
	}
	return m.copy(ctx, head, mark, sum)
}

// fence marks the source as moved by the move that has marked the target, and returns its last head. It fails if another
// move has marked the source.
func (m *move) fence(ctx context.Context, head eventlog.Head, target []byte) (eventlog.Head, error) {
	copying, ok := eventlog.DecodeMark(target)
	if !ok {
		return head, fmt.Errorf("%s: it is not marked", m.ToPlace)
	}
	for {
		head, moved, err := m.source(ctx)
		if err != nil {
			return head, err
		}
		if moved != nil {
			return head, m.checkSameMove(moved, copying)
		}
		mark := eventlog.Mark{Kind: eventlog.Moved, At: head, Place: m.ToPlace, Move: copying.Move}
		swapped, err := m.From.Swap(ctx, eventlog.HeadValue, head.Encode(), mark.Encode())
		if err != nil {
			return head, fmt.Errorf("%s: %w", m.FromPlace, err)
		}
		if swapped { // else somebody has written to it, or moved it
			return head, nil
		}
	}
}

// checkSameMove returns an error if the marks of the source and of the target are not of the same move.
func (m *move) checkSameMove(source, target *eventlog.Mark) error {
	if source.Move == target.Move {
		return nil
	}
	return fmt.Errorf("%s: %w; give up the incomplete copy in %s, which another move has overtaken", m.FromPlace, &eventlog.MarkedError{Mark: source}, m.ToPlace)
}

type move struct{ Options }

// source returns the head of the source, and the mark if it is marked as moved.
func (m *move) source(ctx context.Context) (head eventlog.Head, moved *eventlog.Mark, err error) {
	value, err := m.From.Value(ctx, eventlog.HeadValue)
	if err != nil {
		return head, nil, err
	}
	if mark, ok := eventlog.DecodeMark(value); ok {
		if mark.Kind == eventlog.Moved {
			return mark.At, mark, nil
		}
		return head, nil, fmt.Errorf("%s: %w", m.FromPlace, &eventlog.MarkedError{Mark: mark})
	}
	if head, err = eventlog.DecodeHead(value); err == nil && head.Revision == 0 {
		err = errors.New("there is no log")
	}
	if err != nil {
		return head, nil, fmt.Errorf("%s: %w", m.FromPlace, err)
	}
	return head, nil, nil
}

// target returns the value of the target's head if the log can be copied there. complete is set if it has the log.
func (m *move) target(ctx context.Context, head eventlog.Head, moved *eventlog.Mark) (value []byte, complete bool, err error) {
	if value, err = m.To.Value(ctx, eventlog.HeadValue); err != nil {
		return nil, false, fmt.Errorf("%s: %w", m.ToPlace, err)
	}
	mark, marked := eventlog.DecodeMark(value)
	has := eventlog.Head{}
	switch {
	case marked:
		has = mark.At
	case len(value) > 0:
		if has, err = eventlog.DecodeHead(value); err != nil {
			return nil, false, fmt.Errorf("%s: %w", m.ToPlace, err)
		}
	}
	switch {
	case has.Revision > 0 && has.Log != head.Log:
		return nil, false, fmt.Errorf("%s has log %s, and log %s is to be moved there: choose an empty place, such as another --etcd-prefix", m.ToPlace, has.Log, head.Log)
	case marked && mark.Kind == eventlog.Copying:
		if moved != nil {
			err = m.checkSameMove(moved, mark)
		}
		return value, false, err
	case moved != nil && !marked && has.Revision >= head.Revision:
		return value, true, nil
	case moved != nil:
		return nil, false, fmt.Errorf("log %s has moved from %s to another place than %s, or the copy there was removed", head.Log, m.FromPlace, m.ToPlace)
	case len(value) > 0 && !marked:
		return nil, false, fmt.Errorf("%s is in use by this very log, up to revision %d", m.ToPlace, has.Revision)
	case marked && has.Revision > head.Revision:
		return nil, false, fmt.Errorf("%s was left at revision %d, and %s ends at revision %d: it is an older copy of the log", m.ToPlace, has.Revision, m.FromPlace, head.Revision)
	case !marked:
		answer, err := m.To.Read(ctx, 1)
		if err == nil && len(answer.Batches) > 0 {
			err = errors.New("it has batches of a log without a head: choose an empty place")
		}
		if err != nil {
			return nil, false, fmt.Errorf("%s: %w", m.ToPlace, err)
		}
	}
	return value, false, nil
}

// markTarget marks the target as one with an unfinished copy, and returns the mark.
func (m *move) markTarget(ctx context.Context, was []byte, head eventlog.Head) ([]byte, error) {
	if mark, ok := eventlog.DecodeMark(was); ok && mark.Kind == eventlog.Copying {
		return was, nil
	}
	mark := eventlog.Mark{Kind: eventlog.Copying, At: head, Place: m.FromPlace, Move: rand.Text()}
	return mark.Encode(), m.swap(ctx, m.To, m.ToPlace, was, mark.Encode())
}

// errOther reports that the target has something else than a beginning of the source.
var errOther = errors.New("the copy is not one of this log")

// copy copies what the target lacks, reads it back, and makes the target the log.
func (m *move) copy(ctx context.Context, head eventlog.Head, mark []byte, sum summary) (*Moved, error) {
	from, err := m.common(ctx)
	if errors.Is(err, errOther) { // of an earlier move, or the source was trimmed since
		if err = m.To.Clear(ctx); err == nil {
			from, err = 1, nil
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", m.ToPlace, err)
	}
	err = eachBatch(ctx, m.From, from, func(s eventlog.Stored) error {
		answer, err := m.To.Append(ctx, eventlog.Proposal{From: mark, To: mark, At: s.First, Value: s.Value})
		if err == nil && !answer.Applied {
			err = errors.New("another process writes to it")
		}
		if err != nil {
			return fmt.Errorf("%s: write revision %d: %w; repeat the move, which continues", m.ToPlace, s.First, err)
		}
		m.Progress(s.First, head.Revision)
		return nil
	})
	if err != nil {
		return nil, err
	}
	copied, err := m.read(ctx, m.To, head, func(context.Context, *eventlog.Batch) error { return nil })
	if err == nil && copied != sum {
		err = fmt.Errorf("it has %d batches with the SHA-256 %x, and the source %d with %x", copied.batches, copied.sum, sum.batches, sum.sum)
	}
	if err != nil {
		return nil, fmt.Errorf("reading back what was copied to %s: %w", m.ToPlace, err)
	}
	if err := m.copyFloors(ctx); err != nil {
		return nil, err
	}
	if err := m.swap(ctx, m.To, m.ToPlace, mark, head.Encode()); err != nil {
		return nil, err
	}
	return &Moved{Head: head, Batches: sum.batches}, nil
}

// copyFloors copies the record of how far the past is erased, in place of the one that an earlier move has left.
func (m *move) copyFloors(ctx context.Context) error {
	floors, err := m.From.Value(ctx, eventlog.FloorsValue)
	if err != nil {
		return fmt.Errorf("%s: %w", m.FromPlace, err)
	}
	was, err := m.To.Value(ctx, eventlog.FloorsValue)
	if err == nil && !bytes.Equal(was, floors) {
		var swapped bool
		if swapped, err = m.To.Swap(ctx, eventlog.FloorsValue, was, floors); err == nil && !swapped {
			err = errors.New("another process writes to it")
		}
	}
	if err != nil {
		return fmt.Errorf("%s: %w; repeat the move, which continues", m.ToPlace, err)
	}
	return nil
}

// common compares what the target has with the beginning of the source, and returns the revision from which on it has
// nothing.
func (m *move) common(ctx context.Context) (from uint64, err error) {
	var source []eventlog.Stored
	at, next := uint64(1), uint64(1)
	err = eachBatch(ctx, m.To, 1, func(has eventlog.Stored) error {
		if len(source) == 0 {
			answer, err := m.From.Read(ctx, at)
			if err != nil {
				return err
			}
			source = answer.Batches
		}
		if len(source) == 0 || source[0].First != has.First || !bytes.Equal(source[0].Value, has.Value) {
			return errOther
		}
		source, next = source[1:], has.First+1
		at = next
		return nil
	})
	return next, err
}

// summary identifies what a store has.
type summary struct {
	batches int
	sum     [sha256.Size]byte
}

// read reads all batches of a store, and checks that they continue each other up to a head. older is called with the first
// batch behind a gap, which may only be behind the log's first batch.
func (m *move) read(ctx context.Context, store eventlog.Values, head eventlog.Head, older func(context.Context, *eventlog.Batch) error) (summary, error) {
	var s summary
	all := sha256.New()
	at := eventlog.Head{Log: head.Log}
	err := eachBatch(ctx, store, 1, func(stored eventlog.Stored) error {
		if stored.First > head.Revision {
			return nil // written since
		}
		b, err := eventlog.DecodeBatch(stored.First, stored.Value)
		if err != nil {
			return err
		}
		if err := at.Continued(b); err != nil {
			if s.batches != 1 || b.First <= at.Revision+1 || b.Log != head.Log {
				return err
			}
			if err := older(ctx, b); err != nil {
				return err
			}
		}
		if most := m.To.Limits().Value; len(stored.Value) > most {
			return fmt.Errorf("the batch at revision %d has %d bytes, and %s accepts %d: raise its limit of requests (--max-request-bytes of etcd)", b.First, len(stored.Value), m.ToPlace, most)
		}
		at = b.Head()
		s.batches++
		add(all, stored)
		return nil
	})
	if err == nil && at != head {
		err = fmt.Errorf("its batches end at %v, and its head is %v", at, head)
	}
	all.Sum(s.sum[:0])
	return s, err
}

func add(sum hash.Hash, s eventlog.Stored) {
	var numbers [16]byte
	binary.BigEndian.PutUint64(numbers[:], s.First)
	binary.BigEndian.PutUint64(numbers[8:], uint64(len(s.Value)))
	sum.Write(numbers[:])
	sum.Write(s.Value)
}

// checkOlder checks that what the source lacks is kept elsewhere.
func (m *move) checkOlder(ctx context.Context, b *eventlog.Batch) error {
	if m.Older == nil {
		return fmt.Errorf("revisions before %d have left the store", b.First)
	}
	return m.Older(ctx, b)
}

// eachBatch calls visit with the batches of a store from a revision on.
func eachBatch(ctx context.Context, store eventlog.Values, from uint64, visit func(eventlog.Stored) error) error {
	for {
		answer, err := store.Read(ctx, from)
		if err != nil || len(answer.Batches) == 0 {
			return err
		}
		for _, s := range answer.Batches {
			if err := visit(s); err != nil {
				return err
			}
			from = s.First + 1
		}
	}
}

// Abandon gives up an unfinished move: it removes the copy, and makes the source usable again, unless another move has
// marked it. It fails if the target has become the log. If it is interrupted, calling it again continues.
func Abandon(ctx context.Context, o Options) error {
	m := &move{o}
	head, moved, err := m.source(ctx)
	if err != nil {
		return err
	}
	value, err := m.To.Value(ctx, eventlog.HeadValue)
	if err != nil {
		return fmt.Errorf("%s: %w", o.ToPlace, err)
	}
	mark, ok := eventlog.DecodeMark(value)
	if !ok || mark.At.Log != head.Log || mark.Kind == eventlog.Moved && mark.Place != o.FromPlace {
		return fmt.Errorf("%s has no unfinished copy of log %s, so nothing is given up", o.ToPlace, head.Log)
	}
	if moved != nil && mark.Kind == eventlog.Moved && mark.Move != moved.Move { // it is no copy that was being given up
		return fmt.Errorf("%s: %w", o.FromPlace, &eventlog.MarkedError{Mark: moved})
	}
	if mark.Kind == eventlog.Copying { // from here on no move can complete it
		back := eventlog.Mark{Kind: eventlog.Moved, At: mark.At, Place: o.FromPlace, Move: mark.Move}
		if err := m.swap(ctx, o.To, o.ToPlace, value, back.Encode()); err != nil {
			return err
		}
		value = back.Encode()
	}
	if err := o.To.Clear(ctx); err != nil {
		return fmt.Errorf("%s: %w", o.ToPlace, err)
	}
	if moved != nil && moved.Move == mark.Move {
		if err := m.swap(ctx, o.From, o.FromPlace, moved.Encode(), head.Encode()); err != nil {
			return err
		}
	}
	return m.swap(ctx, o.To, o.ToPlace, value, nil)
}

// swap replaces the head of a store.
func (m *move) swap(ctx context.Context, store eventlog.Values, place string, from, to []byte) error {
	swapped, err := store.Swap(ctx, eventlog.HeadValue, from, to)
	if err == nil && !swapped {
		err = errors.New("another process writes to it")
	}
	if err != nil {
		return fmt.Errorf("%s: %w", place, err)
	}
	return nil
}
