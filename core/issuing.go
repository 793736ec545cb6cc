package core

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/request"
	"stele.dev/stele/core/commit"
	"stele.dev/stele/core/discovery"
	"stele.dev/stele/core/negotiate"
	"stele.dev/stele/core/openapi"
	"stele.dev/stele/core/status"
	"stele.dev/stele/core/tokens"
	"stele.dev/stele/policy"
)

// The subresource token of service accounts takes requests for tokens. What it gives out is
// not kept: an event of it would be the credential, or a change that changes nothing. It is
// known by its id, which is in the program's messages here, and in all events that come of it.

const (
	accountsResource = "serviceaccounts"
	tokenSubresource = "token"
)

func isTokens(i *request.RequestInfo) bool {
	return i.APIGroup == "" && i.APIVersion == "v1" && i.Resource == accountsResource && i.Subresource == tokenSubresource
}

// ofPolicy is what discovery lists of the policy's kinds, with the tokens of service accounts.
func (p *Pipeline) ofPolicy(of *policy.Policy) []discovery.Resource {
	resources := discovery.FromPolicy(of)
	for i := range resources {
		if p.tokens == nil {
			break
		}
		if r := &resources[i]; r.Group == "" && r.Name == accountsResource {
			r.Subresources = append(r.Subresources, metav1.APIResource{
				Name: accountsResource + "/" + tokenSubresource, Namespaced: true,
				Group: tokens.Kind.Group, Version: tokens.Kind.Version, Kind: tokens.Kind.Kind, Verbs: metav1.Verbs{"create"},
			})
		}
	}
	return resources
}

// tokenRequests are what OpenAPI says of the subresource.
func (p *Pipeline) tokenRequests() []openapi.Resource {
	if p.tokens == nil {
		return nil
	}
	request := describe(discovery.Resource{Group: tokens.Kind.Group, Version: tokens.Kind.Version, APIResource: metav1.APIResource{
		Name: tokenSubresource, Namespaced: true, Kind: tokens.Kind.Kind, Verbs: metav1.Verbs{"create"},
	}}, authenticationv1.TokenRequest{}, true)
	request.Of = schema.GroupVersionResource{Version: "v1", Resource: accountsResource}
	return []openapi.Resource{request}
}

// allowedTokens tells whether there are tokens at the request's path, and whether it takes the
// method. To create one changes nothing that is kept.
func (r *Request) allowedTokens() error {
	i := r.info
	r.key = commit.Key{Namespace: i.Namespace, Name: i.Name}
	r.key.Resource = accountsResource
	if i.Namespace == "" || i.Name == "" || len(i.Parts) > 3 {
		return status.NotServed(i.Verb, r.resource())
	}
	if i.Verb != "create" {
		return methodNotAllowed(i.Verb)
	}
	r.write, r.issues = false, true
	return nil
}

// issue answers with a token of a service account.
func (p *Pipeline) issue(ctx context.Context, r *Request) error {
	if p.tokens == nil {
		return status.NotServed(r.info.Verb, r.resource())
	}
	f, err := negotiate.Plain(r.http)
	if err != nil {
		return err
	}
	asked := &authenticationv1.TokenRequest{}
	if err := p.readReview(ctx, r, tokens.Kind, asked); err != nil {
		return err
	}
	if asked.Namespace != "" && asked.Namespace != r.key.Namespace {
		return apierrors.NewBadRequest("the namespace of the provided object does not match the namespace sent on the request")
	}
	if err := r.namespaceTakesNew(); err != nil {
		return err
	}
	issued, err := p.tokens.Issue(r.tip.Objects, r.key.Namespace, r.key.Name, asked, r.dry())
	if err != nil {
		return err
	}
	for _, w := range issued.Warnings {
		r.warn(w)
	}
	text, err := json.Marshal(asked)
	if err != nil {
		return err
	}
	if !r.dry() {
		p.logger.Info("a token was issued", "auditID", r.auditID, "user", r.user.GetName(), "serviceAccount", r.key.Namespace+"/"+r.key.Name,
			"authentication.kubernetes.io/issued-credential-id", issued.CredentialID)
	}
	return p.writeBody(r, f, http.StatusCreated, text)
}

// issuerKnown tells whether the request can find out who issues tokens. The keys are those of
// now.
func (p *Pipeline) issuerKnown(r *Request) bool {
	return p.tokens != nil && r.moment == nil && p.tokens.Discoverable() == nil
}

// answerIssuer answers who wants to verify tokens: who issues them, and with which keys. It
// tells whether the path is about that.
func (p *Pipeline) answerIssuer(r *Request) (bool, error) {
	if !p.issuerKnown(r) {
		return false, nil
	}
	var document func() ([]byte, error)
	contentType := tokens.ConfigurationType
	switch strings.TrimSuffix(r.http.URL.Path, "/") {
	case tokens.ConfigurationPath:
		document = p.tokens.Configuration
	case tokens.KeySetPath:
		document, contentType = p.tokens.KeySet, tokens.KeySetType
	default:
		return false, nil
	}
	text, err := document()
	if err != nil {
		return true, err
	}
	r.w.Header().Set("Cache-Control", fmt.Sprintf("public, max-age=%d", tokens.MaxAge))
	return true, p.send(r, contentType, http.StatusOK, text)
}
