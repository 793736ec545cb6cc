package status

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Error is an error with the Status that the client receives.
type Error = apierrors.StatusError

// BadRequest returns the error for a request that the server cannot understand (400).
func BadRequest(message string) *Error { return apierrors.NewBadRequest(message) }

// BadRequestf is [BadRequest] with a format.
func BadRequestf(format string, args ...any) *Error { return BadRequest(fmt.Sprintf(format, args...)) }

// OtherNamespace returns the error for an object whose namespace is not that of the path (400).
func OtherNamespace() *Error {
	return BadRequest("the namespace of the provided object does not match the namespace sent on the request")
}

// NotFound returns the error for an object that does not exist (404).
func NotFound(r schema.GroupResource, name string) *Error { return apierrors.NewNotFound(r, name) }

// NotFoundf returns the error for something that does not exist and is no object (404).
func NotFoundf(format string, args ...any) *Error {
	return &Error{ErrStatus: *failure(http.StatusNotFound, metav1.StatusReasonNotFound, fmt.Sprintf(format, args...))}
}

// NotServedNamed is [NotServed] for a request that names an object.
func NotServedNamed(verb string, r schema.GroupResource, name string) *Error {
	return apierrors.NewGenericServerResponse(http.StatusNotFound, verb, r, name, "", 0, false)
}

// Unauthorized returns the error for a request without valid credentials (401).
func Unauthorized() *Error { return apierrors.NewUnauthorized("Unauthorized") }

// AlreadyExists returns the error for a new object whose name is taken (409).
func AlreadyExists(r schema.GroupResource, name string) *Error {
	return apierrors.NewAlreadyExists(r, name)
}

// NameTaken returns the error for a new object whose generated name is taken (409): the client may try again.
func NameTaken(r schema.GroupResource, name string) *Error {
	return apierrors.NewGenerateNameConflict(r, name, 1)
}

// MethodNotSupported returns the error for a verb that a resource does not have (405).
func MethodNotSupported(r schema.GroupResource, verb string) *Error {
	return apierrors.NewMethodNotSupported(r, verb)
}

// MethodNotAllowed returns the error for a method that a path does not have (405).
func MethodNotAllowed(method string) *Error {
	return apierrors.NewGenericServerResponse(http.StatusMethodNotAllowed, method, schema.GroupResource{}, "", "", 0, false)
}

// NotAcceptable returns the error for a media type that an answer cannot have (406).
func NotAcceptable(format string, args ...any) *Error {
	return &Error{ErrStatus: *failure(http.StatusNotAcceptable, metav1.StatusReasonNotAcceptable, fmt.Sprintf(format, args...))}
}

// Conflict returns the error for a write that does not fit the current state (409).
func Conflict(r schema.GroupResource, name string, why error) *Error {
	return apierrors.NewConflict(r, name, why)
}

// Modified returns the error for a write that lost against another one (409).
func Modified(r schema.GroupResource, name string) *Error {
	return Conflict(r, name, errors.New("the object has been modified; please apply your changes to the latest version and try again"))
}

// Refused returns the error for a request that a rule other than authorization forbids (403).
func Refused(r schema.GroupResource, name string, why error) *Error {
	return apierrors.NewForbidden(r, name, why)
}

// Expired returns the error for a revision that can no longer be read (410).
func Expired(format string, args ...any) *Error {
	return apierrors.NewResourceExpired(fmt.Sprintf(format, args...))
}

// TooLarge returns the error for a body or an object that is over a limit (413).
func TooLarge(format string, args ...any) *Error {
	return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf(format, args...))
}

// MaxBody is kube-apiserver's limit of a request's body, in bytes.
const MaxBody = 3 << 20

// BodyTooLarge returns the error for a body over [MaxBody] (413).
func BodyTooLarge() *Error { return TooLarge("limit is %d", MaxBody) }

