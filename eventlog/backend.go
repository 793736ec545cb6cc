package eventlog

import "context"

// Backend stores the batches and the head of one log, and nothing else: it does
// not know what is in them. Implementations are tested by the conformance suite in
// eventlog/logtest. All methods are safe for concurrent use, and several processes
// may hold backends on the same store.
type Backend interface {
	// Append does one conditional transaction, see [Proposal]. Its answer says
	// whether it was applied; if not, the answer has the head and the batches from
	// Proposal.At on, as [Backend.Read] would.
	//
	// An error for which [Refused] is true means that it was not applied and never
	// will be. After any other error it may be applied already, or later, or never.
	Append(ctx context.Context, p Proposal) (Answer, error)

	// Read returns the head and batches from revision `from` on, in order, as many
	// as the backend likes to return at once but at least one if there is one. It
	// is linearizable: it sees every append that was acknowledged, to anyone,
	// before the call.
	Read(ctx context.Context, from uint64) (Answer, error)

	// ReadBack returns up to max batches whose first revision is at most `from`,
	// the newest first.
	ReadBack(ctx context.Context, from uint64, max int) ([]Stored, error)

	// Wait returns when there may be a batch at revision `from` or later, which
	// was not there when it was called. It is a hint: it may return early, and
	// after a lost connection it returns so that the caller reads again.
	Wait(ctx context.Context, from uint64) error

	// Limits tells what the backend can take.
	Limits() Limits

	// Close frees what the backend holds. Calls under way end with an error.
	Close() error
}

// Proposal asks a backend: if the head is exactly From (nil: there is none) and
// nothing is stored at revision At, store Value at At and make To the head.
type Proposal struct {
	From, To []byte
	At       uint64
	Value    []byte
	// Again: the outcome of an earlier try is unknown. The backend MUST NOT keep it
	// back for reasons of its own, such as a lack of room: only the store can tell.
	Again bool
}

// Answer is what a backend holds.
type Answer struct {
	// Applied: the proposal was applied; the rest is empty.
	Applied bool
	Head    []byte
	Batches []Stored
}

// Stored is the encoded batch under a key.
type Stored struct {
	First uint64
	Value []byte
}

// Limits of a backend.
type Limits struct {
	// Value is the largest number of bytes of one value.
	Value int
	// Exclusive says that nobody else can write to the store for as long as this
	// backend is open, so that what its only writer has seen is all there is.
	Exclusive bool
}
