package core

import (
	"context"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"stele.dev/stele/core/activation"
	"stele.dev/stele/core/commit"
	"stele.dev/stele/core/negotiate"
	"stele.dev/stele/core/numbers"
	"stele.dev/stele/core/past"
	"stele.dev/stele/core/rendered"
	"stele.dev/stele/core/reviews"
	"stele.dev/stele/core/shown"
	"stele.dev/stele/eventlog/logpb"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/compile"
	"stele.dev/stele/projections/objects"
)

// Request is one request on its way through the pipeline. It belongs to the goroutine
// that serves it. Each group of fields is set by the stage that is named.
type Request struct {
	http     *http.Request
	w        *response
	auditID  string
	received time.Time
	stage    string // where it is

	// connection
	info   *request.RequestInfo
	write  bool // it may change the world
	cancel context.CancelFunc

	// authentication
	requester user.Info // who sent it

	// impersonation
	tip       *commit.Tip // what it sees
	confirmed bool        // tip was the log's at some moment after the request came
	user      user.Info   // in whose name; requester unless that impersonates

	// of a read of the past
	moment    *past.Moment // connection: the one below which it asks
	past      *commit.Tip  // authorization: what there was then, but for the objects; nil if it is about the present
	exactly   uint64       // the very revision that a read without the prefix /at asks for; 0 if it does not
	converted bool         // authorization: the version was not served then
	asOf      time.Time    // what ages are relative to; zero for now

	// authorization
	access     policy.Request
	authorized *policy.Decision // which may depend on the object
	decision   *policy.Decision // that, or what became of it
	creating   *policy.Decision // of an update that creates: that it may do that
	review     *reviews.Kind    // that it creates, if it does
	law        bool             // it is about policies
	explains   bool             // it is about what other requests come to
	issues     bool             // it asks for a token of a service account
	question   *question        // that it asks: of the policy, or who gave an object its fields
	rendered   *rendered.Kind   // of what the policy says that it is about, if it is
	kind       *policy.Version
	key        commit.Key
	item       string            // of a collection that is deleted, the name of the object; "" of any other request
	wanted     *negotiate.Format // of the answer, once that is known

	// decode
	body   *body
	old    *objects.Object // as the tip has it; nil if there is none
	object *object         // what it is to become; nil if it is to be deleted
	// of old, where it is to become something else
	oldMeta    *metav1.ObjectMeta
	oldContent map[string]any
	mistyped   *typeMismatch     // what the body says to be, if that is wrong and for validation to say
	fixed      metav1.ObjectMeta // what a new object keeps through all rounds
	unmanaged  error             // why managedFields are what they were, if they could not be kept

	// validation
	admission    []*logpb.Admission // rules that found something
	sawNamespace *objects.Object    // the namespace, if rules looked at it

	// decode and schema, of a policy
	asked    *activation.Policy
	compiled *compile.Result

	turn     func() // ends the request's turn at its object; nil if it has none
	trace    *trace // of a request that is explained
	warnings []string
	sent     bool // the answer has begun, or an append may have
}

// body is what a write came with, read once.
type body struct {
	raw       []byte
	patched   []byte // of patches: what errors show
	mediaType string
	options   writeOptions
	delete    *metav1.DeleteOptions // of deletes
	applied   map[string]any        // of server-side apply
	strict    error                 // what strict decoding says of that
	numbers   []numbers.Number      // that would be stored as others; see changedNumbers
	counted   bool                  // numbers is known
}

type writeOptions struct {
	dryRun       bool
	fieldManager string
	validation   string // metav1.FieldValidation...
	force        bool   // takes fields from other managers
}

// object is a decoded object: its metadata apart from its content.
type object struct {
	meta    *metav1.ObjectMeta
	content map[string]any
	// text is the JSON that content was decoded from.
	text []byte
	// adapted: pruning or defaulting made it differ from what was asked.
	adapted bool
}

// shown is an object as it is stored, in the version that the request asks for.
func (r *Request) shown(object []byte) []byte { return r.version().Of(object) }

func (r *Request) version() shown.Version { return shown.As(r.kind) }

// decodeStored decodes an object of the request's kind, as that has it.
func (r *Request) decodeStored(text []byte) (*metav1.ObjectMeta, map[string]any, error) {
	meta, content, err := decodeStored(text)
	if face := r.kind.Kind.Face; face != nil {
		content = face.Show(content)
	}
	if r.version().Converts(text) {
		r.kind.Program.Prune(content)
	}
	return meta, content, err
}

func (r *Request) resource() schema.GroupResource { return r.key.GroupResource }

// creates tells whether what the request writes is new. It is known once it is decoded.
func (r *Request) creates() bool { return r.info.Verb == "create" || r.old == nil && r.object != nil }

// world is what the request reads from: the tip, or what that was at the moment that is asked for.
// Who may do what is always for the tip to say.
func (r *Request) world() *commit.Tip {
	if r.past != nil {
		return r.past
	}
	return r.tip
}

// contended is the answer to a write that met newer objects time and again.
func (r *Request) contended() error {
	return apierrors.NewConflict(r.resource(), r.key.Name, errModified)
}

// response remembers what was answered.
type response struct {
	http.ResponseWriter
	code  int
	bytes int64
}

func (w *response) WriteHeader(code int) {
	if w.code == 0 {
		w.code = code
	}
	w.ResponseWriter.WriteHeader(code)
}

func (w *response) Write(b []byte) (int, error) {
	if w.code == 0 {
		w.code = http.StatusOK
	}
	n, err := w.ResponseWriter.Write(b)
	w.bytes += int64(n)
	return n, err
}

// Unwrap is for http.ResponseController.
func (w *response) Unwrap() http.ResponseWriter { return w.ResponseWriter }
