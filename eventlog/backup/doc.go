// Package backup copies a log to another place and back: to a folder, a single file or a bucket.
//
// A backup is a [Manifest] and the files that it names. The manifest has the position in the log at which the
// backup ends, and for each file its size and its SHA-256. The files are parts of the log in order: segments of the
// archive, which are copied as they are, and batches that are in no segment yet, verbatim, in files of some megabytes.
// A checkpoint and keys may be added. Files never change: their names contain the SHA-256 of their content. Backups in
// one [Store] therefore share files, and a backup sends only what the store does not have.
//
//	<log id>/backups/<revision>-<time>.json    a manifest; it is written last
//	<log id>/segments/…, batches/…, checkpoints/…, keys/…
//
// [Create] writes a backup, [Verify] reads one back, [Restore] makes a data directory of one. An interrupted Create
// leaves files without a manifest, which the next one uses. An interrupted Restore leaves a folder that is marked as
// unfinished, and the next one continues.
//
// # What is checked
//
// Create decodes every batch that it copies and checks that it continues the batch before, so a damaged log is not
// backed up as a good one. It reads every file back after it was stored. Verify and Restore check sizes and SHA-256 of all
// files, decode all batches, and compare the hash chain with the head in the manifest.
//
// # Encryption
//
// With age recipients each file is encrypted by itself. The manifest is not: it tells the log's id, revisions and times,
// and the SHA-256 of each file's plain content, by which later backups find files that they need not send again.
package backup
