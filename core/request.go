package core

import (
	"stele.dev/stele/core/call"
	"stele.dev/stele/core/edit"
	"stele.dev/stele/core/explain"
	"stele.dev/stele/core/virtual"
	"stele.dev/stele/eventlog/logpb"
	"stele.dev/stele/policy"
)

// Request is one request on its way through the pipeline. It belongs to the goroutine
// that serves it.
type Request struct {
	call.Call
	edit.Draft // of a write: decode fills it in

	// authorization
	row        *virtual.Resource // the virtual resource that the request is about; nil for stored objects and paths
	item       string            // the name of the object, where the request deletes one object of a collection
	authorized *policy.Decision  // the policy's decision, which may depend on the object
	creating   *policy.Decision  // of an update that creates: that it may create

	write     virtual.Write      // of a virtual resource that takes writes
	admission []*logpb.Admission // what validation found

	turn  func()         // ends the request's turn at its object; nil if it has none
	trace *explain.Trace // of a request that is explained
}
