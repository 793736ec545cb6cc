package webhooks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"
	"stele.dev/stele/core/reviewers/review"
	"stele.dev/stele/limits/breaker"
	"stele.dev/stele/limits/fair"
	"stele.dev/stele/policy"
)

// hook is one webhook: what is asked, and its connection.
type hook struct {
	of       *Webhooks
	id, name string
	mutating bool
	config   policy.WebhookClient
	places   *fair.Semaphore[string] // by user
	circuit  *breaker.Circuit
	client   atomic.Pointer[client] // nil until it is asked
	unread   atomic.Bool            // its secrets could not be read, and that was logged
}

// errOpen is why a webhook is not asked while its circuit is open.
var errOpen = errors.New("it did not answer in its time lately, and is not asked for some seconds")

// Review implements review.Reviewer.
func (h *hook) Review(ctx context.Context, r *review.Review) (*review.Verdict, error) {
	if h.circuit.State() == breaker.Open {
		return nil, h.failed(failedCircuit, http.StatusServiceUnavailable, errOpen)
	}
	if err := h.places.Acquire(ctx, r.User.GetName()); err != nil {
		if errors.Is(err, fair.ErrFull) {
			err = fmt.Errorf("%d questions of this user wait for it already", waitingPerUser)
		}
		return nil, h.failed(failedBusy, http.StatusServiceUnavailable, fmt.Errorf("it answers %d other questions: %w", inFlight, err))
	}
	defer h.places.Release()
	trial, ok := h.circuit.Allow()
	if !ok {
		return nil, h.failed(failedCircuit, http.StatusServiceUnavailable, errOpen)
	}
	outcome := breaker.Unknown
	defer func() { h.circuit.Done(trial, outcome) }()
	answer, err := h.ask(ctx, r)
	switch {
	case err == nil:
		outcome = breaker.Succeeded
	case errors.Is(context.Cause(ctx), review.ErrSilent):
		outcome = breaker.Failed
	}
	if err != nil {
		return nil, err
	}
	return &review.Verdict{
		Allowed: answer.Allowed, Status: answer.Result, Patch: answer.Patch, Warnings: answer.Warnings, AuditAnnotations: answer.AuditAnnotations,
	}, nil
}

// ask sends the question, and checks the answer.
func (h *hook) ask(ctx context.Context, r *review.Review) (*admissionv1.AdmissionResponse, error) {
	c, err := h.current()
	if err != nil {
		return nil, h.failed(failedConfiguration, http.StatusInternalServerError, fmt.Errorf("could not get REST client: %w", err))
	}
	post := c.Post().Body(question(r))
	if deadline, ok := ctx.Deadline(); ok {
		if left := time.Until(deadline); left > 0 {
			post.Timeout((left + time.Second - 1).Truncate(time.Second)) // tells the webhook, in whole seconds
		}
	}
	answer := &admissionv1.AdmissionReview{}
	if err := post.Do(ctx).Into(answer); err != nil {
		return nil, h.uncalled(ctx, err)
	}
	return h.verified(r, answer)
}

// verified returns what a webhook has answered, if that is an answer to the question.
func (h *hook) verified(r *review.Review, answer *admissionv1.AdmissionReview) (*admissionv1.AdmissionResponse, error) {
	if err := checkAnswer(r.UID, h.mutating, answer); err != nil {
		return nil, h.failed(failedAnswer, http.StatusServiceUnavailable, fmt.Errorf("received invalid webhook response: %w", err))
	}
	verdict := answer.Response
	if !verdict.Allowed || len(verdict.Patch) == 0 {
		return verdict, nil
	}
	if err := json.Unmarshal(verdict.Patch, &[]map[string]json.RawMessage{}); err != nil {
		return nil, h.failed(failedAnswer, http.StatusServiceUnavailable, fmt.Errorf("received undecodable patch in webhook response: %w", err))
	}
	if *verdict.PatchType != admissionv1.PatchTypeJSONPatch {
		return nil, h.failed(failedAnswer, http.StatusBadRequest, fmt.Errorf("unsupported patch type %q", *verdict.PatchType))
	}
	return verdict, nil
}

// uncalled returns the error of a call that failed, or whose answer was none.
func (h *hook) uncalled(ctx context.Context, err error) error {
	code, why := http.StatusServiceUnavailable, failedCall
	if known := (*apierrors.StatusError)(nil); errors.As(err, &known) {
		code, why = int(known.ErrStatus.Code), failedStatus
	}
	switch {
	case errors.Is(context.Cause(ctx), review.ErrSilent):
		why = failedTimeout
	case ctx.Err() != nil:
		why = failedCanceled
	}
	return h.failed(why, code, fmt.Errorf("failed to call webhook: %w", err))
}

// failed counts a failure and returns its error.
func (h *hook) failed(why string, code int, reason error) error {
	h.of.metrics.failures.WithLabelValues(h.name, why).Inc()
	return &review.CallError{What: "webhook", Name: h.name, Reason: reason, Code: code}
}

// question returns the AdmissionReview for a write.
func question(r *review.Review) *admissionv1.AdmissionReview {
	kind, resource := metav1.GroupVersionKind(r.Kind), metav1.GroupVersionResource(r.Resource)
	requestKind, requestResource := metav1.GroupVersionKind(r.RequestKind), metav1.GroupVersionResource(r.RequestResource)
	dryRun := r.DryRun
	return &admissionv1.AdmissionReview{Request: &admissionv1.AdmissionRequest{
		UID: r.UID, Kind: kind, Resource: resource, SubResource: r.Subresource,
		RequestKind: &requestKind, RequestResource: &requestResource, RequestSubResource: r.RequestSubresource,
		Name: r.Name, Namespace: r.Namespace, Operation: admissionv1.Operation(r.Operation), UserInfo: userInfo(r.User),
		Object: runtime.RawExtension{Raw: r.Object}, OldObject: runtime.RawExtension{Raw: r.OldObject},
		DryRun: &dryRun, Options: runtime.RawExtension{Raw: r.Options},
	}}
}

func userInfo(u user.Info) authenticationv1.UserInfo {
	info := authenticationv1.UserInfo{Username: u.GetName(), UID: u.GetUID(), Groups: u.GetGroups(), Extra: map[string]authenticationv1.ExtraValue{}}
	for k, v := range u.GetExtra() {
		info.Extra[k] = v
	}
	return info
}
