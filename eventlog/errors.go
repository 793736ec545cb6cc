package eventlog

import (
	"errors"
	"fmt"
)

// Refusals of a backend's Append: the append is not in the log and never will be, and may be tried
// again later. After any other error the outcome is unknown.
var (
	// ErrTooLarge reports that the batch is larger than the backend's limit.
	ErrTooLarge = errors.New("eventlog: batch too large for the backend")
	// ErrFull reports that the log has reached its soft limit of storage.
	ErrFull = errors.New("eventlog: storage limit reached")
	// ErrLost reports that the files of the log were deleted or replaced while it is open: what is appended could not be read
	// after a restart.
	ErrLost = errors.New("eventlog: the files of the log are gone")
	// ErrUnavailable reports that the backend could not be reached, before anything was sent.
	ErrUnavailable = errors.New("eventlog: backend unavailable")
)

// Refused reports whether err is a refusal: the append is not in the log and never will be.
func Refused(err error) bool {
	return errors.Is(err, ErrTooLarge) || errors.Is(err, ErrFull) || errors.Is(err, ErrLost) || errors.Is(err, ErrUnavailable)
}

// ErrUnknownOutcome reports that the context ended before the backend answered whether the batch is in
// the log. Only a repetition of the same append can find out.
var ErrUnknownOutcome = errors.New("eventlog: append outcome unknown")

// ErrUnreadable reports that the backend did not answer a question about the past ([Reader.Back]). It may be
// asked again.
var ErrUnreadable = errors.New("eventlog: the log cannot be read at the moment")

// ErrDiverged reports that the log ends before the reader's position, or differs there: a restored
// backup, another log, or a store that lost acknowledged writes. The reader cannot catch up; the process
// must stop.
var ErrDiverged = errors.New("eventlog: the log is not the one that was read before")

// CorruptError reports stored bytes that no correct writer has written.
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

// UnsupportedError reports something that a newer version wrote and that this version must not skip.
type UnsupportedError struct {
	Revision uint64
	What     string
}

func (e *UnsupportedError) Error() string {
	return fmt.Sprintf("eventlog: revision %d has %s, which this version does not know; use a newer one", e.Revision, e.What)
}

// ForgottenError reports a position whose batches the archive does not keep any more. It is fatal for a
// reader that must continue from there, because they do not come back. For a question about the past it is
// the answer.
type ForgottenError struct {
	// Oldest is the position before the oldest batch that is kept.
	Oldest Head
}

func (e *ForgottenError) Error() string {
	return fmt.Sprintf("eventlog: events before revision %d are not kept any more", e.Oldest.Revision+1)
}

// ErrOvertaken reports that parts of the following batches were erased before the reader has applied them. It is
// fatal for a reader that must continue: it begins again from a later checkpoint.
var ErrOvertaken = errors.New("eventlog: what follows is erased in part")

// MissingError reports batches that were removed from the backend ([Log.Trim]) and that the archive does not
// have. No reader may go on behind them.
type MissingError struct {
	From, To uint64 // the first and the last missing revision
}

func (e *MissingError) Error() string {
	return fmt.Sprintf("eventlog: revisions %d to %d are missing: they were moved out of the log's store, and no segment has them; restore the segments from where they are, or all from a backup", e.From, e.To)
}

// DamageError reports batches that the archive cannot read, because the file with them is damaged or missing, and that are
// nowhere else. A file that is put back mends it. For a question about the past it is the answer.
type DamageError struct {
	From, To uint64 // the revisions of the file
	Err      error  // names the file
}

func (e *DamageError) Error() string {
	return fmt.Sprintf("eventlog: revisions %d to %d cannot be read: %v", e.From, e.To, e.Err)
}

// Unwrap returns the error that names the file.
func (e *DamageError) Unwrap() error { return e.Err }
