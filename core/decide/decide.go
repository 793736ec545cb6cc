// Package decide has the question how a policy decides a request, and the answer. A question is made of a request that the server
// has answered, or of the record of one. The pipeline answers it by the stages that decide requests of clients, so that plans and
// shadows never decide otherwise than the server does.
package decide

import (
	"context"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"stele.dev/stele/core/call"
	"stele.dev/stele/core/commit"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/admission"
	"stele.dev/stele/projections/objects"
)

// Engine answers questions about a policy, whose authorizers outside of it are not asked. It is safe for concurrent use.
type Engine func(context.Context, *Question, *policy.Policy) Verdict

// Question is a request of the past. It never changes.
type Question struct {
	// HTTP has the method, the URL and the header, without credentials. It has no body.
	HTTP *http.Request
	// Requester is who sent it, User as whom it ran. An Engine impersonates anew, as the header says.
	Requester, User user.Info
	Info            *request.RequestInfo
	// Write reports whether it writes an object, OfPast whether it reads below /at.
	Write, OfPast bool
	// Tip is the state on which it was decided. Its policy is the one that decided it, or nil.
	Tip      *commit.Tip
	AuditID  string
	Received time.Time

	// Body is the body of a write and its options, if the server has read it.
	Body *call.Body
	// Recorded is what the log has of a write; nil if Body has what it asks for.
	Recorded *Recorded
}

// Recorded is a write as the log has it.
type Recorded struct {
	// UID and Name are those of the object that it wrote; empty if it wrote none. Part says that it is the delete of this object by the
	// delete of a collection.
	UID, Name string
	Part      bool
	// Body is the body of the write, of MediaType; nil if it was not recorded.
	Body      []byte
	MediaType string
	// Result is the object that the write stored, for a write without a recorded body. Removed says that storing it removed the object,
	// because it had no finalizers left.
	Result  []byte
	Removed bool
	// Objects returns the state that the write met, as a policy shows it. It is asked if the user may make the request.
	Objects func(context.Context, *policy.Version) (*State, error)
	// NoOptions says that the options of the write are not known.
	NoOptions bool
	// Missing says why it is not known what the write asks for; empty if it is.
	Missing string
}

// State is a state of objects that a write met.
type State struct {
	*objects.State
	// Unread says that rules cannot read stored objects: not all that they may read is known.
	Unread bool
	// Missing says why the state is not known; empty if it is.
	Missing string
}

// Reasons why an Engine cannot tell how a policy decides a request.
const (
	Outside  = "an authorizer outside of the policy decides it, or may"
	Reviewed = "a webhook or an admission plugin decides it, or may"
	Failed   = "it failed for a reason that is not of the policy"
	Bodyless = "it depends on the object, and the body was not read"
	// Unread and Optionless are reasons of recorded writes.
	Unread     = "a rule of admission reads stored objects that you may not list in all namespaces, or that are not kept"
	Optionless = "a rule reads the options of a delete whose body was not recorded"
)

// Verdict is how a policy decides a request.
type Verdict struct {
	// Err is why the question could not be tried; nil if it was.
	Err error
	// Unknown says why it cannot be told; else the rest holds.
	Unknown string
	// Stage is the stage that refuses it; empty if the policy allows it.
	Stage string
	// Rule and Source are the rule that decides and its line: the grant, if the policy allows it. Path is the path of a
	// field.
	Rule, Source, Path string
	// Message is the reason in words.
	Message string

	// Unmet says that the policy allows it as far as it was asked, and that it does not fit the state: its object is missing, or
	// there is a conflict.
	Unmet bool
	// Reviewers are the webhooks and plugins that the policy asks about it, as far as the stages came. They were not asked. Mutated says that
	// rules of mutate changed its object.
	Reviewers []*policy.Reviewer
	Mutated   bool
	// Access is the decision of access that refuses it, Faults are the invalid fields.
	Access *policy.Decision
	Faults field.ErrorList
	// Written is the write of a request that the policy allows; nil for a delete, and for other requests.
	Written *Written
}

// Written is a write that a policy allows.
type Written struct {
	// Version is that of the path.
	Version   *policy.Version
	Operation policy.Operation
	// Object is the object of the write, as rules of admission see it, with what rules of mutate made of it.
	Object *policy.Object
	// Applied are the steps of these rules.
	Applied []admission.Applied
}
