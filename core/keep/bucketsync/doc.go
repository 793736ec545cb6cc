// Package bucketsync keeps the segments and checkpoints of a replica and of the log's bucket alike (package bucket has
// their form).
//
// [Syncer.Start] fetches what a replica lacks before it starts: a new one, one that was stopped for long, one whose files
// were lost. While it runs, [Syncer.Run] fetches segments that are damaged or that another replica has rewritten, and
// [Syncer.Fill] those that have left the log's store before this replica sealed them.
//
// A checkpoint of the bucket is used only if the log has recorded its fold: its own checksums are as good as the one who
// wrote it. Segments must continue each other, and the log's store the last one, which binds all that is before it but for
// what is before a gap. Of that the log has recorded the hashes before it was erased.
//
// The replica that leads stores what the bucket lacks. Any number of them may do so at once: files are written once, under
// the hash of their content. Only the replica that leads erases the past; the others follow it by fetching the segments
// that it has rewritten, so that replicas with different flags do not undo each other's work.
package bucketsync
