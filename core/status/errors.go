package status

import (
	"fmt"
	"net/http"

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

// NotFound returns the error for an object that does not exist (404).
func NotFound(r schema.GroupResource, name string) *Error { return apierrors.NewNotFound(r, name) }

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

// Conflict returns the error for a write that does not fit the current state (409).
func Conflict(r schema.GroupResource, name string, why error) *Error {
	return apierrors.NewConflict(r, name, why)
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

// Unprocessable returns the error for a patch that does not fit its object (422).
func Unprocessable(why error) *Error {
	return apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "", schema.GroupResource{}, "", why.Error(), 0, false)
}

// TooManyRequests returns the error for a limit that a later request may not meet (429).
func TooManyRequests(message string) *Error { return apierrors.NewTooManyRequests(message, 1) }

// Internal returns the error for a failure of the server (500), which is also logged.
func Internal(why error) *Error { return apierrors.NewInternalError(why) }

// ClockBehind returns the error for times that cannot be looked up while the clock is wrong (503).
func ClockBehind(health error) *Error {
	return apierrors.NewServiceUnavailable("times cannot be looked up: " + health.Error() + "; a revision can be given instead")
}

// Success returns the Status of a request that has no object as its answer.
func Success(code int32) *metav1.Status {
	return &metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusSuccess, Code: code}
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
