package policy

import "slices"

// ServerControllers are the users of the server's own controllers, and their requests. If a deny
// matches one, its work stays undone: for example, a namespace stays in Terminating. They are
// members of system:masters, but denies come first.
var ServerControllers = []ServerController{
	{"system:serviceaccount:kube-system:namespace-controller", []string{"list", "delete", "deletecollection"}, nil, "a namespace that has any stays in Terminating"},
	{"system:serviceaccount:kube-system:generic-garbage-collector", []string{"get", "list", "watch", "delete", "patch"}, nil, "what owned ones are deleted with stays"},
	{"system:serviceaccount:kube-system:service-account-controller", []string{"create", "list", "watch"}, []string{"serviceaccounts"}, "namespaces get no service account"},
	{"system:serviceaccount:kube-system:tokens-controller", []string{"get", "list", "watch", "patch", "delete"}, []string{"secrets"}, "secrets get no tokens"},
}

// ServerController is a user, the verbs that it needs, and the resources of the core group; nil
// means all resources.
type ServerController struct {
	User      string
	Verbs     []string
	Resources []string
	// Otherwise says what happens if it is denied.
	Otherwise string
}

// IsServerController reports whether a user is one of the server's own controllers.
func IsServerController(user string) bool {
	return slices.ContainsFunc(ServerControllers, func(c ServerController) bool { return c.User == user })
}

// ControllerGroups are the groups of the server's controllers. The caller must not change them.
var ControllerGroups = []string{"system:serviceaccounts", "system:serviceaccounts:kube-system", MastersGroup, "system:authenticated"}
