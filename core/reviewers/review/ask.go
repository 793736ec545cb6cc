package review

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/metrics"
	webhookerrors "k8s.io/apiserver/pkg/admission/plugin/webhook/errors"
	"stele.dev/stele/core/status"
	"stele.dev/stele/core/tracing"
	"stele.dev/stele/policy"
)

// Outcome is what follows for a write from asking one reviewer.
type Outcome struct {
	*policy.Reviewer
	// Verdict is its answer; nil if there is none.
	Verdict *Verdict
	// Err is the error of the request: the write is refused, or the reviewer could not be asked and must be. It is nil if
	// the write goes on.
	Err error
	// Failure is why the reviewer could not be asked; nil if it was. Without Err the write goes on without its verdict.
	Failure error
}

// Question is a review and who is asked.
type Question struct {
	Policy   *policy.Policy
	Reviewer *policy.Reviewer
	Review   *Review
}

// cannot returns the error of a reviewer that cannot be asked.
func (q *Question) cannot(reason error) error {
	return &CallError{What: q.Reviewer.What(), Name: q.Reviewer.Name(), Reason: reason, Code: http.StatusInternalServerError}
}

// Ask asks a reviewer, and applies its failure policy. It takes as long as the reviewer, at most its timeout.
func (find Find) Ask(ctx context.Context, q Question) *Outcome {
	ctx, span := tracing.Start(ctx, q.Reviewer.What()+" "+q.Reviewer.Name())
	defer span.End()
	began := time.Now()
	o := &Outcome{Reviewer: q.Reviewer}
	var call *CallError
	switch verdict, err := find.call(ctx, q); {
	case err == nil && verdict.Allowed:
		o.Verdict = verdict
	case err == nil:
		o.Verdict, o.Err = verdict, refusal(q.Reviewer, verdict.Status)
	case errors.As(err, &call):
		o.fail(ctx, err)
	default:
		o.Err = located(q.Reviewer, err)
	}
	if q.Reviewer.Webhook != nil {
		o.observe(ctx, q, time.Since(began), call)
	}
	return o
}

// AskAll asks several reviewers at once, and waits for all of them. The outcomes have the order of the questions.
func (find Find) AskAll(ctx context.Context, questions []Question) []*Outcome {
	outcomes := make([]*Outcome, len(questions))
	if len(questions) == 1 {
		outcomes[0] = find.Ask(ctx, questions[0])
		return outcomes
	}
	var all sync.WaitGroup
	for i, q := range questions {
		all.Go(func() { outcomes[i] = find.Ask(ctx, q) })
	}
	all.Wait()
	return outcomes
}

// call asks the reviewer. A panic is an error: it must not end the process, as it may in another goroutine than that of
// the request.
func (find Find) call(ctx context.Context, q Question) (v *Verdict, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = q.cannot(fmt.Errorf("the server panicked: %v", p))
		}
	}()
	if q.Review.DryRun && q.Reviewer.SideEffects == policy.SideEffectsSome {
		return nil, worded(q.Reviewer, webhookerrors.NewDryRunUnsupportedErr(q.Reviewer.Name()))
	}
	if answers := Answers(ctx); answers != nil {
		find = answers
	}
	reviewer := find.find(q.Policy, q.Reviewer)
	if reviewer == nil {
		return nil, q.cannot(errors.New("this replica cannot reach it"))
	}
	ctx, cancel := context.WithTimeoutCause(ctx, q.Reviewer.Timeout, ErrSilent)
	defer cancel()
	v, err = reviewer.Review(ctx, q.Review)
	if err == nil && v == nil {
		err = q.cannot(errors.New("it has no verdict"))
	}
	return v, err
}

func (find Find) find(p *policy.Policy, r *policy.Reviewer) Reviewer {
	if find == nil {
		return nil
	}
	return find(p, r)
}

// fail applies the failure policy. As in kube-apiserver, a request whose own time is over does not go on, whatever the
// policy says.
func (o *Outcome) fail(ctx context.Context, err error) {
	o.Failure = err
	switch {
	case !o.Ignore:
		o.Err = located(o.Reviewer, apierrors.NewInternalError(err))
	case ctx.Err() != nil:
		o.Err = apierrors.NewTimeoutError("request did not complete within requested timeout", 0)
	}
}

