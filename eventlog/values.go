package eventlog

import (
	"context"
	"errors"
)

// Values is a [Backend] that keeps small values beside the batches. All processes that use the log share them. Names have
// no slash. [HeadValue] is the head of the log.
type Values interface {
	Backend
	// Value returns the value of a name; nil if there is none. It is linearizable.
	Value(ctx context.Context, name string) ([]byte, error)
	// Swap replaces a value if it is `from`, where nil is for none, and reports whether it was. After an error the value
	// may have been replaced, or may be later.
	Swap(ctx context.Context, name string, from, to []byte) (swapped bool, err error)
	// Clear removes all batches. It is for stores whose log has moved elsewhere, or whose copy is begun again.
	Clear(ctx context.Context) error
}

// HeadValue is the name of the head of the log among the [Values] of a store.
const HeadValue = "head"

// FloorsValue is the name of the value that says how far the past is erased. It moves with the log.
const FloorsValue = "floors"

// Value returns a value that is kept beside the log's batches; nil if there is none. The error is
// [errors.ErrUnsupported] if the log's store keeps no values. It is safe for concurrent use.
func (l *Log) Value(ctx context.Context, name string) ([]byte, error) {
	values, ok := l.backend.(Values)
	if !ok {
		return nil, errors.ErrUnsupported
	}
	return values.Value(ctx, name)
}

// SwapValue replaces a value that is kept beside the log's batches if it is `from`, as [Values] does. It is safe for
// concurrent use.
func (l *Log) SwapValue(ctx context.Context, name string, from, to []byte) (bool, error) {
	values, ok := l.backend.(Values)
	if !ok {
		return false, errors.ErrUnsupported
	}
	return values.Swap(ctx, name, from, to)
}
