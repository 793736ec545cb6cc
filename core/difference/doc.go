// Package difference says what differs between two objects, so that people can read it and
// programs can apply it.
//
// A difference is a list of entries, each a path and what became of what is there. Fields
// are compared by their names. Lists that the schema says are of type map are compared by
// the keys of their items, as Kubernetes does, and their order does not count; the items of
// other lists are aligned, so that one more in the middle is one entry. What was added or
// removed as a whole is one entry, however much is below it.
//
// The package knows of no permissions: whoever shows a difference shows parts of both
// objects, and must have found that the reader may read them.
package difference
