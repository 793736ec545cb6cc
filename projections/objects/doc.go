// Package objects is the projection that answers reads: it has the current objects, the recent changes,
// and the watchers.
//
// # State
//
// A [State] has the objects at one revision: for each resource an ordered copy-on-write tree. It is
// immutable, so that any number of readers may use it without a lock, for any time. An [Object] is the
// JSON that clients get, together with the few parsed fields that selections need: a list joins bytes, and
// reads encode nothing.
//
// # Writing
//
// One goroutine applies events, in revision order. [Store.Begin] opens a scratch copy, [Tx.Apply] folds an
// event into it or returns an error, and [Store.Publish] makes it the current state. A scratch copy that is
// dropped has no effect: this is how a committer checks, before it appends a batch, whether the batch can
// be applied. The fold is deterministic: it copies, and uses neither a clock nor random numbers.
//
// # Rendering
//
// When a policy comes into force, [Tx.SetKinds] may render objects anew: from the JSON that was written,
// by a function of the caller, under the revision that they had. If the result differs from what was
// written, an Object has both. [State.Render] renders in advance.
//
// # Indexes
//
// A list by labels or selectable fields uses an index, if there are many objects and an index finds few of them. The first
// list that would profit makes the index. An index has the objects of one revision, by the value of one label or field, and
// writes do not change it: a list takes what the index has, and the recent changes between the index and its own state, in
// either direction. So one index serves the current state, recent states and those of paged lists. When many changes came
// after it, a list applies them to it. An index is dropped when those changes have been dropped, or if others are used more.
//
// # Changes and watchers
//
// Published changes stay in memory in revision order, up to a number of bytes. A watch starts from any
// revision after which no change has been dropped; otherwise it gets [ErrExpired]. The state at a recent
// revision is made from the current one by undoing changes; [Store.Pin] keeps the state of a paged list for
// longer. A change is offered only to watchers that its key, or one of its selectable fields, may concern.
// [Store.Run] does that in its own goroutine, so that writers do not wait for watchers. A watcher that is
// slow loses its queue, but not its place: it continues from the shared changes, and ends with ErrExpired
// only when those have been dropped, too. [Watcher.Place] returns how far it came.
package objects
