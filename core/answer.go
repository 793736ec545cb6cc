package core

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	internalvalidation "k8s.io/apimachinery/pkg/apis/meta/internalversion/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/core/commit"
	"stele.dev/stele/core/past"
	"stele.dev/stele/projections/objects"
)

// answer is the last stage of all that does not write.
func (p *Pipeline) answer(ctx context.Context, r *Request) error {
	if r.warnings = nil; r.Kind != nil {
		r.WarnDeprecated(r.Kind)
		if _, err := r.Format(); err != nil {
			return err // before anything is looked at
		}
		if err := p.WarnPast(ctx, r); err != nil {
			return err
		}
	}
	switch {
	case !r.Info.IsResourceRequest:
		return p.answerPath(r)
	case r.isChanges():
		return p.answerChanges(ctx, r)
	case r.law:
		return p.answerPolicies(ctx, r)
	case r.explains:
		return p.answerExplanation(ctx, r)
	case r.review != nil:
		return p.answerReview(ctx, r)
	case r.issues:
		return p.issue(ctx, r)
	case r.question != nil:
		return p.answerQuestion(ctx, r)
	case r.rendered != nil && r.Info.Verb == "get":
		return p.getRendered(ctx, r)
	case r.rendered != nil && r.Info.Verb == "list":
		return p.listRendered(ctx, r)
	case r.Info.Verb == "get":
		return p.Get(ctx, r)
	case r.Info.Verb == "list":
		return p.List(ctx, r)
	case r.ofCollection():
		return p.deleteCollection(ctx, r)
	default:
		return p.Watch(ctx, r)
	}
}

