// Package status makes the errors that clients receive: Status objects with the code, reason and message of
// kube-apiserver. Each has a constructor that is named for what happened; [From] converts the errors of other
// packages.
package status

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"syscall"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/limits/child"
	"stele.dev/stele/policy"
	"stele.dev/stele/projections/history"
	"stele.dev/stele/projections/objects"
)

// From returns the Status of any error. An unknown error is an internal error: its text is not sent to the client, and
// the second result tells the caller to log it.
func From(err error) (s *metav1.Status, internal bool) {
	var api apierrors.APIStatus
	var starved *child.Starved
	var forgotten *eventlog.ForgottenError
	var damage *eventlog.DamageError
	switch {
	case errors.As(err, &api):
		status := api.Status()
		status.Kind, status.APIVersion = "Status", "v1"
		return &status, status.Code == http.StatusInternalServerError
	case errors.Is(err, eventlog.ErrUnreadable):
		s = unavailable("the log cannot be read at the moment; try again")
	case errors.Is(err, eventlog.ErrTooLarge):
		s = &TooLarge("%s", err).ErrStatus
	case errors.Is(err, eventlog.ErrFull):
		s = failure(http.StatusInsufficientStorage, "InsufficientStorage", "the write was refused, nothing has changed: "+err.Error())
	case errors.Is(err, eventlog.ErrLost):
		s = failure(http.StatusInternalServerError, metav1.StatusReasonInternalError, "the write was refused, nothing has changed: "+err.Error())
	case errors.Is(err, history.ErrBehind):
		s = unavailable(whyBehind(err) + "; try again")
	case errors.Is(err, ErrUndecided):
		s = &apierrors.NewTimeoutError("it is not known yet whether the write took effect; its audit record will tell. Read the object before trying again", 0).ErrStatus
	case errors.Is(err, ErrNotSent), errors.Is(err, ErrStopped), eventlog.Refused(err):
		s = unavailable("the write was not sent, nothing has changed; try again")
	case errors.As(err, &starved):
		s = unavailable("the policy could not be checked: " + starved.Why + "; try again")
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		s = &apierrors.NewTimeoutError("request did not complete within the allotted timeout", 0).ErrStatus
	case errors.As(err, &forgotten):
		s = &Expired("the past before revision %d is not kept any more", forgotten.Oldest.Revision+1).ErrStatus
	case errors.As(err, &damage): // the log has the name of the file
		s, internal = &Expired("revisions %d to %d cannot be read: the file of the log that has them is damaged or missing on this server; the others can be read", damage.From, damage.To).ErrStatus, true
	case errors.Is(err, history.ErrForgotten):
		s = &Expired("what was asked for is not kept any more").ErrStatus
	case errors.Is(err, objects.ErrExpired):
		s = &Expired("The resourceVersion for the provided list is too old.").ErrStatus
	default:
		s, internal = &Internal(errors.New("see the server's log")).ErrStatus, true
	}
	s.Kind, s.APIVersion = "Status", "v1"
	return s, internal
}

// whyBehind returns why the history cannot be read. It leaves out the path of a file.
func whyBehind(err error) string {
	var system syscall.Errno
	if errors.As(err, &system) {
		return history.ErrBehind.Error() + ": " + system.Error()
	}
	return err.Error()
}

// failure returns a Status without details.
func failure(code int32, reason metav1.StatusReason, message string) *metav1.Status {
	return &metav1.Status{Status: metav1.StatusFailure, Code: code, Reason: reason, Message: message}
}

// unavailable returns a Status that tells the client to try again in a second.
func unavailable(message string) *metav1.Status {
	s := failure(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, message)
	s.Details = &metav1.StatusDetails{RetryAfterSeconds: 1}
	return s
}

// Unavailable returns the error for a request that this replica cannot serve at the moment (503).
func Unavailable(message string) *Error { return &Error{ErrStatus: *unavailable(message)} }

// Forbidden returns the error for a request that authorization did not allow (403). It names the rule that denied the
// request, if one did.
func Forbidden(r *policy.Request, d *policy.Decision) error {
	text := forbidden(r)
	if d.Reason != "" {
		text += ": " + d.Reason
	}
	err := apierrors.NewForbidden(schema.GroupResource{Group: r.Group, Resource: r.Resource}, r.Name, errors.New(text))
	if d.Denied {
		err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: "DeniedByRule", Message: d.Rule, Field: d.Source}}
	}
	return err
}

// forbidden returns the message of [Forbidden].
func forbidden(r *policy.Request) string {
	if !r.IsResource {
		return fmt.Sprintf("User %q cannot %s path %q", r.User, r.Verb, r.Path)
	}
	resource := r.Resource
	if r.Subresource != "" {
		resource += "/" + r.Subresource
	}
	where := "at the cluster scope"
	if r.Namespace != "" {
		where = fmt.Sprintf("in the namespace %q", r.Namespace)
	}
	return fmt.Sprintf("User %q cannot %s resource %q in API group %q %s", r.User, r.Verb, resource, r.Group, where)
}

// NotServed returns the error for a path at which nothing is served (404).
func NotServed(verb string, r schema.GroupResource) *Error {
	return apierrors.NewGenericServerResponse(http.StatusNotFound, verb, r, "", "", 0, false)
}

// PanicStatus returns the error for a request that made the server panic (500).
func PanicStatus() *Error {
	return Internal(errors.New("the request could not be completed; the server's log tells more"))
}
