// Package call holds a request to the API and its answer: the results of the pipeline's stages, the body, the
// negotiated format, and the functions that write the answer. Stages, stored objects and virtual resources all work
// on a [Call].
package call

import (
	"context"
	"fmt"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"stele.dev/stele/core/call/negotiate"
	"stele.dev/stele/core/commit"
	"stele.dev/stele/core/object/patch"
	"stele.dev/stele/core/past"
	"stele.dev/stele/core/status"
	"stele.dev/stele/eventlog/logpb"
	"stele.dev/stele/limits/fairqueue"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/audits"
	"stele.dev/stele/policy/flows"
)

const (
	// AtPrefix is the path prefix of reads of the past.
	AtPrefix = "/at"
	// MaxBody is the maximum size of a request body in bytes, as in kube-apiserver.
	MaxBody = status.MaxBody
	// Stalled is how long a client may stop reading before it is disconnected. With HTTP/2 the server enforces it.
	Stalled = 30 * time.Second
)

// Call is one request to the API and its answer. It belongs to the goroutine that serves the request. Each group of
// fields is set by the stage that its comment names.
type Call struct {
	HTTP     *http.Request
	W        *Response
	AuditID  string
	Received time.Time
	Stage    string // the stage that runs
	Timings  Timings
	Mode     Mode

	// connection
	Info   *request.RequestInfo
	Write  bool // the request may change stored objects or the policy
	Cancel context.CancelFunc

	// authentication
	Requester user.Info // who sent the request

	// impersonation
	Tip       *commit.Tip // the state that the request reads
	Confirmed bool        // Tip was the log's tip at some moment after the request arrived
	User      user.Info   // as whom the request runs: Requester, or the user that it impersonates
	// Audit is the audit rule of the request; nil before the stage impersonation.
	Audit *audits.Rule

	Past Past

	// flow
	Flow Flow

	// authorization
	Access   policy.Request
	Decision *policy.Decision
	Kind     *policy.Version // the kind of stored or rendered objects; nil for other virtual resources and paths
	Key      commit.Key
	// Reauthorize authorizes a watch again, under the policy now in force. Each question to an external authorizer
	// waits for a turn.
	Reauthorize func(ctx context.Context, turn func(context.Context) (done func(), err error)) error

	Body *Body // nil until it is read
	// Logged is set when a write of a virtual resource has left an event in the log.
	Logged bool
	// Kept is the body of the answer, if it is recorded.
	Kept Kept

	format   *negotiate.Format // nil until it is negotiated
	warnings warnings
	// annotations are those of the audit log, beside those of kube-apiserver.
	annotations []*logpb.Annotation
	Sent        bool // the answer has begun, or an append may have reached the log
}

// Flow is the flow that a request is part of, and its seats.
type Flow struct {
	// Schema is the flow schema that matches the request; nil before the stage flow.
	Schema *flows.Schema
	// Distinguisher tells apart the flows of the schema.
	Distinguisher string
	// Taken is what the request has taken of its priority level; nil if it has taken nothing.
	Taken Taken
	// Waited is how long the request waited for its seats.
	Waited time.Duration
	// Ticket holds the seats, and Started is when the request got them. Seated is 1 while it has them, and 2 while it
	// has given them back and will take them again; it is changed atomically.
	Ticket  fairqueue.Ticket
	Started time.Time
	Seated  int32
	// Would is how many seats an explained request would take, as far as its priority level has them.
	Would int
	// Asked is what lists of requests show of this one. It is not changed while the request has seats or waits for them.
	Asked Asked
}

// Taken gives back what the stage flow has taken for a request.
type Taken interface {
	// Release gives back the seats. Later calls do nothing. It is safe for concurrent use.
	Release(c *Call)
	// Pause gives back the seats until resume is called, which takes them again without waiting.
	Pause(c *Call) (resume func())
	// End is called once, when the request ends.
	End(c *Call)
}

// Asked is the user and the target of a request.
type Asked struct {
	User string
	Info *request.RequestInfo
}

// ReleaseSeats gives back the seats of the request, if it has any. The request may go on without them: a watch, or another
// request that goes on for long, calls it when its expensive part is over. It may be called again.
func (c *Call) ReleaseSeats() {
	if c.W != nil {
		c.W.pace.request = nil
	}
	if c.Flow.Taken != nil {
		c.Flow.Taken.Release(c)
	}
}

// PauseSeats gives back the seats of the request, if it has any, while it waits for another server. resume takes them again.
func (c *Call) PauseSeats() (resume func()) {
	if c.Flow.Taken == nil {
		return func() {}
	}
	return c.Flow.Taken.Pause(c)
}

// ReleaseSeatsOfSlowReader makes the request give back its seats if its client is slow to read the answer. It is called
// when the request has its seats.
func (c *Call) ReleaseSeatsOfSlowReader() {
	if c.Flow.Taken != nil {
		c.W.pace.request = c
	}
}

// EndFlow gives back what the stage flow has taken, when the request ends.
func (c *Call) EndFlow() {
	if taken := c.Flow.Taken; taken != nil {
		c.ReleaseSeats()
		taken.End(c)
		c.Flow.Taken = nil
	}
}

