// Package members reaches the members of an etcd cluster that runs elsewhere.
//
// [Open] connects to each member separately, and asks each for its status every few seconds. [Cluster.Client] is an etcd
// client whose requests go to one member, the current one, as long as that works, and else to another:
//
//   - A request that only reads goes to a second member if the first has not answered within hedgeAfter, or fails in a way
//     that another member may not. The first answer counts.
//   - A request that may write is sent once. If it certainly was not sent, or the member refused it before it proposed it to
//     the others, the next member is tried. If no member could be reached the error is a [*NotSentError]. After any other
//     error the outcome is unknown, and the next request goes to another member.
//   - A watch ends when its member fails, and the client starts it again on another.
//
// A member is used only after it has said, on the same connection, that it belongs to the cluster. So an endpoint that leads
// to another cluster is never written to.
//
// Certificates, keys and passwords are read from their files when they are needed, so that a change needs no restart.
package members
