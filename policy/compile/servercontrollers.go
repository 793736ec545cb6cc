package compile

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"stele.dev/stele/policy"
	"stele.dev/stele/schemas"
)

// meetsControllers warns of denies that match the server's own controllers.
func (c *compiler) meetsControllers(f *policy.Form) {
	namespaces := someNamespaces(f)
	for i := range f.Denies {
		d := &f.Denies[i]
		denies, err := policy.IndexDenies(f.Denies[i : i+1])
		if err != nil {
			continue // its exception has an error that is already reported
		}
		var met []string
		var message string
		for _, controller := range policy.ServerControllers {
			verb, kind := deniedBy(&controller, denies, f.Kinds, namespaces)
			if kind == nil {
				continue
			}
			met = append(met, "'"+controller.User+"'")
			if message == "" {
				_, account, _ := strings.Cut(strings.TrimPrefix(controller.User, serviceaccount.ServiceAccountUsernamePrefix), ":")
				message = fmt.Sprintf("it also meets the server's own %s, which then cannot %s %s: %s", account, verb, kind.Resource(), controller.Otherwise)
			}
		}
		if message == "" {
			continue
		}
		exception := fmt.Sprintf("request.userInfo.username in [%s]", strings.Join(met, ", "))
		if d.Unless != nil {
			exception = fmt.Sprintf("(%s) || %s", d.Unless.Text, exception)
		}
		c.Warnings = append(c.Warnings, schemas.Diagnostic{Pos: d.Source, Path: d.ID, Message: message, Hint: fmt.Sprintf("write unless: %q", exception), Lint: "DENY_MEETS_CONTROLLERS"})
	}
}

// deniedBy returns a request of the controller that is denied; "" if there is none.
func deniedBy(s *policy.ServerController, denies *policy.DenyIndex, kinds []schemas.Kind, namespaces []string) (verb string, kind *schemas.Kind) {
	left := maxTried
	for i := range kinds {
		k := &kinds[i]
		if s.Resources != nil && (k.Group != "" || !slices.Contains(s.Resources, k.Plural)) || !k.Namespaced {
			continue
		}
		for _, verb := range s.Verbs {
			for _, namespace := range namespaces {
				r := policy.Request{User: s.User, Groups: policy.ControllerGroups, Verb: verb, IsResource: true,
					Group: k.Group, Version: k.StorageVersion, Resource: k.Plural, Namespace: namespace, Name: "x"}
				if left--; left < 0 {
					return "", nil
				}
				if denied, _ := denies.Decide(&r); denied {
					return verb, k
				}
			}
		}
	}
	return "", nil
}

// maxNamespaces limits the namespaces that a deny is tried in, and maxTried the requests.
const (
	maxNamespaces = 16
	maxTried      = 10_000
)

// someNamespaces returns names that match the bundle's patterns, because an exception may name a
// namespace.
func someNamespaces(f *policy.Form) []string {
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
