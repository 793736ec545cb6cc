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
	i := r.info
	r.key = commit.Key{Namespace: i.Namespace}
	r.key.Group, r.key.Resource = kind.Group, kind.Plural
	if i.Subresource != "" || i.Name != "" || kind.Namespaced != (i.Namespace != "") {
		return status.NotServed(i.Verb, r.resource())
	}
	if i.Verb != "create" {
		return apierrors.NewMethodNotSupported(r.resource(), i.Verb)
	}
	r.write, r.review = false, kind
	return nil
}

// answerReview answers what a client asks about access, under the policy in force.
func (p *Pipeline) answerReview(ctx context.Context, r *Request) error {
	f, err := negotiate.Plain(r.http)
	if err != nil {
		return err
	}
	text, err := p.reviewed(ctx, r)
	if err != nil {
		return err
	}
	return p.writeBody(r, f, http.StatusCreated, text)
}

// reviewed is a review with its answer. Anybody may ask, and a large one takes ten times its size: so these take turns,
// of their own, as it may be somebody else who answers, and slowly.
func (p *Pipeline) reviewed(ctx context.Context, r *Request) ([]byte, error) {
	if err := r.readReviewBody(r.review.GroupVersionKind); err != nil {
		return nil, err
	}
	if len(r.body.raw) > largeWrite {
		done, err := p.largeReviews.take(ctx)
		if err != nil {
			return nil, err
		}
		defer done()
	}
	review := r.review.New()
	if err := p.readReview(ctx, r, r.review.GroupVersionKind, review); err != nil {
		return nil, err
	}
	if err := r.review.Answer(ctx, r.tip.Policy, r.user, r.key.Namespace, p.whose, review); err != nil {
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

// readReview decodes the body, which is to be of a kind that is created and not stored, and
// sees to it that what is asked is asked of the present.
func (p *Pipeline) readReview(ctx context.Context, r *Request, kind schema.GroupVersionKind, into interface{ GetObjectKind() schema.ObjectKind }) error {
	if err := r.readReviewBody(kind); err != nil {
		return err
	}
	if err := p.see(ctx, r, ""); err != nil {
		return err
	}
	strict, err := kjson.UnmarshalStrict(r.body.raw, into)
	if err != nil {
		return unfit(kind, err)
	}
	in := into.GetObjectKind().GroupVersionKind()
	if in.Version != "" && in.GroupVersion() != kind.GroupVersion() {
		return otherVersion(in.GroupVersion().String(), kind.GroupVersion())
	}
	if in.Kind != "" && in.Kind != kind.Kind {
		return unfit(kind, errors.New("it is a "+in.String()))
	}
	return r.heed(strict, func(err error) error { return unfit(kind, err) })
}

// readReviewBody reads the body and the options once.
func (r *Request) readReviewBody(kind schema.GroupVersionKind) error {
	if r.body != nil {
		return nil
	}
	b, err := r.readJSON(kind)
	if err != nil {
		return err
	}
	if err := b.readOptions(r); err != nil {
		return err
	}
	r.body = b
	return nil
}

// readJSON reads the body, which is to be of a kind, as JSON.
func (r *Request) readJSON(kind schema.GroupVersionKind) (*body, error) {
	mediaType, err := negotiate.Body(r.http)
	if err != nil {
		return nil, err
	}
	b := &body{mediaType: mediaType}
	if b.raw, err = readLimited(r.http); err != nil {
		return nil, err
	}
	if b.raw, _, err = wire.Decode(mediaType, b.raw, kind); err != nil {
		return nil, unfit(kind, err)
	}
	return b, nil
}

// unfit is the answer to a body that is not of a kind.
func unfit(kind schema.GroupVersionKind, err error) error {
	return apierrors.NewBadRequest(kind.Kind + " in version \"" + kind.Version + "\" cannot be handled as a " + kind.Kind + ": " + err.Error())
}
