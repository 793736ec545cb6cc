// Package call holds a request to the API and its answer: what the pipeline's stages have found out
// about it, the body, the negotiated format, and the functions that write the answer. Stages, stored objects and
// virtual resources all work on a [Call].
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
	"stele.dev/stele/core/commit"
	"stele.dev/stele/core/negotiate"
	"stele.dev/stele/core/past"
	"stele.dev/stele/core/patch"
	"stele.dev/stele/core/status"
	"stele.dev/stele/policy"
)

const (
	// AtPrefix is the path below which the API is as it was at a moment.
	AtPrefix = "/at"
	// MaxBody is kube-apiserver's limit of a request's body, in bytes.
	MaxBody = status.MaxBody
	// Stalled is how long a client may read nothing. For HTTP/2 the server enforces it.
	Stalled = 30 * time.Second
)

// Call is one request to the API, as far as the stages have come, and its answer. It belongs to the
// goroutine that serves the request. Each group of fields is set by the stage that is named.
type Call struct {
	HTTP     *http.Request
	W        *Response
	AuditID  string
	Received time.Time
	Stage    string // the stage that runs
	// Explained is true if the request is a dry run that an explanation asks about.
	Explained bool

	// connection
	Info   *request.RequestInfo
	Write  bool // the request may change stored objects or the policy
	Cancel context.CancelFunc

	// authentication
	Requester user.Info // who sent the request

	// impersonation
	Tip       *commit.Tip // the state that the request reads
	Confirmed bool        // Tip was the log's tip at some moment after the request came
	User      user.Info   // in whose name the request runs; Requester unless that impersonates

	Past Past

	// authorization
	Access   policy.Request
	Decision *policy.Decision
	Kind     *policy.Version // of stored objects and rendered ones; nil for other virtual resources and for paths
	Key      commit.Key
	// Reauthorize authorizes a watch again, under the policy now in force: each question to an authorizer outside of
	// the policy waits for a turn.
	Reauthorize func(ctx context.Context, turn func(context.Context) (done func(), err error)) error

	Body *Body // nil until it is read

	format   *negotiate.Format // nil until it is negotiated
	warnings []string
	Sent     bool // the answer has begun, or an append may have reached the log
}

// Past describes a request that reads a past revision.
type Past struct {
	Moment    *past.Moment // connection: the moment in the path, below /at; nil if there is none
	Tip       *commit.Tip  // authorization: the state at that moment, without its objects; nil for the present
	Exactly   uint64       // the revision that a read without /at asks for exactly; 0 if it does not
	Converted bool         // authorization: the version in the path was not served then
	AsOf      time.Time    // ages are relative to it; zero for now
}

// versionThen is the version of a kind that the path of a request means: of the policy of
// then, or today's if that had the kind but not the version.
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

// then is the revision of the past that a request is answered from; 0 if it is the present.
func (c *Call) RevisionOfPast() uint64 {
	switch {
	case c.Past.Exactly > 0 && c.Past.Exactly < c.World().Revision():
		return c.Past.Exactly
	case c.Past.Tip != nil:
		return c.Past.Tip.Revision()
	}
	return 0
}

// dry tells whether nothing is to be written. An explained request never writes,
// whatever it says.
func (c *Call) Dry() bool { return c.Body.Options.DryRun || c.Explained }

// gvr is the resource of the request, in the version of its path.
func (c *Call) GVR() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: c.Info.APIGroup, Version: c.Info.APIVersion, Resource: c.Info.Resource}
}

// pin replaces the tip by a newer one.
func (c *Call) Pin(tip *commit.Tip) error {
	if tip.PolicyRevision() != c.Tip.PolicyRevision() {
		return &Again{Stage: "impersonation", Tip: tip}
	}
	c.Tip = tip
	return nil
}

func (c *Call) PatchType() (string, error) {
	t, err := patch.TypeOf(c.HTTP.Header.Get("Content-Type"), c.Kind.GroupVersionKind())
	return string(t), err
}

// sensitive reports whether the objects that the request is about hold secrets.
func (c *Call) Sensitive() bool {
	return c.Key.Group == "" && c.Key.Resource == "secrets" || c.Kind != nil && c.Kind.Program.Sensitive()
}

// createsOnUpdate tells whether an update of what is not there creates it.
func (c *Call) CreatesOnUpdate() bool {
	return c.Kind.AllowCreateOnUpdate && c.Info.Subresource == ""
}

// namespaceTakesNew refuses new objects in a namespace that is not there or is going.
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

// again sends a request back to an earlier stage, with a newer tip.
type Again struct {
	Stage string
	Tip   *commit.Tip
}

func (a *Again) Error() string { return "again from " + a.Stage }

func (c *Call) Resource() schema.GroupResource { return c.Key.GroupResource }

// world is what the request reads from: the tip, or what that was at the moment that is asked for.
// Who may do what is always for the tip to say.
func (c *Call) World() *commit.Tip {
	if c.Past.Tip != nil {
		return c.Past.Tip
	}
	return c.Tip
}

// contended is the answer to a write that met newer objects time and again.
func (c *Call) Contended() error {
	return status.Modified(c.Resource(), c.Key.Name)
}

// SendBack returns the error that sends a write back to the stage where a newer tip matters first.
func (c *Call) SendBack(tip *commit.Tip) *Again {
	if tip.PolicyRevision() != c.Tip.PolicyRevision() {
		return &Again{Stage: "impersonation", Tip: tip}
	}
	return &Again{Stage: "decode", Tip: tip}
}

// Confirm asks the log for its tip, unless the call's is confirmed. The call is sent back if there is a newer one.
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
