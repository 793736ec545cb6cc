package status

import "errors"

// The outcomes of a write that package commit did not append. They are here because clients receive a Status for each.
var (
	// ErrNotSent reports a write that was withdrawn before it was sent to the log.
	ErrNotSent = errors.New("commit: not sent")
	// ErrUndecided reports a write that was sent to the log, but whose outcome is unknown.
	ErrUndecided = errors.New("commit: outcome not known yet")
	// ErrStopped reports that the committer has stopped.
	ErrStopped = errors.New("commit: stopped")
)
