package webhooks

import (
	"errors"
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/types"
)

// checkAnswer returns an error if an answer is none to the question with this UID. The rules and the messages are those
// of VerifyAdmissionResponse in k8s.io/apiserver/pkg/admission/plugin/webhook/request, whose package imports all
// informers of client-go.
func checkAnswer(uid types.UID, mutating bool, answer *admissionv1.AdmissionReview) error {
	a := answer.Response
	if a == nil {
		return errors.New("webhook response was absent")
	}
	wanted, kind := admissionv1.SchemeGroupVersion.WithKind("AdmissionReview"), answer.GroupVersionKind()
	switch {
	case a.UID != uid:
		return fmt.Errorf("expected response.uid=%q, got %q", uid, a.UID)
	case kind != wanted:
		return fmt.Errorf("expected webhook response of %v, got %v", wanted, kind)
	case !mutating && len(a.Patch) > 0:
		return errors.New("validating webhook may not return response.patch")
	case !mutating && a.PatchType != nil:
		return errors.New("validating webhook may not return response.patchType")
	case len(a.Patch) > 0 && a.PatchType == nil:
		return errors.New("webhook returned response.patch but not response.patchType")
	case len(a.Patch) == 0 && a.PatchType != nil:
		return errors.New("webhook returned response.patchType but not response.patch")
	case a.PatchType != nil && *a.PatchType == "":
		return fmt.Errorf("webhook returned invalid response.patchType of %q", *a.PatchType)
	}
	return nil
}
