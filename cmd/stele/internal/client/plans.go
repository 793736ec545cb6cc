package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"stele.dev/stele/core/resources/activation"
	"stele.dev/stele/core/resources/plans"
	"stele.dev/stele/policy/plan"
)

// ErrMayNotPlan is the error of a user who has no permission to create plans.
var ErrMayNotPlan = errors.New("you need permission to create plans.policy.stele.dev; the role policy:planner gives it")

// Plan asks the server what a policy would change. For a policy that is too large for one request it first uploads the
// files that the server lacks.
func (c *Policies) Plan(ctx context.Context, spec plans.Spec) (*plan.Plan, error) {
	encode := func(files []activation.File) ([]byte, error) {
		spec.Files = files
		return json.Marshal(&plans.Request{TypeMeta: metav1.TypeMeta{APIVersion: plans.Group + "/" + plans.Version, Kind: plans.Kind}, Spec: spec})
	}
	files := &activation.Spec{Package: spec.Package, Files: spec.Files}
	return sendFiles(ctx, c, files, encode, func(text []byte) (*plan.Plan, error) { return c.postPlan(ctx, text) })
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
