package sdk

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"stele.dev/stele/plugins/admissionpb"
	"stele.dev/stele/plugins/authorizerpb"
)

// Admission reviews writes. It must be safe for concurrent use.
type Admission interface {
	// Review decides on a write, and may change its object. The same review always gets the same verdict: a write
	// is reviewed again if it meets a conflict. Review must return when the context ends: the policy says how long
	// it may take. After an error, the failure policy decides; the text of the error is for operators. Review MUST
	// NOT keep the review.
	Review(ctx context.Context, r *Review) (Verdict, error)
}

// AdmissionFunc is a function that implements [Admission].
type AdmissionFunc func(ctx context.Context, r *Review) (Verdict, error)

// Review implements [Admission].
func (f AdmissionFunc) Review(ctx context.Context, r *Review) (Verdict, error) { return f(ctx, r) }

// Stage says what a review is for.
type Stage string

// The stages. Only in the stage Mutation the object may be changed; in the stage Validation it is final.
const (
	Mutation   Stage = "Mutation"
	Validation Stage = "Validation"
)

// Operation is the kind of a write.
type Operation string

// The operations.
const (
	Create Operation = "CREATE"
	Update Operation = "UPDATE"
	Delete Operation = "DELETE"
)

// Review is a write to decide on.
type Review struct {
	// UID identifies the review. Rule is its name in the policy.
	UID, Rule string
	Stage     Stage
	Operation Operation
	// Kind and Resource are those of the objects. RequestKind and RequestResource are those of the request, which
	// may be in another version.
	Kind            Kind
	Resource        Resource
	RequestKind     Kind
	RequestResource Resource
	// Namespace is empty if the resource is not namespaced.
	Namespace, Name string
	NamespaceLabels map[string]string
	User            User
	// Object is the object to be written, as JSON; nil for a delete. OldObject is the stored one; nil for a create.
	Object, OldObject json.RawMessage
	// DryRun is set if nothing will be stored. The plugin must not have effects of its own then.
	DryRun bool
	// Options are the CreateOptions, UpdateOptions, PatchOptions or DeleteOptions of the request, as JSON.
	Options json.RawMessage
	// Time is the time of the review. Use it instead of a clock, so that tests can set the time.
	Time time.Time
}

// Kind is the kind of an object.
type Kind struct{ Group, Version, Kind string }

// Resource is the resource of a request.
type Resource struct{ Group, Version, Resource, Subresource string }

// Decode decodes the object into a struct, which may have only the fields that the plugin needs. A delete has no object, and
// Decode returns an error.
func (r *Review) Decode(into any) error {
	if r.Operation == Delete && len(r.Object) == 0 {
		return errors.New("the review of a delete has no object; DecodeOld reads the stored one")
	}
	return decodeObject("object", r.Object, into)
}

// DecodeOld decodes the stored object into a struct.
func (r *Review) DecodeOld(into any) error { return decodeObject("old object", r.OldObject, into) }

func decodeObject(what string, text []byte, into any) error {
	if len(text) == 0 {
		return fmt.Errorf("the review has no %s", what)
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("the %s: %w", what, err)
	}
	return nil
}

// Verdict is the decision of an [Admission]. The zero value admits the write.
type Verdict struct {
	refused       bool
	code          int
	reason        string
	message       string
	warnings      []string
	annotations   map[string]string
	patch, object []byte
	cacheable     bool
	ttl           time.Duration
}

// Admit returns a verdict that admits the write as it is.
func Admit() Verdict { return Verdict{} }

// Refuse returns a verdict that refuses the write. The user sees the message.
func Refuse(message string) Verdict {
	return Verdict{refused: true, message: message, code: 403, reason: "Forbidden"}
}

// Status returns the verdict with the HTTP status and the reason that a refused request is answered with, such as 422
// and Invalid. Without it, they are 403 and Forbidden.
func (v Verdict) Status(code int, reason string) Verdict {
	v.code, v.reason = code, reason
	return v
}

// Warn returns the verdict with a warning, which the user sees.
func (v Verdict) Warn(warning string) Verdict {
	v.warnings = append(slices.Clip(v.warnings), warning)
	return v
}

// Annotate returns the verdict with an annotation for the audit log.
func (v Verdict) Annotate(name, value string) Verdict {
	v.annotations = maps.Clone(v.annotations)
	if v.annotations == nil {
		v.annotations = map[string]string{}
	}
	v.annotations[name] = value
	return v
}

// CacheFor returns the verdict with a time for which it may be used again, for reviews that differ in UID and time only.
// The policy's cacheTTL is the upper bound. Without CacheFor, a verdict is not cached.
func (v Verdict) CacheFor(ttl time.Duration) Verdict {
	v.cacheable, v.ttl = true, max(ttl, 0)
	return v
}

