// Package commit is the only way into the log. One goroutine per replica, the
// [Committer], holds the log's tip: it evaluates proposals against it, appends the
// ones that pass as one batch, and publishes the state that follows.
//
// # Proposals
//
// A [Proposal] is an event and the [Checks] under which it may be appended, as data.
// The committer evaluates them against the tip and the batch so far, and folds the
// event into a scratch copy of the state: what cannot be applied is refused here
// and never enters the log. Because the append is conditional on the head, the checks
// hold at the revision that the event gets, whoever else writes: that is how an
// update meets no newer object, a create no deleted namespace, and any write no
// policy but the one under which it was admitted.
//
// # Outcomes
//
// Commit returns the state that holds the change, or
//
//   - [*Stale]: a check failed, on a state that is confirmed to be the log's tip at
//     a moment after the proposal was made. The caller decides anew;
//   - an error for which eventlog.Refused holds, or [ErrNotSent]: it is not in the
//     log and never will be;
//   - [ErrUndecided]: the deadline passed while it was on its way. The committer
//     goes on until it knows, and publishes the outcome.
//
// # Activations
//
// [Committer.Prepare] loads a policy and renders the objects whose look it changes before
// it is proposed: nobody else waits for that. The fold does the same by itself where
// nothing was prepared, so that all replicas come to the same.
//
// # Confirmation
//
// [Committer.Confirm] returns a state that was the log's tip at some moment after
// the call: one read of the log serves all who wait, and an append that wins
// confirms as well. A replica whose log is exclusive is always confirmed.
package commit