// refusal returns the error for a refused write: kube-apiserver's, with the line of the reviewer.
func refusal(r *policy.Reviewer, result *metav1.Status) error {
	if result != nil {
		result = result.DeepCopy()
		if result.Code >= 600 { // it cannot be written
			result.Code = http.StatusInternalServerError
		}
	}
	return located(r, worded(r, webhookerrors.ToStatusErr(r.Name(), result)))
}

// worded says plugin in a message that the library has made for webhooks.
func worded(r *policy.Reviewer, err *apierrors.StatusError) *apierrors.StatusError {
	if r.Webhook == nil {
		err.ErrStatus.Message = strings.Replace(err.ErrStatus.Message, "admission webhook", "admission "+r.What(), 1)
	}
	return err
}

// located adds to an error the line of the reviewer in the bundle.
func located(r *policy.Reviewer, err error) error {
	var known *apierrors.StatusError
	if !errors.As(err, &known) || r.Source.IsZero() {
		return err
	}
	s := *known.ErrStatus.DeepCopy()
	s.Message += " (" + r.Source.String() + ")"
	if s.Details == nil {
		s.Details = &metav1.StatusDetails{}
	}
	s.Details.Causes = append(s.Details.Causes, metav1.StatusCause{Type: metav1.CauseType(r.ID), Message: "asked by the policy", Field: r.Source.String()})
	return &status.Error{ErrStatus: s}
}

// observe counts the question in the metrics of kube-apiserver.
func (o *Outcome) observe(ctx context.Context, q Question, took time.Duration, call *CallError) {
	kind, operation := "validating", string(q.Review.Operation)
	if q.Reviewer.Mutating {
		kind = "admit"
	}
	code, why := http.StatusOK, metrics.WebhookRejectionNoError
	switch known := (*apierrors.StatusError)(nil); {
	case call != nil:
		code, why = call.Code, metrics.WebhookRejectionCallingWebhookError
	case o.Verdict != nil && errors.As(o.Err, &known):
		code = int(known.ErrStatus.Code)
	case o.Err != nil:
		code, why = 0, metrics.WebhookRejectionAPIServerInternalError
	}
	rejected, gone := o.Err != nil, call != nil && errors.Is(call, context.Canceled)
	if rejected && !gone {
		metrics.Metrics.ObserveWebhookRejection(ctx, o.Name(), kind, operation, why, code)
	}
	if call != nil && !rejected && !gone {
		metrics.Metrics.ObserveWebhookFailOpen(ctx, o.Name(), kind)
	}
	metrics.Metrics.ObserveWebhook(ctx, o.Name(), took, rejected, operationOf{operation: admission.Operation(operation)}, kind, code)
}

// operationOf is what the metrics read of a request.
type operationOf struct {
	admission.Attributes
	operation admission.Operation
}

func (o operationOf) GetOperation() admission.Operation { return o.operation }

// Internal returns the error of a write whose reviewer answered what cannot be carried out.
func Internal(r *policy.Reviewer, err error) error {
	return located(r, apierrors.NewInternalError(err))
}

// Made returns the error of a write whose object a reviewer has changed to what cannot be stored.
func Made(r *policy.Reviewer, err error) error {
	if known := (*apierrors.StatusError)(nil); errors.As(err, &known) {
		s := known.ErrStatus.DeepCopy()
		s.Message = fmt.Sprintf("admission %s %q changed the object, which is now wrong: %s", r.What(), r.Name(), s.Message)
		err = &status.Error{ErrStatus: *s}
	}
	return located(r, err)
}

// Unmatched returns the error of a write of which is not known whether a reviewer must be asked: one of its conditions cannot be
// evaluated.
func Unmatched(r *policy.Reviewer, resource schema.GroupResource, name string, err error) error {
	return located(r, apierrors.NewForbidden(resource, name, err))
}

// Join returns the first of the errors of a write, with the messages and the causes of the others; nil if there are none.
func Join(errs []error) error {
	var first *apierrors.StatusError
	if len(errs) < 2 || !errors.As(errs[0], &first) {
		return errors.Join(errs...)
	}
	s := *first.ErrStatus.DeepCopy()
	if s.Details == nil {
		s.Details = &metav1.StatusDetails{}
	}
	for _, err := range errs[1:] {
		s.Message += "; " + err.Error()
		if other := (*apierrors.StatusError)(nil); errors.As(err, &other) && other.ErrStatus.Details != nil {
			s.Details.Causes = append(s.Details.Causes, other.ErrStatus.Details.Causes...)
		}
	}
	return &status.Error{ErrStatus: s}
}