// Patch returns a verdict that admits the write with a change of its object, a JSON Patch (RFC 6902). [Review.Change]
// makes one from a struct.
func Patch(patch json.RawMessage) Verdict { return Verdict{patch: patch} }

// Replace returns a verdict that admits the write with another object, which must have the same identity.
func Replace(object json.RawMessage) Verdict { return Verdict{object: object} }

// String returns the verdict as text for logs.
func (v Verdict) String() string {
	s := "admit"
	switch {
	case v.refused:
		s = "refuse"
	case len(v.patch) > 0 || len(v.object) > 0:
		s = "change"
	}
	if v.message != "" {
		s += ": " + v.message
	}
	return s
}

// admissionServer implements the protocol of admission plugins for a plugin.
type admissionServer[C any] struct {
	admissionpb.UnimplementedAdmissionServer
	server[C, Admission]
}

// Describe implements [admissionpb.AdmissionServer].
func (s *admissionServer[C]) Describe(ctx context.Context, r *authorizerpb.DescribeRequest) (*authorizerpb.DescribeResponse, error) {
	return s.server.Describe(ctx, r)
}

// Configure implements [admissionpb.AdmissionServer].
func (s *admissionServer[C]) Configure(ctx context.Context, r *authorizerpb.ConfigureRequest) (*authorizerpb.ConfigureResponse, error) {
	return s.server.Configure(ctx, r)
}

// Review implements [admissionpb.AdmissionServer].
func (s *admissionServer[C]) Review(ctx context.Context, r *admissionpb.ReviewRequest) (_ *admissionpb.ReviewResponse, err error) {
	defer recovered(&err)
	a, err := s.configured()
	if err != nil {
		return nil, err
	}
	v, err := a.Review(ctx, review(r))
	if err := callError(ctx, err); err != nil {
		return nil, err
	}
	return v.response()
}

// response returns the verdict as the message of the protocol.
func (v *Verdict) response() (*admissionpb.ReviewResponse, error) {
	answer := &admissionpb.ReviewResponse{
		Verdict: admissionpb.Verdict_VERDICT_ALLOWED, Message: valid(v.message), AuditAnnotations: make(map[string]string, len(v.annotations)),
	}
	for _, w := range v.warnings {
		answer.Warnings = append(answer.Warnings, valid(w))
	}
	for name, value := range v.annotations {
		answer.AuditAnnotations[valid(name)] = valid(value)
	}
	if v.cacheable {
		answer.CacheTtl = durationpb.New(v.ttl)
	}
	changes := len(v.patch) > 0 || len(v.object) > 0
	switch {
	case v.refused && changes:
		return nil, errors.New("a refused write cannot be changed")
	case v.refused:
		answer.Verdict, answer.Code, answer.Reason = admissionpb.Verdict_VERDICT_REFUSED, uint32(v.code), valid(v.reason)
	case len(v.patch) > 0:
		answer.Change = &admissionpb.ReviewResponse_Patch{Patch: v.patch}
	case len(v.object) > 0:
		answer.Change = &admissionpb.ReviewResponse_Object{Object: v.object}
	}
	return answer, nil
}

// valid returns a text that protobuf can send.
func valid(text string) string { return strings.ToValidUTF8(text, "\uFFFD") }

var stages = map[admissionpb.Stage]Stage{
	admissionpb.Stage_STAGE_MUTATION:   Mutation,
	admissionpb.Stage_STAGE_VALIDATION: Validation,
}

var operations = map[admissionpb.Operation]Operation{
	admissionpb.Operation_OPERATION_CREATE: Create,
	admissionpb.Operation_OPERATION_UPDATE: Update,
	admissionpb.Operation_OPERATION_DELETE: Delete,
}

func review(r *admissionpb.ReviewRequest) *Review {
	return &Review{
		UID: r.GetUid(), Rule: r.GetRule(), Stage: stages[r.GetStage()], Operation: operations[r.GetOperation()],
		Kind: kindOf(r.GetKind()), Resource: resourceOf(r.GetResource()),
		RequestKind: kindOf(r.GetRequestKind()), RequestResource: resourceOf(r.GetRequestResource()),
		Namespace: r.GetNamespace(), Name: r.GetName(), NamespaceLabels: r.GetNamespaceLabels(), User: userOf(r.GetUser()),
		Object: r.GetObject(), OldObject: r.GetOldObject(), DryRun: r.GetDryRun(), Options: r.GetOptions(), Time: timeOf(r.GetTime()),
	}
}

func kindOf(k *admissionpb.Kind) Kind {
	return Kind{Group: k.GetGroup(), Version: k.GetVersion(), Kind: k.GetKind()}
}

func resourceOf(r *admissionpb.Resource) Resource {
	return Resource{Group: r.GetGroup(), Version: r.GetVersion(), Resource: r.GetResource(), Subresource: r.GetSubresource()}
}
