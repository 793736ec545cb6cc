package core

import (
	"go.opentelemetry.io/otel/trace"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"stele.dev/stele/core/call"
	"stele.dev/stele/core/catalog"
	"stele.dev/stele/core/commit"
	"stele.dev/stele/core/resources/explain"
	"stele.dev/stele/core/write/edit"
	"stele.dev/stele/core/write/lookup"
	"stele.dev/stele/core/write/turns"
	"stele.dev/stele/eventlog/logpb"
	"stele.dev/stele/policy"
)

// Request is one request and its state in the pipeline. It belongs to the goroutine that serves it.
type Request struct {
	call.Call
	edit.Draft // the object of a write; decode sets it

	disown func() // ends the checks of the credential of a request that goes on for long; nil for none; authentication sets it

	// authorization
	row        *catalog.Resource // the virtual resource that the request is about; nil for stored objects and paths
	item       string            // the object's name, if this request deletes one object of a collection
	authorized *policy.Decision  // the policy's decision before conditions; it may depend on the object
	creating   *policy.Decision  // the decision about create, if an update creates its object; conditions sets it
	denied     *policy.Decision  // the decision that refuses the request; authorization and conditions set it

	write     catalog.Write      // the write of a virtual resource; decode sets it
	mutations []*logpb.Mutation  // what changed the object; mutation sets it
	reviews   []*logpb.Review    // what webhooks and plugins said; mutation and validation set it
	findings  []*logpb.Admission // the findings of admission rules; validation sets it

	lookup lookup.Reader // what rules read of stored objects; decode sets it, anew in each round

	whole  *Request               // the request that this one is a part of; nil if it is none
	pauses atomic.Pointer[pauses] // of this request and its parts; nil until there is one
	// reviewed are the reviewers outside of the policy that concern the write; mutation and validation set it. A request that is
	// replayed asks none of them.
	reviewed []*policy.Reviewer

	span *trace.Span // nil if the request is not traced

	turn    turns.Turn    // among the writes that would conflict with it again
	lost    *commit.Stale // why the stage commit sent the request back; nil if it did not
	hidden  *hidden       // the error that a plain refusal replaces; nil for none
	offered bool          // the shadow policy, if there is one, has been handed the request

	logged   bool  // the write has an event in the log
	recorded bool  // the log of decisions has the request, or need not have it
	failure  error // the error with which the request ends; fail sets it

	faults field.ErrorList // the errors for which schema refuses the object

	trace  *explain.Trace // the explanation; nil if the request is not explained
	replay *replay        // nil if the request is not replayed
}

// hidden is an error that the user may not see, and its stage.
type hidden struct {
	stage string
	err   error
}
