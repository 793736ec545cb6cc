// Package views is the projection that keeps the rows of views up to date.
//
// A [Projection] follows the states that the committer publishes. It evaluates the views of a kind on the objects that have
// changed and on no others, off the path of commits: when a view is read, and soon after a change of its kind. The rows are in an
// [objects.Store], so that lists, pages, watches and recent states of views are those of any kind.
//
// # What a row is
//
// The rows at a revision follow from the objects and the policy at that revision alone. [Compute] makes them of all objects; the
// rows that are kept are the same. The row of an object has the object's resourceVersion. The row of a group has the revision of
// the write that changed it last, or that at which the view was computed, if that is later: it is the only thing about rows that
// depends on when they were computed.
//
// # Policies
//
// When a policy comes into force, views that are new, or whose definition or kind has changed, are computed in the background.
// Until then they have no rows, and [Projection.State] waits, for a limited time. All other views stay, and so do their watches.
// After a start all views are computed; nothing about them is stored.
package views