// Unprocessable returns the error for a patch that does not fit its object (422).
func Unprocessable(why error) *Error {
	return apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "", schema.GroupResource{}, "", why.Error(), 0, false)
}

// RuleOf returns the cause of a refusal that names a rule, a webhook or a plugin of the policy: its type is the id, and its field
// the line. The result is empty if no cause names one.
func RuleOf(s *metav1.Status) (cause metav1.StatusCause) {
	if s.Details == nil {
		return cause
	}
	for _, c := range s.Details.Causes { // those of fields, and those of kube-apiserver, have types without a slash
		if strings.Contains(string(c.Type), "/") {
			return c
		}
	}
	return cause
}

// TooManyRequests returns the error for a limit that a later request may not meet (429).
func TooManyRequests(message string) *Error { return apierrors.NewTooManyRequests(message, 1) }

// TooManyRequestsFor returns the error for a request that the client may repeat after some time, in full seconds (429).
func TooManyRequestsFor(message string, after time.Duration) *Error {
	return apierrors.NewTooManyRequests(message, int(math.Ceil(max(after, time.Second).Seconds())))
}

// Spread adds up to half of the Retry-After of a refusal, and a second at most if that is less, at random: so clients that are
// refused at the same time do not come back at the same time. Clients read whole seconds.
func Spread(s *metav1.Status) {
	if d := s.Details; s.Code == http.StatusTooManyRequests && d != nil && d.RetryAfterSeconds > 0 {
		more := *d
		more.RetryAfterSeconds += rand.Int32N(max(1, d.RetryAfterSeconds/2) + 1)
		s.Details = &more
	}
}

// Internal returns the error for a failure of the server (500), which is also logged.
func Internal(why error) *Error { return apierrors.NewInternalError(why) }

// ClockBehind returns the error for times that cannot be looked up while the clock is wrong (503).
func ClockBehind(health error) *Error {
	return apierrors.NewServiceUnavailable("times cannot be looked up: " + health.Error() + "; a revision can be given instead")
}

// Unconfirmed returns the error for a read of a state that was last known to be current too long ago (503).
func Unconfirmed(ago time.Duration) *Error {
	return &Error{ErrStatus: *unavailable(fmt.Sprintf("this server has not reached its log for %s, and does not answer from memory any more; try again", ago.Round(time.Second)))}
}

// Success returns the Status of a request that has no object as its answer.
func Success(code int32) *metav1.Status {
	return &metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusSuccess, Code: code}
}

// Deleted returns the Status of a delete whose answer is not the object.
func Deleted(what *metav1.StatusDetails) *metav1.Status {
	s := Success(0)
	s.Details = what
	return s
}

// ReadOnlyPast returns the error for a write to a past revision (405).
func ReadOnlyPast(r schema.GroupResource, name, message string) *Error {
	s := failure(http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed, message)
	s.Details = &metav1.StatusDetails{Group: r.Group, Kind: r.Resource, Name: name}
	return &Error{ErrStatus: *s}
}

// PartsMissing returns the error for a push whose parts must be uploaded first (422).
func PartsMissing(kind schema.GroupKind, missing []metav1.StatusCause, message string) *Error {
	s := failure(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, message)
	s.Details = &metav1.StatusDetails{Group: kind.Group, Kind: kind.Kind, Causes: missing}
	return &Error{ErrStatus: *s}
}

// maxErrors limits the errors in an answer. A body may have a mistake in each of a million items, and the time to
// format all errors grows with the square of their number.
const maxErrors = 100

// Invalid returns the error for an object that is not valid (422). It lists the first errors and the number of others.
func Invalid(kind schema.GroupKind, name string, errs field.ErrorList) *Error {
	if more := len(errs) - maxErrors; more > 0 {
		errs = errs[:maxErrors:maxErrors]
		last := *errs[maxErrors-1]
		last.Detail += fmt.Sprintf("; and %d more errors", more)
		errs[maxErrors-1] = &last
	}
	return apierrors.NewInvalid(kind, name, errs)
}
