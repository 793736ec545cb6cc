// Package blame tells who set each field of an object, and when: log.stele.dev/v1, kind Blame. A client creates a
// blame to get an answer; it is never stored.
//
// A [Fold] starts with the object as it is shown and goes back version by version. If the older version lacks a field,
// or has another value, the newer version set the field. List items are matched with the items of the older version,
// also when they have moved. The fold reads every version once, and stops as soon as every field has an answer.
package blame
