// Package core is the request pipeline: what happens to a request, in order, from its
// first byte to its last. [Pipeline] is an http.Handler; pipeline.go has the stages as
// one list and the loop that runs them. Each stage stands in the file of its name;
// what a stage needs that is a concern of its own is a package below.
//
//	authn      who is asking
//	negotiate  in which form the answer is wanted
//	metadata   the rules of every object's metadata
//	canonical  the bytes of an object
//	patch      a patch on an object
//	typed      the Go types of built-in kinds
//	commit     the log's tip, and the only way to move it
//	table      what kubectl prints
//	changes    the log as an API
//	activation policies as an API, and what puts them in force
//	reviews    what clients ask about access
//	rbac       who may do what, as objects
//	explain    why a request is answered as it is
//	discovery, openapi   what is served
//	status     errors as clients get them
//
// A request pins a tip before it is authorized: objects, law and compiled policy of one
// revision. Reads are answered from a tip whose policy authorized them; a write commits
// only while that policy is in force (see commit). Whatever depends on the state and
// is not an append, a refusal above all, is decided on a tip that was confirmed after
// the request came.
package core
