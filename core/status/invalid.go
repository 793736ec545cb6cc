package status

import (
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// maxErrors is how much is said of what is wrong with a body: a client may send one with a mistake in each of a million
// items, and the text of all of them is made in the square of their number.
const maxErrors = 100

// Invalid says what is wrong with an object: all of it, or the beginning and how much more there is.
func Invalid(kind schema.GroupKind, name string, errs field.ErrorList) error {
	if more := len(errs) - maxErrors; more > 0 {
		errs = errs[:maxErrors:maxErrors]
		last := *errs[maxErrors-1]
		last.Detail += fmt.Sprintf("; and %d more errors", more)
		errs[maxErrors-1] = &last
	}
	return apierrors.NewInvalid(kind, name, errs)
}
