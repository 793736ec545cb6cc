// Package quotas is the projection of resource quotas: what each ResourceQuota of each namespace limits, and how much of
// it is used.
//
// A [State] belongs to the state of the objects at one revision. It is immutable, and follows from the objects and from the
// rules of the policy in force alone: [New] computes it, and [State.Apply] computes the next one from what changed. Both
// give the same. No sum is kept for namespaces without quotas.
//
// [State.Check] decides whether a write fits into all quotas of its namespace. Only what increases a usage is checked, as in
// Kubernetes: what is above its limit may stay, and shrink. The committer asks it for each write, on the state to which the
// write is appended; the status of the objects is not read here.
package quotas
