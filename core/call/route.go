package call

import (
	"net/http"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"
	"stele.dev/stele/core/commit"
	"stele.dev/stele/policy"
)

// served tells whether the kind has a place at the request's path. What a request was
// authorized in a namespace for must not reach out of it: for a namespace itself, that
// is its own name.
func Serves(i *request.RequestInfo, kind *policy.Version) bool {
	switch {
	case len(i.Parts) > 3:
		return false
	case kind.Serves(i.Subresource):
	case i.Subresource == Finalize && i.APIGroup == "" && i.Resource == commit.Namespaces.Resource:
	default:
		return false
	}
	if !kind.Kind.Namespaced {
		return i.Namespace == "" || i.APIGroup == "" && i.Resource == "namespaces" && i.Namespace == i.Name
	}
	// Across all namespaces there are lists and watches; a field selector can have
	// given them a name.
	return i.Namespace != "" || i.Verb == "list" || i.Verb == "watch" || (i.Verb == "create" || i.Verb == "deletecollection") && kind.Kind.Builtin
}

// allowed tells whether what is at the request's path takes its method.
func Allows(i *request.RequestInfo, kind *policy.Version) bool {
	if i.Subresource == Finalize {
		return i.Verb == "update"
	}
	switch i.Verb {
	case "get":
		return i.Name != ""
	case "list", "watch":
		return i.Subresource == ""
	case "deletecollection":
		return i.Subresource == "" && !kind.NoDeleteCollection && (i.Namespace != "" || !kind.Kind.Namespaced)
	case "create":
		return i.Name == "" && (i.Namespace != "" || !kind.Kind.Namespaced)
	case "update", "patch":
		return i.Name != ""
	case "delete":
		return i.Name != "" && i.Subresource == ""
	}
	return false
}

// finalize is the subresource that changes spec.finalizers.
const Finalize = "finalize"

var requestInfo = &request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}

// RequestInfo returns what a request asks for, by its method and path.
func RequestInfo(r *http.Request) (*request.RequestInfo, error) { return requestInfo.NewRequestInfo(r) }

// PublicPath reports whether a path only says whether the server is there, whatever its state.
func PublicPath(path string) bool {
	switch path {
	case "/healthz", "/livez", "/readyz", "/version":
		return true
	}
	return false
}
