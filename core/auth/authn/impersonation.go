package authn

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
)

// Impersonates reports whether a request has headers that name another user.
func Impersonates(h http.Header) bool {
	for name := range h {
		if name == authenticationv1.ImpersonateUserHeader || name == authenticationv1.ImpersonateGroupHeader ||
			name == authenticationv1.ImpersonateUIDHeader || strings.HasPrefix(name, authenticationv1.ImpersonateUserExtraHeaderPrefix) {
			return true
		}
	}
	return false
}

// Impersonate returns the user that the impersonation headers name, once the authority has allowed the requester each
// part of it. Its error is the refusal, with its Status. The rules and the messages are those of WithImpersonation in
// k8s.io/apiserver/pkg/endpoints/filters/impersonation, whose package imports all clients of client-go.
func Impersonate(ctx context.Context, requester user.Info, h http.Header, authority authorizer.UnconditionalAuthorizer) (user.Info, error) {
	parts, err := namedParts(h)
	if err != nil || len(parts) == 0 {
		return requester, err
	}
	as := &user.DefaultInfo{Groups: []string{}, Extra: map[string][]string{}}
	for _, part := range parts {
		asked := &authorizer.AttributesRecord{
			User: requester, Verb: "impersonate", Namespace: part.Namespace, Name: part.Name, ResourceRequest: true,
		}
		if part.APIVersion != "" {
			asked.APIGroup, asked.APIVersion = authenticationv1.SchemeGroupVersion.Group, authenticationv1.SchemeGroupVersion.Version
		}
		switch part.Kind {
		case "ServiceAccount":
			asked.Resource = "serviceaccounts"
			as.Name = serviceaccount.MakeUsername(part.Namespace, part.Name)
			if len(h[authenticationv1.ImpersonateGroupHeader]) == 0 {
				as.Groups = serviceaccount.MakeGroupNames(part.Namespace)
			}
		case "User":
			asked.Resource, as.Name = "users", part.Name
		case "Group":
			asked.Resource, as.Groups = "groups", append(as.Groups, part.Name)
		case "UserExtra":
			asked.Resource, asked.Subresource = "userextras", part.FieldPath
			as.Extra[part.FieldPath] = append(as.Extra[part.FieldPath], part.Name)
		case "UID":
			asked.Resource, as.UID = "uids", part.Name
		}
		if decision, reason, err := authority.Authorize(ctx, asked); err != nil || decision != authorizer.DecisionAllow {
			return nil, responsewriters.ForbiddenStatusError(asked, reason)
		}
	}
	as.Groups = withAuthenticated(as.Name, as.Groups)
	return as, nil
}

// withAuthenticated adds the group of all authenticated users, or of all others, unless the groups tell it.
func withAuthenticated(name string, groups []string) []string {
	switch {
	case slices.Contains(groups, user.AllUnauthenticated):
		return groups
	case name == user.Anonymous:
		return append(groups, user.AllUnauthenticated)
	case slices.Contains(groups, user.AllAuthenticated):
		return groups
	}
	return append(groups, user.AllAuthenticated)
}

// namedParts returns the parts of a user that the impersonation headers name. An object reference is what upstream has
// for a part; FieldPath is the key of extra.
func namedParts(h http.Header) (parts []corev1.ObjectReference, err error) {
	name := h.Get(authenticationv1.ImpersonateUserHeader)
	if name != "" {
		if namespace, account, err := serviceaccount.SplitUsername(name); err == nil {
			parts = append(parts, corev1.ObjectReference{Kind: "ServiceAccount", Namespace: namespace, Name: account})
		} else {
			parts = append(parts, corev1.ObjectReference{Kind: "User", Name: name})
		}
	}
	for _, group := range h[authenticationv1.ImpersonateGroupHeader] {
		parts = append(parts, corev1.ObjectReference{Kind: "Group", Name: group})
	}
	version, extra := authenticationv1.SchemeGroupVersion.String(), false
	for header, values := range h {
		if key, found := strings.CutPrefix(header, authenticationv1.ImpersonateUserExtraHeaderPrefix); found {
			extra = true
			key = strings.ToLower(key)
			if decoded, err := url.PathUnescape(key); err == nil {
				key = decoded
			}
			for _, value := range values {
				parts = append(parts, corev1.ObjectReference{Kind: "UserExtra", APIVersion: version, Name: value, FieldPath: key})
			}
		}
	}
	if uid := h.Get(authenticationv1.ImpersonateUIDHeader); uid != "" {
		parts = append(parts, corev1.ObjectReference{Kind: "UID", APIVersion: version, Name: uid})
	}
	if name == "" && (len(parts) > 0 || extra) {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("requested %v without impersonating a user", parts))
	}
	return parts, nil
}
