package reviews

import (
	"context"
	"encoding/json"
	"net/http"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"stele.dev/stele/core/auth/authn"
	"stele.dev/stele/core/auth/tokens"
	"stele.dev/stele/core/call"
	"stele.dev/stele/core/call/negotiate"
	"stele.dev/stele/core/catalog"
	"stele.dev/stele/core/load/cost"
	"stele.dev/stele/core/read"
	"stele.dev/stele/core/write/turns"
)

// Options are the options of [New].
type Options struct {
	Reader        *read.Reader
	Authenticator *authn.Authenticator
	Tokens        *tokens.ServiceAccounts // nil if none are issued
	// Turns limits the large reviews that are answered at once. Reviews have their own turns, because a slow authorizer
	// outside of the policy may answer them.
	Turns turns.Turns
}

type service struct{ Options }

// New returns the virtual resources of all kinds of reviews.
func New(o Options) (rows []*catalog.Resource) {
	v := &service{o}
	for i, r := range Resources() {
		rows = append(rows, &catalog.Resource{
			Resource: r, Object: func() any { return kinds[i].New() }, Builtin: true, Past: catalog.AsToday, Cost: cost.Body,
			Serve: func(ctx context.Context, c *call.Call) error { return v.serve(ctx, c, kinds[i]) },
		})
	}
	return rows
}

// serve answers a review under the policy in force.
func (v *service) serve(ctx context.Context, c *call.Call, kind *Kind) error {
	f, err := negotiate.Plain(c.HTTP)
	if err != nil {
		return err
	}
	text, err := v.answer(ctx, c, kind)
	if err != nil {
		return err
	}
	return c.WriteBody(f, http.StatusCreated, text)
}

// largeReview is the size of a body from which a review takes a turn. A review needs ten times as much memory.
const largeReview = 256 << 10

// answer returns the review in the body, with its status.
func (v *service) answer(ctx context.Context, c *call.Call, kind *Kind) ([]byte, error) {
	if err := c.ReadOptionalBody(kind.GroupVersionKind); err != nil {
		return nil, err
	}
	if len(c.Body.Raw) > largeReview {
		done, err := v.Turns.Take(ctx)
		if err != nil {
			return nil, err
		}
		defer done()
	}
	review := kind.New()
	if err := v.Reader.DecodeBody(ctx, c, kind.GroupVersionKind, review); err != nil {
		return nil, err
	}
	if err := kind.Answer(ctx, c.Tip.Policy, c.User, c.Key.Namespace, v.authenticate, review); err != nil {
		return nil, err
	}
	return json.Marshal(review)
}

// authenticate returns the user of a token, for one of the audiences, or for this API if there are none.
func (v *service) authenticate(ctx context.Context, token string, audiences authenticator.Audiences) (*authenticator.Response, bool, error) {
	if len(audiences) == 0 && v.Tokens != nil {
		audiences = v.Tokens.Audiences()
	}
	return v.Authenticator.Token(ctx, token, audiences)
}
