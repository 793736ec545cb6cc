// Package servercontrollers knows the server's own controllers, and which denies stop them.
package servercontrollers

import (
	"fmt"
	"slices"
	"strings"

	"stele.dev/stele/policy"
)

// All are the users of the server's own controllers, and their requests. If a deny
// matches one, its work stays undone: for example, a namespace stays in Terminating. They are
// members of system:masters, but denies come first.
var All = []Controller{
	// It deletes objects of definitions that the API brought, which no deny of a bundle can name.
	{"system:serviceaccount:kube-system:customresourcedefinition-controller", []string{"list", "deletecollection"}, []string{}, "a definition of the API that is deleted while there are any stays"},
	{"system:serviceaccount:kube-system:namespace-controller", []string{"list", "delete", "deletecollection"}, nil, "a namespace that has any stays in Terminating"},
	{"system:serviceaccount:kube-system:generic-garbage-collector", []string{"get", "list", "watch", "delete", "patch"}, nil, "what owned ones are deleted with stays"},
	{"system:serviceaccount:kube-system:resourcequota-controller", []string{"get", "update"}, []string{"resourcequotas"}, "quotas do not show what is used"},
	{"system:serviceaccount:kube-system:service-account-controller", []string{"create", "list", "watch"}, []string{"serviceaccounts"}, "namespaces get no service account"},
	{"system:serviceaccount:kube-system:tokens-controller", []string{"get", "list", "watch", "patch", "delete"}, []string{"secrets"}, "secrets get no tokens"},
}

// Controller is a user, the verbs that it needs, and the resources of the core group; nil
// means all resources.
type Controller struct {
	User      string
	Verbs     []string
	Resources []string
	// Otherwise says what happens if it is denied.
	Otherwise string
}

// Is reports whether a user is one of the server's own controllers.
func Is(user string) bool {
	return slices.ContainsFunc(All, func(c Controller) bool { return c.User == user })
}

// Groups are the groups of the server's controllers. The caller must not change them.
var Groups = []string{"system:serviceaccounts", "system:serviceaccounts:kube-system", policy.MastersGroup, "system:authenticated"}

// Denied is a controller of the server that a deny stops.
type Denied struct {
	*Controller
	// Verbs are those of its requests that are denied, Resources the kinds they are denied for, as
	// plural.group.
	Verbs, Resources []string
	// Some says that none of them is denied for all objects: the exception of the deny depends on the object, and may hold for others.
	Some bool
}

// DeniedBy returns the server's controllers that a deny stops, with what they cannot do any
// more. It tries each request of each controller for each namespaced kind, in some namespaces that the
// bundle names. An exception that depends on the object spares no controller: there may be objects for which it does not hold. The
// error is that of the deny's exception.
func DeniedBy(f *policy.Form, d *policy.Deny) (list []Denied, err error) {
	index, err := policy.IndexDenies([]policy.Deny{*d})
	if err != nil {
		return nil, err
	}
	namespaces := Namespaces(f)
	for i := range All {
		if met := deniedTo(f, &All[i], index, namespaces); met != nil {
			list = append(list, *met)
		}
	}
	return list, nil
}

// deniedTo returns what a controller is denied; nil if that is nothing.
func deniedTo(f *policy.Form, c *Controller, denies *policy.DenyIndex, namespaces []string) *Denied {
	met := Denied{Controller: c, Some: true}
	left := maxTried
	for i := range f.Kinds {
		k := &f.Kinds[i]
		if c.Resources != nil && (k.Group != "" || !slices.Contains(c.Resources, k.Plural)) || !k.Namespaced {
			continue
		}
		denied := false
		for _, verb := range c.Verbs {
			for _, namespace := range namespaces {
				if left--; left < 0 {
					break
				}
				r := policy.Request{User: c.User, Groups: Groups, Verb: verb, IsResource: true,
					Group: k.Group, Version: k.StorageVersion, Resource: k.Plural, Namespace: namespace, Name: "x"}
				is, depends := denies.Decide(&r)
				if !is && !depends {
					continue
				}
				met.Some = met.Some && !is
				if denied = true; !slices.Contains(met.Verbs, verb) {
					met.Verbs = append(met.Verbs, verb)
				}
				break
			}
		}
		if denied {
			met.Resources = append(met.Resources, k.Resource())
		}
	}
	if len(met.Verbs) == 0 {
		return nil
	}
	return &met
}

// Which says of which objects requests are denied: " for which the exception of the deny does not hold", or nothing for all.
func (d *Denied) Which() string {
	if d.Some {
		return " for which the exception of the deny does not hold"
	}
	return ""
}

// ExceptionFor returns an exception for a deny that spares the controllers.
func ExceptionFor(d *policy.Deny, met []Denied) string {
	names := make([]string, len(met))
	for i := range met {
		names[i] = "'" + met[i].User + "'"
	}
	exception := fmt.Sprintf("request.userInfo.username in [%s]", strings.Join(names, ", "))
	if d.Unless != nil {
		exception = fmt.Sprintf("(%s) || %s", d.Unless.Text, exception)
	}
	return exception
}

// maxNamespaces limits the namespaces that a deny is tried in, and maxTried the requests.
const (
	maxNamespaces = 16
	maxTried      = 10_000
)

// Namespaces returns names that match the bundle's patterns, because an exception may name a
// namespace.
func Namespaces(f *policy.Form) []string {
	names := []string{"default"}
	for _, b := range f.Bindings {
		for _, pattern := range b.Namespaces {
			if name := strings.ReplaceAll(pattern, "*", "x"); !slices.Contains(names, name) && len(names) < maxNamespaces {
				names = append(names, name)
			}
		}
	}
	return names
}
