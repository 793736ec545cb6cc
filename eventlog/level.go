package eventlog

import (
	"context"
	"fmt"
	"math"
	"sync/atomic"
)

// Format is the highest format level that this version reads and writes.
//
// Batches are written at the level in force. It is 1 in a new log, and an event LevelRaised raises it for the batches
// that follow; it never falls. So a newer version writes nothing that an older one cannot read until every replica
// reads it. A replica that meets a level that it does not read stops with an [*UnsupportedError].
//
//	level 2: contents may be sealed, see [Keys]
const Format = 2

// firstLevel is the level of a new log.
const firstLevel = 1

// pretended is the highest level that a Log of this process was told to read, see [Options.Reads].
var pretended atomic.Uint32

// readable returns the highest level that is decoded.
func readable() uint32 { return max(Format, pretended.Load()) }

// pretend lets this process decode a level that the version does not have.
func pretend(level uint32) {
	for {
		old := pretended.Load()
		if level <= old || pretended.CompareAndSwap(old, level) {
			return
		}
	}
}

// Level returns the level in force after the batch.
func (b *Batch) Level() uint32 {
	level := b.Format
	for _, e := range b.Events {
		level = max(level, e.Meta.GetLevelRaised().GetFormat())
	}
	return level
}

// Reads returns the highest format level that this process reads.
func (l *Log) Reads() uint32 { return l.reads }

// Level returns the level in force at the newest batch that this process knows. It is safe for concurrent use.
func (l *Log) Level() uint32 { return max(firstLevel, l.level.Load()) }

// noteLevels remembers the level in force after batches. An older one changes nothing, because levels never fall.
func (l *Log) noteLevels(batches ...*Batch) {
	for _, b := range batches {
		l.KnowLevel(b.Level())
	}
}

// checkLevel returns an error for a batch whose level this process does not read, or that raises the level beyond.
func (l *Log) checkLevel(b *Batch) error {
	if level := b.Level(); level > l.reads {
		return &UnsupportedError{Revision: b.First, What: fmt.Sprintf("format level %d", level)}
	}
	return nil
}

// LearnLevel finds out which level is in force. Until then, or until the newest batch was read, [Log.Level] may be too low.
func (l *Log) LearnLevel(ctx context.Context) error {
	stored, err := l.backend.ReadBack(ctx, math.MaxUint64, 1) // trims leave the newest batch
	if err != nil {
		return fmt.Errorf("%w: the format level in force is not known: %w", ErrUnavailable, err)
	}
	for _, s := range stored {
		b, err := DecodeBatch(s.First, s.Value)
		if err == nil {
			err = l.checkLevel(b)
		}
		if err != nil {
			return err
		}
		l.noteLevels(b)
	}
	return nil
}

// KnowLevel tells the log that at least this level is in force. It is for who restores a log whose newest batches are not in the
// backend.
func (l *Log) KnowLevel(level uint32) {
	for old := l.level.Load(); level > old && !l.level.CompareAndSwap(old, level); old = l.level.Load() {
	}
}

// learnLevel is LearnLevel for a process that has resumed at a checkpoint and has read nothing since.
func (l *Log) learnLevel(ctx context.Context) error {
	if !l.resumed.Load() {
		return nil
	}
	if err := l.LearnLevel(ctx); err != nil {
		return err
	}
	l.resumed.Store(false)
	return nil
}
