package eventlog

import (
	"errors"
	"fmt"
)

// Reasons for which nothing was proposed: the append is not in the log, will never
// be, and may be tried again later. Any other error of a backend's Append leaves
// the outcome unknown.
var (
	// ErrTooLarge reports that the backend does not take values of that size.
	ErrTooLarge = errors.New("eventlog: batch too large for the backend")
	// ErrFull reports that the log has reached its soft limit of storage.
	ErrFull = errors.New("eventlog: storage limit reached")
	// ErrUnavailable reports that the backend could not be reached to begin with.
	ErrUnavailable = errors.New("eventlog: backend unavailable")
)

// Refused tells whether err says that nothing was proposed.
func Refused(err error) bool {
	return errors.Is(err, ErrTooLarge) || errors.Is(err, ErrFull) || errors.Is(err, ErrUnavailable)
}

// ErrUnknownOutcome reports that the context ended before the backend said whether
// the batch is in the log. Only the same append again can tell.
var ErrUnknownOutcome = errors.New("eventlog: append outcome unknown")

// ErrDiverged reports that the log is behind the position of the reader, or has
// something else at its revision: a restored backup, another log, a store that lost
// acknowledged writes. Nobody can catch up from there; the process must stop.
var ErrDiverged = errors.New("eventlog: the log is not the one that was read before")

// CorruptError reports bytes that no correct writer has left behind.
type CorruptError struct {
	Revision uint64 // of the batch, 0 if unknown
	Reason   string
}

func (e *CorruptError) Error() string {
	if e.Revision == 0 {
		return "eventlog: corrupt: " + e.Reason
	}
	return fmt.Sprintf("eventlog: batch at revision %d is corrupt: %s", e.Revision, e.Reason)
}

// UnsupportedError reports something that a newer version wrote and that may not
// be skipped.
type UnsupportedError struct {
	Revision uint64
	What     string
}

func (e *UnsupportedError) Error() string {
	return fmt.Sprintf("eventlog: revision %d has %s, which this version does not know; use a newer one", e.Revision, e.What)
}
