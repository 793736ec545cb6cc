// Package eventlog is the log of record: an append-only sequence of events, kept in batches in a store
// that can compare and append atomically. Everything else that the server knows is a fold over it.
//
// # Use
//
// [Open] attaches to the log in a [Backend], creating it if there is none. A writer
// turns events into entries ([Encode]: outside any lock, once), gathers entries into a
// [Draft], and hands it to [Log.Append] together with the position it believes to
// be the tip. A reader asks for what comes after a position it holds: [Log.Next]
// waits for more, [Log.CatchUp] says at once what is missing. Projections see no more
// than [Reader].
//
// # Promises
//
// Revisions are unique, totally ordered and gap-free but for declared epochs. A
// batch that Append reported as won is in the log for ever, at the revisions it
// was told; one reported as lost or refused is not and will never be. An append whose
// outcome the backend did not tell is settled by appending the same bytes at the
// same place again, never by a read: the first try may still be on its way. What
// is read has been checked to continue the reader's position, in revision and in
// hash; whatever does not is [ErrDiverged] or a [*CorruptError], never skipped.
//
// A log that was restored from a backup lacks revisions that clients have seen. Before
// anything else is appended [Log.StartEpoch] declares them lost, and goes on above them:
// no revision ever means two things.
//
// Log time is the writer's clock, and only an event of [Log.SetClock] sets it back. If a clock was ahead
// when the newest batches were written, SetClock corrects log time, and those batches count as written at
// that moment ([ClockSets.Time]). The headers keep the clock's own readings.
//
// Any number of processes may write to one log. There is no leader and no lock: the backend's
// compare-and-append orders writers, and a writer that loses gets the batches that it missed. Writers that meet append
// in turns ([Log.Turn]), so that each has its share at any distance from the backend.
//
// # Two tiers
//
// The backend has the newest batches. Older ones may be in an [Archive] ([Log.SetArchive]); [Log.Trim] removes
// from the backend what the archive has, except for the first batch, which names the log, and the newest. A
// reader does not notice: Next, CatchUp and Back read the archive where it has the position, and check the hash
// at the border. What neither has is a [*MissingError], and what the archive has forgotten a [*ForgottenError].
// A process that begins at a checkpoint calls [Log.Resume], because it has not read the log's time.
//
// # Keys
//
//	<prefix>/head                        position of the tip: 65 bytes, see Head.Encode
//	<prefix>/log/<20 decimal digits>     one logpb.Batch, under its first revision
//	<prefix>/waiting/<writer>            round trip of a writer that waits to append, in microseconds
//	<prefix>/bucket                      the bucket that all replicas share, see package bucket; absent without one
//	<prefix>/trimmed                     empty; written after a trim by an embedded etcd, see etcdlog
//
// The head of a log that has moved to another store, or whose copy is not complete, is a [Mark].
//
// An append is one transaction: if head is what the writer holds and the next key
// is absent, put the batch and the new head; else return the head and the first
// batches from the writer's tip on. A loser puts its key under waiting in the same transaction, and a winner removes
// its own or puts it anew. The line of those who wait is in the order of the keys' modifications.
//
// # Hashing
//
// All hashes are SHA-256, each kind of input under its own first byte. With ‖ for
// concatenation and len(x) as 8 bytes, big-endian:
//
//	payload = H(0x02 ‖ salt ‖ content)
//	leaf    = H(0x00 ‖ len(metadata) ‖ metadata ‖ payload₁ ‖ … ‖ payloadₙ)
//	root    = Merkle tree hash of the leaves (RFC 6962, section 2.1)
//	batch   = H(0x03 ‖ previous batch ‖ header ‖ root)
//
// Metadata and header are hashed as the bytes that were written. A salt lives and
// dies with its content: once both are gone, the payload hash that is left says
// nothing about what it was, and the chain still verifies. Compression and
// encryption are outside the hashes.
//
// # Concurrency
//
// A Log is safe for concurrent use. Events and batches that it returns are shared:
// they MUST NOT be changed.
package eventlog
