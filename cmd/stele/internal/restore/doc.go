// Package restore puts objects back to what they were: it plans which writes that takes, has
// the server try them, and makes them. It is a client like any other; what it does is ordinary
// creates, updates and deletes, authorized and admitted as any. So a resourceVersion never goes
// back, and what was deleted comes back as a new object, with a uid of its own.
//
// A [Plan] is made by [Make] of what was and what is, without a server. [Client] reads both,
// tries a plan and carries it out.
package restore
