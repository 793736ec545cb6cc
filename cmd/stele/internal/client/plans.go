package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"stele.dev/stele/core/activation"
	"stele.dev/stele/core/plans"
	"stele.dev/stele/policy/plan"
)

// ErrMayNotPlan is the error of a user who has no permission to create plans.
var ErrMayNotPlan = errors.New("you need permission to create plans.policy.stele.dev; the role policy:planner gives it")

// Plan asks the server what a policy would change. For a policy that is too large for one request it first uploads the
// files that the server lacks.
func (c *Policies) Plan(ctx context.Context, spec plans.Spec) (*plan.Plan, error) {
	request := &plans.Request{TypeMeta: metav1.TypeMeta{APIVersion: plans.Group + "/" + plans.Version, Kind: plans.Kind}, Spec: spec}
	text, err := json.Marshal(request)
	if err != nil {
		return nil, err
	}
	if len(text) <= maxWhole {
		return c.postPlan(ctx, text)
	}
	source := (&activation.Spec{Package: spec.Package, Files: spec.Files}).Source()
	inParts, parts := activation.InParts(source)
	request.Spec.Files = inParts.Files
	if text, err = json.Marshal(request); err != nil {
		return nil, err
	}
	for range uploads {
		p, err := c.postPlan(ctx, text)
		missing := missingParts(err, parts)
		if len(missing) == 0 {
			return p, err
		}
		if err := c.upload(ctx, missing); err != nil {
			return nil, err
		}
	}
	return nil, errors.New("the server dropped parts of the policy while it made the plan; try again")
}

// postPlan sends the request for a plan as JSON.
func (c *Policies) postPlan(ctx context.Context, text []byte) (*plan.Plan, error) {
	text, err := c.rest.Post().Resource(plans.Plural).SetHeader("Content-Type", "application/json").Body(text).Do(ctx).Raw() // DoRaw ignores warnings
	switch {
	case apierrors.IsForbidden(err):
		return nil, fmt.Errorf("%w (%w)", ErrMayNotPlan, Readable(err, text))
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("%w: if the server does not know plans, it is of an earlier version", Readable(err, text))
	case err != nil:
		return nil, &unread{Readable(err, text), err, text}
	}
	answer := new(plans.Request)
	if err := json.Unmarshal(text, answer); err != nil {
		return nil, fmt.Errorf("the server's plan cannot be read: %w", err)
	}
	if answer.Status.Plan == nil || answer.Status.Plan.Kind != plan.Kind {
		return nil, errors.New("the server's answer has no plan")
	}
	return answer.Status.Plan, nil
}
