// Package retention erases the past that need not be kept any more. The policy says per kind how long versions and
// records are kept; flags can limit it further.
//
// # What is erased
//
// A version of an object becomes past when another one replaces it, or when the object is deleted. Once it has been
// past for as long as the kind's history is kept, its content is erased from its segment, and its hash stays. After the
// time for records, the whole batch is erased if all its events may be, and the hashes by which it takes part in the
// log's tree stay. So the present version of an object, and the version in force at the oldest revision that can be
// read, are never erased, however old they are. Neither are events about policies and the log itself.
//
// # When
//
// Ages are counted from a [Horizon]. For each kind there is a floor: the oldest revision that can be read. It moves to
// the last revision before the horizon less the kind's time, but never beyond the older checkpoint that is kept, and
// never back. An event of the log has it first, with the root of the tree over all batches up to there, which binds what is kept before a gap
// ([logpb.PastErased]). Then the log's store records it, so that nobody who can write to a bucket or to files can raise it. Then it is moved, so
// that reads below it are refused, then the segments are written again, oldest first.
// A segment is written again once a floor has passed it, and then at twice, four times, ... that distance, because
// versions in it may have been replaced in the meantime.
package retention
