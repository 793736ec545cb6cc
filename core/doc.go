// Package core is the request pipeline: [Pipeline] is the http.Handler of the API. pipeline.go lists the stages and has
// the loop that runs them; each stage is in the file of its name.
//
// A request takes this path. A stage sets only its own fields of [call.Call], [edit.Draft] and [Request]:
//
//	connection      what the request asks for, its deadline: Info, Write, Past.Moment
//	authentication  who sent it: Requester
//	impersonation   as which user, at which revision: User, Tip
//	authorization   may the user do it; on which resource: Access, Decision, Kind, Key, Past.Tip
//	decode          writes: the object: Body, Draft
//	mutation        writes: what mutating admission changes: Draft.Object
//	schema          writes: is it valid for its kind
//	conditions      writes: a decision that depends on the object: Decision
//	validation      writes: the policy's admission rules: findings, SawNamespace
//	commit          writes: the event, its checks, the append and the answer
//	answer          reads: the answer
//
// A request pins a tip before it is authorized: the objects and the policy of one revision. A read is answered from a
// tip whose policy authorized it. A write commits only while that policy is in force, and goes back to an earlier stage
// if the tip has changed; see package commit. A refusal is final only on a tip that was confirmed after the request
// arrived.
//
// The packages below, by their part in a request:
//
//	call       a request and its answer
//	cost       what a request costs, before it runs
//	memory     limits the memory of requests and watches
//	authn      authentication
//	authz      external authorizers that a policy names
//	virtual    the table of virtual resources
//	edit       from the body of a write to the object to store
//	commit     the log's tip, and the only way to move it
//	turns      lets contending work wait in order
//	read       get, list and watch, at present and in the past
//	past       questions about past revisions
//	surface    discovery, OpenAPI, health, version, metrics
//
// Virtual resources:
//
//	access, reviews  questions about access
//	activation       policies; parts stores uploads of large ones
//	blame, changes   who set which field; the log as objects
//	explain          why a request was answered as it was
//	rendered         the policy as objects: rbac as RBAC, definitions as CustomResourceDefinitions
//	tokenrequest     tokens of service accounts; tokens signs and verifies them
//
// Objects and their formats:
//
//	canonical, typed, shown   the stored bytes; Go types of built-in kinds; the form that the policy gives them
//	metadata, managed         metadata; managedFields
//	patch, numbers            patches; numbers that would lose digits
//	difference                what differs between two objects
//	negotiate, wire, table    the format of an answer; its encoding; what kubectl prints
//	discovery, openapi        documents about the served resources
//	status                    errors as clients receive them
//
// A control plane around the pipeline:
//
//	plane        assembles and runs a control plane
//	server, pki  TLS; certificates
//	bootstrap    what the log needs before the first request
//	controllers  Kubernetes' controllers; inside is their client
//	expiry       deletes old Events
//	trust        publishes which authorities this server trusts
//	reload       reads changed files again
//	apart        runs this program as a limited child process
//	conformance  compares the API with that of k8s.io/apiextensions-apiserver
package core
