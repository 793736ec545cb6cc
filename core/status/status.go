// Package status is where errors become the Status objects that clients get: from
// typed causes, with the code, reason and text of kube-apiserver.
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
	"stele.dev/stele/core/apart"
	"stele.dev/stele/core/commit"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/policy"
	"stele.dev/stele/projections/history"
	"stele.dev/stele/projections/objects"
)

// From returns the Status of any error. What it does not know is an internal error,
// whose text stays on the server: the second result tells to log it.
func From(err error) (s *metav1.Status, internal bool) {
	var api apierrors.APIStatus
	var starved *apart.Starved
	switch {
	case errors.As(err, &api):
		status := api.Status()
		status.Kind, status.APIVersion = "Status", "v1"
		return &status, status.Code == http.StatusInternalServerError
	case errors.Is(err, eventlog.ErrTooLarge):
		s = &apierrors.NewRequestEntityTooLargeError(cause(err)).ErrStatus
	case errors.Is(err, eventlog.ErrFull):
		s = of(http.StatusInsufficientStorage, "InsufficientStorage", "the write was refused, nothing has changed: "+cause(err))
	case errors.Is(err, history.ErrBehind):
		s = unavailable(behind(err) + "; try again")
	case errors.Is(err, commit.ErrUndecided):
		s = &apierrors.NewTimeoutError("it is not known yet whether the write took effect; its audit record will tell. Read the object before trying again", 0).ErrStatus
	case errors.Is(err, commit.ErrNotSent), errors.Is(err, commit.ErrStopped), eventlog.Refused(err):
		s = unavailable("the write was not sent, nothing has changed; try again")
	case errors.As(err, &starved):
		s = unavailable("the policy could not be checked: " + starved.Why + "; try again")
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		s = &apierrors.NewTimeoutError("request did not complete within the allotted timeout", 0).ErrStatus
	case errors.Is(err, objects.ErrExpired):
		s = &apierrors.NewResourceExpired("The resourceVersion for the provided list is too old.").ErrStatus
	default:
		s, internal = &apierrors.NewInternalError(errors.New("see the server's log")).ErrStatus, true
	}
	s.Kind, s.APIVersion = "Status", "v1"
	return s, internal
}

// behind is why it cannot be told what was. Where the server has its files is its own affair.
func behind(err error) string {
	var system syscall.Errno
	if errors.As(err, &system) {
		return history.ErrBehind.Error() + ": " + system.Error()
	}
	return err.Error()
}

// cause is the text without the sentinel's own.
func cause(err error) string { return err.Error() }

func of(code int32, reason metav1.StatusReason, message string) *metav1.Status {
	return &metav1.Status{Status: metav1.StatusFailure, Code: code, Reason: reason, Message: message}
}

func unavailable(message string) *metav1.Status {
	s := of(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, message)
	s.Details = &metav1.StatusDetails{RetryAfterSeconds: 1}
	return s
}

// Unavailable says that this replica cannot serve for now.
func Unavailable(message string) error {
	return &apierrors.StatusError{ErrStatus: *unavailable(message)}
}

// Forbidden says that an authorization decision was not to allow the request, and which
// rule refused it, if one did.
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

// NotServed says that there is nothing at a path.
func NotServed(verb string, r schema.GroupResource) error {
	return apierrors.NewGenericServerResponse(http.StatusNotFound, verb, r, "", "", 0, false)
}

// PanicStatus is what a client gets whose request panicked.
func PanicStatus() error {
	return apierrors.NewInternalError(errors.New("the request could not be completed; the server's log tells more"))
}
