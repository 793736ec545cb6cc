// Package objects is the projection that answers reads: the current objects, the
// recent changes, and who watches them.
//
// # State
//
// A [State] is what the objects are at one revision: per resource an ordered
// copy-on-write tree. It never changes, so that any number of readers may hold one
// without a lock for as long as they like. An [Object] is held as the JSON that
// clients get, with the few fields that selections ask for parsed beside it: lists
// join bytes, and nothing is encoded to be read.
//
// # Writing
//
// One goroutine applies events, in revision order. [Store.Begin] opens a scratch copy,
// [Tx.Apply] folds events into it or says why they cannot be, and [Store.Publish]
// makes it the current state. A scratch copy that is dropped has changed nothing:
// this is how a committer finds out, before it appends, whether a batch can be
// applied. The fold copies; it decides nothing and asks neither clock nor die.
//
// # Looks
//
// When a policy comes in force, [Tx.SetKinds] may give objects another look: rendered from
// what was written, by a function that is handed in, with the revision that they had. Where
// that differs from what was written, an Object keeps both. [State.Render] does the work
// ahead.
//
// # Changes and watchers
//
// Published changes stay in memory up to a number of bytes, in revision order: a
// watch starts from any revision behind which nothing has been dropped
// ([ErrExpired] otherwise), and the state at a recent revision is the current one
// with the changes since undone; one that a list is being paged of is at hand for longer
// ([Store.Pin]). A change is offered to those watchers only that
// its key, or one of its selectable fields, may concern; [Store.Run] does that in a
// goroutine of its own, so that writers do not wait for watchers. A watcher that is
// slow loses its queue, not its place: it goes on from the shared changes, and
// ends with ErrExpired only when those have been dropped too, and [Watcher.Place] tells how
// far it had come.
package objects
