package eventlog

import (
	"context"
	"time"

	"stele.dev/stele/eventlog/turns"
)

// Backend stores the batches and the head of one log, without knowing what is in them. The suite in
// eventlog/logtest tests implementations. All methods are safe for concurrent use, and several
// processes may hold backends on the same store.
type Backend interface {
	// Append does one conditional transaction, see [Proposal]. The answer says whether it was applied.
	// If it was not, the answer has the head and the batches from Proposal.At on, as [Backend.Read]
	// would.
	//
	// An error for which [Refused] is true means that the proposal was not applied and never will be.
	// After any other error it may have been applied, may be applied later, or never.
	Append(ctx context.Context, p Proposal) (Answer, error)

	// Read returns the head and the batches from revision `from` on, in order. The backend chooses how
	// many it returns at once, but at least one if there is one. Read is linearizable: it sees every
	// append that was acknowledged, to anyone, before the call.
	Read(ctx context.Context, from uint64) (Answer, error)

	// ReadBack returns up to max batches whose first revision is at most `from`,
	// the newest first.
	ReadBack(ctx context.Context, from uint64, max int) ([]Stored, error)

	// Wait returns when there may be a new batch at revision `from` or later. It is a hint: it may
	// return early, and it returns after a lost connection, so that the caller reads again.
	Wait(ctx context.Context, from uint64) error

	// News returns what the store has told this backend on its own, without asking the store. It may be
	// old or incomplete.
	News(from uint64) News

	// Leave takes a writer out of the line, see [Proposal.Writer].
	Leave(ctx context.Context, writer ID) error

	// Trim removes the batches with 1 < First <= upto, the oldest first, and frees their space where the
	// store is the backend's own. The first batch names the log and always stays; so does the newest. A
	// batch that begins at or before upto and ends after it is removed, too. If Trim returns an error, some
	// may be removed and others not; calling it again continues. Callers use [Log.Trim], which knows what
	// the archive has.
	Trim(ctx context.Context, upto uint64) error

	// Usage returns how much is stored and how much can be. It may be some moments old.
	Usage() Usage

	// Limits returns what the backend can store.
	Limits() Limits

	// Close frees the backend's resources. Calls in flight end with an error.
	Close() error
}

// Proposal asks a backend: if the head is exactly From (nil: there is none) and
// nothing is stored at revision At, store Value at At and make To the head.
type Proposal struct {
	From, To []byte
	At       uint64
	Value    []byte
	// Frees is set if the batch makes room rather than needing it, see [Entry.Frees]. The backend then
	// applies the higher limits of [Usage].
	Frees bool
	// Again is set if an earlier attempt has an unknown outcome. The backend MUST send the proposal to
	// the store even if it would refuse a first attempt, for example for lack of space: only the store
	// knows the outcome.
	Again bool

	// Writer is who appends, and RoundTrip how long that usually takes. If the proposal is not applied, the
	// writer stands in the line of those who wait: at its end, or where it stood before. If it is applied, the
	// writer leaves the line, or goes to its end if Stays is set. The zero Writer never stands in the line.
	Writer    ID
	RoundTrip time.Duration
	Stays     bool
	// Skipped are writers that did not use their turn. They leave the line if the proposal is applied.
	Skipped []turns.ID
}

// Waiter is a writer in the line: it has lost an append, or it goes on writing beside others.
type Waiter = turns.Waiter

// News is what a store has told of itself.
type News struct {
	// Batches follow each other and begin at the revision that the caller asks about. There may be more.
	Batches []Stored
	// Line has all who wait to append, the first in line first.
	Line []Waiter
	// Changed is closed when there is more news.
	Changed <-chan struct{}
}

// Answer is a backend's answer to an append or a read.
type Answer struct {
	// Applied is set if the proposal was applied; the other fields are then empty.
	Applied bool
	Head    []byte
	Batches []Stored
}

// Stored is an encoded batch, as a backend keeps it.
type Stored struct {
	First uint64 // the batch's first revision, which is its key
	Value []byte
}

// Limits are the limits of a backend.
type Limits struct {
	// Value is the maximum size of one value in bytes.
	Value int
	// Exclusive is set if nobody else can write to the store while this backend is open. The only
	// writer then knows the whole log.
	Exclusive bool
}
