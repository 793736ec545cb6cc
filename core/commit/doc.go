// Package commit is the only way into the log. One goroutine per replica, the [Committer], holds the tip of the log.
// It evaluates proposals against the tip, appends those that pass as one batch, and publishes the new state.
//
// # Proposals
//
// A [Proposal] is an event, and the [Checks] under which it may be appended, as data. The committer evaluates the
// checks against the tip and the batch so far, and folds the event into a scratch copy of the state. An event that
// cannot be applied is refused and never enters the log. The append is conditional on the head of the log, so the
// checks hold at the event's revision, even if other replicas write: an update never overwrites a newer object, no
// object is created in a deleted namespace, and no write commits under another policy than the one that admitted it.
//
// # Outcomes
//
// Commit returns the state that contains the event, or one of these errors:
//
//   - [*Stale]: a check failed, on a state that was confirmed to be the log's after the proposal was
//     made. The caller decides anew;
//   - an error for which eventlog.Refused is true, or [status.ErrNotSent]: the event is not in the log and
//     never will be;
//   - [status.ErrUndecided]: the deadline passed before the outcome was known. The committer continues until
//     it knows, and publishes the outcome.
//
// # Activations
//
// [Committer.Prepare] loads a policy, and renders the objects that it changes, before the policy is proposed, so that
// other writes do not wait for that. Without Prepare, the fold does the same, so that all replicas reach the same
// state.
//
// # Confirmation
//
// [Committer.Confirm] returns a state that was the log's newest at some moment after the call. One read of the log's
// head serves all waiting callers, and runs beside the appends. A refusal waits for it, too, unless an append of the
// same round succeeds, which confirms as well. A replica with an exclusive log is always confirmed.
//
// # Several replicas
//
// One goroutine moves the tip: by appending, and by the batches that another goroutine follows. While other replicas
// write, it appends in turns with them (eventlog.Log.Turn), and more proposals join the batch while it waits.
package commit
