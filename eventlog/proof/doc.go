// Package proof proves to somebody who has no access to a log that the log holds an event, and that it
// was only ever appended to.
//
// # Tree
//
// The batches of a log are the leaves of a Merkle tree (RFC 6962, section 2.1): leaf i is the hash of batch
// i, counted from 0, 32 bytes. A batch's hash covers its header and its events, see package eventlog. So the
// root of the tree at a size fixes every byte of metadata and every payload of that many batches.
//
// # Tree heads
//
// A [TreeHead] is the size of a tree and its root. Its text is a checkpoint of C2SP (tlog-checkpoint), and
// signed it is a note of golang.org/x/mod/sumdb/note with Ed25519:
//
//	stele.dev/log/<log id, 32 hexadecimal digits>
//	<size: number of batches, decimal>
//	<root, base64>
//	revision <last revision of the newest batch, decimal>
//	batch <hash of the newest batch, base64>
//
// The last two lines are extensions, which a reader may ignore. Anybody who holds the newest batch can check
// them: a proof of its last event does.
//
// # Proofs
//
// [Tree] makes heads and proofs, [Inclusion] and [Consistency] are proofs, and their Verify methods check
// them with nothing but heads that the caller trusts. A proof is a JSON document in one spelling only:
// [DecodeInclusion] and [DecodeConsistency] refuse every other, so that no byte of a proof can be changed.
// docs/PROOF.md has the formats with an example, and says what is proven and what is not.
package proof
