// Package blame tells of every field of an object since when it has had its value, and who
// gave it that: log.stele.dev/v1, kind Blame, which is created to be answered and never stored.
//
// A [Fold] starts from what is shown of the object and is taken back from state to state. A
// field that the older state has not, or with another value, is the work of the newer one;
// items of lists are followed where they stood before. It needs one pass over the versions,
// and ends as soon as no field is left.
package blame
