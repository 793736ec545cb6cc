package call

import (
	"net/http"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"
	"stele.dev/stele/policy"
)

// Serves reports whether the kind is served at the request's path. A request that was authorized for a namespace must
// not reach objects outside of it. A namespace object belongs to the namespace of its own name.
func Serves(i *request.RequestInfo, kind *policy.Version) bool {
	if len(i.Parts) > 3 || !kind.Serves(i.Subresource) {
		return false
	}
	if !kind.Kind.Namespaced {
		return i.Namespace == "" || i.APIGroup == "" && i.Resource == "namespaces" && i.Namespace == i.Name
	}
	// Lists and watches can span all namespaces, also with a name from a field selector.
	return i.Namespace != "" || i.Verb == "list" || i.Verb == "watch" || (i.Verb == "create" || i.Verb == "deletecollection") && kind.Kind.Builtin
}

// Allows reports whether the request's path supports its verb.
func Allows(i *request.RequestInfo, kind *policy.Version) bool {
	if i.Subresource == Finalize {
		return i.Verb == "update"
	}
	if kind.Kind.View != nil && i.Verb != "get" && i.Verb != "list" && i.Verb != "watch" {
		return false // rows follow from objects
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

// Finalize is the subresource of namespaces that changes spec.finalizers.
const Finalize = "finalize"

var requestInfo = &request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}

// RequestInfo parses the method and path of a request.
func RequestInfo(r *http.Request) (*request.RequestInfo, error) { return requestInfo.NewRequestInfo(r) }

// PublicPath reports whether a path shows only the health or version of the server. It is served without a policy.
func PublicPath(path string) bool {
	switch path {
	case "/healthz", "/livez", "/readyz", "/version":
		return true
	}
	return false
}