// Past describes the past revision that a request reads.
type Past struct {
	Moment    *past.Moment // connection: the moment after /at in the path; nil without /at
	Prefix    string       // connection: /at/<moment>, as in the path; empty without /at
	Tip       *commit.Tip  // authorization: the state at that moment, without its objects; nil for the present
	Exactly   uint64       // the revision that a read without /at asks for exactly; 0 if it does not
	Converted bool         // authorization: the version in the path was not served at that moment
	AsOf      time.Time    // ages are relative to it; zero for now
}

// VersionOfPath returns the version of a kind that the request's path names. For a read of the past it is the version
// of the past policy. If that had the kind without this version, it is today's version, and Past.Converted is set.
func (c *Call) VersionOfPath(gvr schema.GroupVersionResource) *policy.Version {
	c.Past.Converted = false
	v := c.World().Policy.Version(gvr)
	if v != nil || c.Past.Tip == nil {
		return v
	}
	if v = c.Tip.Policy.Version(gvr); v == nil || c.Past.Tip.Policy.Kind(v.Kind.Stored().GroupResource()) == nil {
		return nil
	}
	c.Past.Converted = true
	return v
}

// RevisionOfPast returns the past revision that the request reads; 0 for the present.
func (c *Call) RevisionOfPast() uint64 {
	switch {
	case c.Past.Exactly > 0 && c.Past.Exactly < c.World().Revision():
		return c.Past.Exactly
	case c.Past.Tip != nil:
		return c.Past.Tip.Revision()
	}
	return 0
}

// Dry reports whether the request must not write. It is valid once the options of a write are read.
func (c *Call) Dry() bool { return !c.Mode.Is(Live) }

// GVR returns the group, version and resource of the request's path.
func (c *Call) GVR() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: c.Info.APIGroup, Version: c.Info.APIVersion, Resource: c.Info.Resource}
}

// Pin replaces the tip by a newer one. If that has another policy, the error sends the request back.
func (c *Call) Pin(tip *commit.Tip) error {
	if tip.PolicyRevision() != c.Tip.PolicyRevision() {
		return &Again{Stage: "impersonation", Tip: tip}
	}
	c.Tip = tip
	return nil
}

// PatchType returns the type of the patch, which the Content-Type names.
func (c *Call) PatchType() (string, error) {
	t, err := patch.TypeOf(c.HTTP.Header.Get("Content-Type"), c.Kind.GroupVersionKind())
	return string(t), err
}

// Sensitive reports whether the request's objects hold secrets.
func (c *Call) Sensitive() bool {
	return c.Key.Group == "" && c.Key.Resource == "secrets" || c.Kind != nil && c.Kind.Program.Sensitive()
}

// CreatesOnUpdate reports whether an update of a missing object creates it.
func (c *Call) CreatesOnUpdate() bool {
	return c.Kind.AllowCreateOnUpdate && c.Info.Subresource == ""
}

// RequireActiveNamespace returns an error if the request's namespace does not exist or is being deleted.
func (c *Call) RequireActiveNamespace() error {
	if c.Key.Namespace == "" {
		return nil
	}
	exists, active := commit.NamespaceState(c.Tip.Objects, c.Key.Namespace)
	if !exists {
		return status.NotFound(commit.Namespaces, c.Key.Namespace)
	}
	if !active {
		err := status.Refused(c.Resource(), c.Key.Name,
			fmt.Errorf("unable to create new content in namespace %s because it is being terminated", c.Key.Namespace))
		err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{
			Type: "NamespaceTerminating", Message: fmt.Sprintf("namespace %s is being terminated", c.Key.Namespace), Field: "metadata.namespace",
		})
		return err
	}
	return nil
}

// Again is the error that sends a request back to an earlier stage, with a newer tip.
type Again struct {
	Stage string
	Tip   *commit.Tip
}

// Error names the stage.
func (a *Again) Error() string { return "again from " + a.Stage }

// Resource returns the group and resource of the request's objects.
func (c *Call) Resource() schema.GroupResource { return c.Key.GroupResource }

// World returns the state that the request reads: the tip, or the state at the requested moment. Access is always
// decided by the tip.
func (c *Call) World() *commit.Tip {
	if c.Past.Tip != nil {
		return c.Past.Tip
	}
	return c.Tip
}

// SendBack returns the error that sends a write back: to impersonation if the newer tip has another policy, else to
// decode.
func (c *Call) SendBack(tip *commit.Tip) *Again {
	if tip.PolicyRevision() != c.Tip.PolicyRevision() {
		return &Again{Stage: "impersonation", Tip: tip}
	}
	return &Again{Stage: "decode", Tip: tip}
}

// Confirm asks the log whether the call's tip is current. If there is a newer tip, the error sends the call back.
func (c *Call) Confirm(ctx context.Context, committer *commit.Committer) error {
	if c.Confirmed {
		return nil
	}
	tip, err := committer.Confirm(ctx)
	if err != nil {
		return err
	}
	c.Confirmed = true
	if tip.Revision() == c.Tip.Revision() {
		return nil
	}
	return c.SendBack(tip)
}
