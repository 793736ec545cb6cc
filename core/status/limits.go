package status

import (
	"errors"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// MaxBody is kube-apiserver's limit of a request's body, in bytes.
const MaxBody = 3 << 20

// Modified returns the error of a write that lost against another one (409 Conflict), in upstream's words.
func Modified(resource schema.GroupResource, name string) error {
	return apierrors.NewConflict(resource, name, errors.New("the object has been modified; please apply your changes to the latest version and try again"))
}

// methodNotAllowed is the answer where no kind's own words are to be had.
func MethodNotAllowed(method string) error {
	return apierrors.NewGenericServerResponse(http.StatusMethodNotAllowed, method, schema.GroupResource{}, "", "", 0, false)
}

func BodyTooLarge() error {
	return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("limit is %d", MaxBody))
}

// notAcceptable is the answer to who wants an object in a form that it has not.
func NotAcceptable(format string, args ...any) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusNotAcceptable, Reason: metav1.StatusReasonNotAcceptable, Message: fmt.Sprintf(format, args...),
	}}
}

// OtherNamespace returns the error of an object whose namespace is not that of its path (400).
func OtherNamespace() error {
	return apierrors.NewBadRequest("the namespace of the provided object does not match the namespace sent on the request")
}
