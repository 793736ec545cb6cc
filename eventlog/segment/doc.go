// Package segment writes and reads the files in which the older batches of a log are kept. A segment is a pair of
// immutable files with the batches of a range of revisions:
//
//	<first revision, 20 digits>-<last revision, 20 digits>.log        headers and metadata, verbatim
//	<first revision, 20 digits>-<last revision, 20 digits>.payloads   contents and salts
//
// A segment that was rewritten, to forget some of it, has its generation before the extension: -g1, -g2.
//
// The files are a function of the batches alone: every replica writes the same bytes, if its version of the compression
// library is the same.
//
// # Files
//
// Both files have the same frame:
//
//	magic      8 bytes: "STELE-L1" or "STELE-P1"
//	blocks     one zstd frame each
//	index      segmentpb.LogIndex or segmentpb.PayloadIndex: length and CRC-32C of each block
//	info       segmentpb.Info; empty in the .payloads file
//	trailer    24 bytes: lengths of index and info, CRC-32C of index and info, as 4 bytes each, little-endian; the magic
//
// Info has size and SHA-256 of the .payloads file, so that the two files cannot be of different origin.
//
// A block of the .log file holds records. Integers are varints of package encoding/binary, and every byte string has its
// length in front:
//
//	batch  revision, 0, header, number of events, for each: metadata, number of blobs, for each: logpb.Blob without
//	       salt and content
//	gap    revision, 1, segmentpb.Gap
//
// The revision is that of the first event, less the segment's first. A blob that is neither erased nor encrypted is so
// an empty string here.
//
// A block of the .payloads file holds the payloads of one kind of object, in the order of their keys. The key is
// (revision of the event, less the segment's first) << 16 | index of the payload in the event. The payloads of events
// without an object are of the kind that is named by empty strings.
//
//	number of payloads, for each: key less the one before, length of the salt, length of the content
//	all salts
//	all contents
//
// # Gaps
//
// A rewritten segment may lack batches. A gap stands in their place, with the positions before and after it and the
// hashes by which they take part in the tree over all batches. Readers pass over gaps: the batch after a gap does not
// continue the one before it.
//
// # Tree
//
// The hashes of all batches of a log are the leaves of a tree as in RFC 6962, section 2.1: the leaf of a batch is
// SHA-256(0x00 ‖ hash of the batch). A segment knows the ordinal of its first batch, and the compact range of its
// leaves, as package compact of github.com/transparency-dev/merkle has it.
//
// # Damage
//
// Every read checks the block's CRC-32C, and that the hash of every batch that it returns is the one that the next
// batch continues. Errors are [*DamagedError] and name the file.
package segment
