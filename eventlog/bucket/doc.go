// Package bucket keeps what all replicas of a log share in one place: a folder of a shared file system, or a bucket of an
// object store. It has the sealed segments of the log, and the newest two checkpoints.
//
// # Files
//
//	log/<id of the log>.<id of the bucket>                  says to whom the bucket belongs
//	segments/<segment>.<SHA-256 of the .log file>.payloads  the files of a segment, see package segment
//	segments/<segment>.<SHA-256 of the .log file>.floors    what was erased up to this generation, see [Floors]
//	segments/<segment>.<SHA-256 of the .log file>.log       comes last: with it the segment is there
//	checkpoints/<revision>.<SHA-256>.ckpt                   a checkpoint, see package checkpoint
//
// A file is written once and never changes, so that any number of replicas can write at the same time: equal files have
// equal names. Only .floors may be written twice, by two leaders that have made the same segment: each says how far it had
// erased by then. The SHA-256 of a .log file covers the .payloads file, whose hash it has. A segment that retention has
// rewritten is another file, with the next generation; the former one is removed afterwards.
//
// # Trust
//
// Whatever is written is read back. Whatever is fetched is compared with the hash in its name, and a segment is read in
// full and must continue what is there before it is used ([archive.Archive.Install]). That finds damage. Whoever can write to
// the bucket can write files with hashes that are right, so a checkpoint is believed only by a record in the log, and nothing
// before a gap in a segment by what follows it: see package bucketsync.
package bucket
