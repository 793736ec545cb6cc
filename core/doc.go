// Package core is the request pipeline: [Pipeline] is the http.Handler of the API. pipeline.go lists the stages and has
// the loop that runs them; each stage is in the file of its name.
//
// A request takes this path. A stage sets only its own fields of [call.Call], [edit.Draft] and [Request]:
//
//	connection      what the request asks for, its deadline: Info, Write, Past.Moment
//	authentication  the user that sent it: Requester
//	impersonation   the user it is made as, and the revision it is decided at: User, Tip
//	flow            waits for seats of the user's priority level
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
// The folders below are rooms. Each imports only those before it:
//
//	status      errors as clients receive them
//	object      one object: its bytes, metadata, versions, Go types, tables, patches, differences
//	commit      the log's tip, and the only way to move it
//	past        questions about past revisions
//	call        a request and its answer; the media type and the encoding of an answer
//	decide      how a policy decides a request: the question, the answer
//	catalog     the table of virtual resources; discovery and OpenAPI
//	reviewers   admission webhooks and admission plugins
//	auth        authentication, authorizers outside of the policy, tokens, certificates, the loopback client
//	serve       TLS and HTTP; paths that are not of resources
//	read        get, list and watch, at present and in the past; views
//	load        the cost of requests; priority and fairness
//	write       from the body of a write to the object to store
//	record      what is recorded of requests: decisions, audit
//	resources   virtual resources, each alone
//	keep        what keeps the log: checkpoints, verification, retention, expiry, buckets, the log as files
//	run         a control plane around the pipeline: assembly, controllers, tests of bundles
//
// The stages stand between resources and keep. conformance has tests only: it compares the API with kube-apiserver's code.
package core
