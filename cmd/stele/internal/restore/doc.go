// Package restore has the commands revert, undelete and undo, which put objects back to what they were. They plan the
// writes, let the server try them as dry runs, and make them. The writes are ordinary creates, updates and deletes,
// which the server authorizes and admits as those of any client. So a resourceVersion never goes back, and a restored
// object gets a new uid.
//
// [Make] and [Undo] compute a [Plan] from past and current objects without a server. [Client] reads the objects, tries
// a plan and carries it out.
package restore
