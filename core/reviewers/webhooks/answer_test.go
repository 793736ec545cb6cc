package webhooks_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/request"
	"stele.dev/stele/core/reviewers/webhooks"
)

// TestAnswersAreCheckedAsUpstream compares what is said of every combination of an answer's fields with kube-apiserver.
func TestAnswersAreCheckedAsUpstream(t *testing.T) {
	empty, other, patch := admissionv1.PatchType(""), admissionv1.PatchType("Other"), admissionv1.PatchTypeJSONPatch
	valid, invalid := 0, 0
	check := func(mutating bool, answer *admissionv1.AdmissionReview) {
		want, wantErr := request.VerifyAdmissionResponse("asked", mutating, answer)
		err := webhooks.CheckAnswer("asked", mutating, answer)
		if wantErr != nil {
			invalid++
			require.EqualError(t, err, wantErr.Error())
			return
		}
		valid++
		require.NoError(t, err)
		assert.Equal(t, string(want.Patch), string(answer.Response.Patch))
		if answer.Response.PatchType != nil {
			assert.Equal(t, want.PatchType, *answer.Response.PatchType)
		}
	}
	for _, mutating := range []bool{false, true} {
		for _, kind := range []string{"", "AdmissionReview", "Other"} {
			for _, version := range []string{"", "v1", "admission.k8s.io/v1", "admission.k8s.io/v1beta1"} {
				answer := &admissionv1.AdmissionReview{}
				answer.Kind, answer.APIVersion = kind, version
				check(mutating, answer)
				for _, uid := range []types.UID{"", "asked", "other"} {
					for _, patches := range [][]byte{nil, {}, []byte("[]")} {
						for _, patchType := range []*admissionv1.PatchType{nil, &empty, &other, &patch} {
							answer.Response = &admissionv1.AdmissionResponse{UID: uid, Allowed: true, Patch: patches, PatchType: patchType}
							check(mutating, answer)
						}
					}
				}
			}
		}
	}
	assert.Positive(t, valid)
	assert.Positive(t, invalid)
}
