package core

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	kjson "sigs.k8s.io/json"
	"stele.dev/stele/core/commit"
	"stele.dev/stele/core/negotiate"
	"stele.dev/stele/core/reviews"
	"stele.dev/stele/core/status"
	"stele.dev/stele/core/wire"
)

// allowedReview tells whether there is a review at the request's path, and whether it
// takes the method. To create one is to read.
func (r *Request) allowedReview(kind *reviews.Kind) error {
	i := r.Info
	r.Key = commit.Key{Namespace: i.Namespace}
	r.Key.Group, r.Key.Resource = kind.Group, kind.Plural
	if i.Subresource != "" || i.Name != "" || kind.Namespaced != (i.Namespace != "") {
		return status.NotServed(i.Verb, r.Resource())
	}
	if i.Verb != "create" {
		return apierrors.NewMethodNotSupported(r.Resource(), i.Verb)
	}
	r.Write, r.review = false, kind
	return nil
}

// answerReview answers what a client asks about access, under the policy in force.
func (p *Pipeline) answerReview(ctx context.Context, r *Request) error {
	f, err := negotiate.Plain(r.HTTP)
	if err != nil {
		return err
	}
	text, err := p.reviewed(ctx, r)
	if err != nil {
		return err
	}
	return r.WriteBody(f, http.StatusCreated, text)
}

// reviewed is a review with its answer. Anybody may ask, and a large one takes ten times its size: so these take turns,
// of their own, as it may be somebody else who answers, and slowly.
func (p *Pipeline) reviewed(ctx context.Context, r *Request) ([]byte, error) {
	if err := r.ReadOptionalBody(r.review.GroupVersionKind); err != nil {
		return nil, err
	}
	if len(r.Body.Raw) > largeWrite {
		done, err := p.largeReviews.take(ctx)
		if err != nil {
			return nil, err
		}
		defer done()
	}
	review := r.review.New()
	if err := p.DecodeBody(ctx, r, r.review.GroupVersionKind, review); err != nil {
		return nil, err
	}
	if err := r.review.Answer(ctx, r.Tip.Policy, r.User, r.Key.Namespace, p.whose, review); err != nil {
		return nil, err
	}
	return json.Marshal(review)
}

// whose tells whose token it is, for one of the audiences, or for this API if there are none.
func (p *Pipeline) whose(ctx context.Context, token string, audiences authenticator.Audiences) (*authenticator.Response, bool, error) {
	if len(audiences) == 0 && p.tokens != nil {
		audiences = p.tokens.Audiences()
	}
	return p.authenticator.Token(ctx, token, audiences)
}

