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
	i := r.Info
	r.Key = commit.Key{Namespace: i.Namespace, Name: i.Name}
	r.Key.Resource = accountsResource
	if i.Namespace == "" || i.Name == "" || len(i.Parts) > 3 {
		return status.NotServed(i.Verb, r.Resource())
	}
	if i.Verb != "create" {
		return status.MethodNotAllowed(i.Verb)
	}
	r.Write, r.issues = false, true
	return nil
}

// issue answers with a token of a service account.
func (p *Pipeline) issue(ctx context.Context, r *Request) error {
	if p.tokens == nil {
		return status.NotServed(r.Info.Verb, r.Resource())
	}
	f, err := negotiate.Plain(r.HTTP)
	if err != nil {
		return err
	}
	asked := &authenticationv1.TokenRequest{}
	if err := p.DecodeBody(ctx, r, tokens.Kind, asked); err != nil {
		return err
	}
	if asked.Namespace != "" && asked.Namespace != r.Key.Namespace {
		return apierrors.NewBadRequest("the namespace of the provided object does not match the namespace sent on the request")
	}
	if err := r.RequireActiveNamespace(); err != nil {
		return err
	}
	issued, err := p.tokens.Issue(r.Tip.Objects, r.Key.Namespace, r.Key.Name, asked, r.Dry())
	if err != nil {
		return err
	}
	for _, w := range issued.Warnings {
		r.Warn(w)
	}
	text, err := json.Marshal(asked)
	if err != nil {
		return err
	}
	if !r.Dry() {
		p.logger.Info("a token was issued", "auditID", r.AuditID, "user", r.User.GetName(), "serviceAccount", r.Key.Namespace+"/"+r.Key.Name,
			"authentication.kubernetes.io/issued-credential-id", issued.CredentialID)
	}
	return r.WriteBody(f, http.StatusCreated, text)
}

