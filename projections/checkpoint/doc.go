// Package checkpoint keeps the folds of a log at one revision in files, so that a start does not have to replay the
// log from its beginning. It knows the files; what is in them is the business of the projections that write them.
//
// # Content
//
// A checkpoint is a list of sections. A section has a name, the version of the code that folded it, and records, which
// are bytes. A [Writer] writes them as a stream, and a [Reader] reads them as a stream; neither holds more than a few
// blocks in memory. [Records] parses a section on all processors and keeps the order.
//
// [Info.Fold] is a hash of the sections and records alone. It depends neither on how the file is cut into blocks nor
// on how they are compressed, so equal folds have equal hashes, on every replica; [HashOf] computes it without a file.
//
// # Files
//
// A file is a magic number and blocks. Each block has a header, with its kind, its sizes and a CRC-32C of the header
// and the content, and its content, compressed with zstd. A block of kind section begins a section, the blocks of kind
// records that follow have its records, and a block of kind footer, which must end the file, has the counts and the
// hash. Records of kinds whose contents are encrypted at rest are in blocks of kind sealed: their content names the kind and the
// key, and the rest is encrypted after it was compressed. So a flipped bit, a missing block, a file that is cut off and one that goes on after its end are all noticed.
//
// # Trust
//
// [Folder.Write] writes a file under a temporary name, syncs it, renames it, syncs the folder, and reads the file back
// from its beginning. Only then it counts. A reader believes a checkpoint when it has read the footer, and never
// before: [Reader.Close] returns an error if not everything was read. That finds damage. It does not find a file that
// somebody else has written, with checksums of its own: a file of elsewhere is believed if the log has recorded its fold
// ([Folder.Recorded]; package commit has the records).
package checkpoint
