// This file issues tokens of service accounts: the subresource serviceaccounts/token. A token is not stored,
// because an event with it would be a credential. Its ID is in the program's log, and in all events written with it.

package reviews

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"stele.dev/stele/core/auth/tokens"
	"stele.dev/stele/core/call"
	"stele.dev/stele/core/call/negotiate"
	"stele.dev/stele/core/catalog"
	"stele.dev/stele/core/catalog/discovery"
	"stele.dev/stele/core/read"
	"stele.dev/stele/core/status"
)

type tokenRequests struct {
	reader *read.Reader
	tokens *tokens.ServiceAccounts
	logger *slog.Logger
}

// NewTokenRequests returns the virtual resource of token requests.
func NewTokenRequests(rd *read.Reader, t *tokens.ServiceAccounts, logger *slog.Logger) *catalog.Resource {
	v := &tokenRequests{rd, t, logger}
	return &catalog.Resource{
		Resource: discovery.Resource{Version: "v1", APIResource: metav1.APIResource{
			Name: "serviceaccounts/token", Namespaced: true, Group: tokens.Kind.Group, Version: tokens.Kind.Version, Kind: tokens.Kind.Kind, Verbs: metav1.Verbs{"create"},
		}},
		Object: func() any { return authenticationv1.TokenRequest{} }, Builtin: true, Past: catalog.Refuses, Cost: estimateTokenRequest, Route: routeTokenRequest, Serve: v.serve,
	}
}

// estimateTokenRequest returns the time of a token: a signature with a key of RSA.
func estimateTokenRequest(*call.Call) time.Duration { return time.Millisecond }

// routeTokenRequest checks the path and the verb: the only verb is create, for a named account.
func routeTokenRequest(c *call.Call) error {
	i := c.Info
	if i.Namespace == "" || i.Name == "" || len(i.Parts) > 3 {
		return status.NotServed(i.Verb, c.Resource())
	}
	if i.Verb != "create" {
		return status.MethodNotAllowed(i.Verb)
	}
	return nil
}

// serve answers with a token.
func (v *tokenRequests) serve(ctx context.Context, c *call.Call) error {
	f, err := negotiate.Plain(c.HTTP)
	if err != nil {
		return err
	}
	asked := &authenticationv1.TokenRequest{}
	if err := v.reader.DecodeBody(ctx, c, tokens.Kind, asked); err != nil {
		return err
	}
	if asked.Namespace != "" && asked.Namespace != c.Key.Namespace {
		return status.OtherNamespace()
	}
	if err := c.RequireActiveNamespace(); err != nil {
		return err
	}
	issued, err := v.tokens.Issue(c.Tip.Objects, c.Key.Namespace, c.Key.Name, asked, c.Dry())
	if err != nil {
		return err
	}
	for _, w := range issued.Warnings {
		c.Warn(w)
	}
	text, err := json.Marshal(asked)
	if err != nil {
		return err
	}
	if !c.Dry() {
		v.logger.Info("a token was issued", "auditID", c.AuditID, "user", c.User.GetName(), "serviceAccount", c.Key.Namespace+"/"+c.Key.Name,
			"authentication.kubernetes.io/issued-credential-id", issued.CredentialID)
	}
	return c.WriteBody(f, http.StatusCreated, text)
}
