// Package difference compares two objects. The result is readable, and can be applied by programs.
//
// A difference is a list of entries, each with a path and a change. Fields are compared by name. Lists that the schema
// declares as type map are compared by the keys of their items, as in Kubernetes, and their order is ignored. Items of
// other lists are aligned, so that an insertion in the middle is one entry. A value that was added or removed as a
// whole is one entry.
//
// The package does not check access. A difference shows parts of both objects, so the caller must check that the user
// may read them.
package difference
