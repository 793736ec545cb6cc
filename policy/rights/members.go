// This file says what is certain of the users that a subject of a rule names: who else they are, and who they are not.

package rights

import (
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"stele.dev/stele/policy"
)

// Implied returns the groups that a subject is certainly in.
func Implied(s policy.Subject) []policy.Subject {
	const unauthenticated, accounts = "system:unauthenticated", "system:serviceaccounts"
	authenticated := policy.Subject{Group: "system:authenticated"}
	switch {
	case s.Group == unauthenticated, s == authenticated:
		return nil
	case s.User == "system:anonymous":
		return []policy.Subject{{Group: unauthenticated}}
	case strings.HasPrefix(s.Group, accounts+":"):
		return []policy.Subject{{Group: accounts}, authenticated}
	case strings.HasPrefix(s.User, serviceaccount.ServiceAccountUsernamePrefix):
		if namespace, name, ok := strings.Cut(strings.TrimPrefix(s.User, serviceaccount.ServiceAccountUsernamePrefix), ":"); ok && name != "" {
			return []policy.Subject{{Group: accounts}, {Group: accounts + ":" + namespace}, authenticated}
		}
	}
	return []policy.Subject{authenticated}
}

// Includes reports whether all users of one subject are certainly users of another. The user and the group "*" are everybody,
// and the service account "*" is all service accounts of its namespace.
func Includes(wide, narrow policy.Subject) bool {
	if wide == narrow || wide.User == "*" || wide.Group == "*" || slices.Contains(Implied(narrow), wide) {
		return true
	}
	prefix, all := strings.CutSuffix(wide.User, ":*")
	return all && strings.HasPrefix(prefix, serviceaccount.ServiceAccountUsernamePrefix) && strings.HasPrefix(narrow.User, prefix+":")
}

// Everyone returns the subject, or those that are together everybody if the subject is "*".
func Everyone(s policy.Subject) []policy.Subject {
	if s.User == "*" || s.Group == "*" {
		return []policy.Subject{{Group: "system:authenticated"}, {Group: "system:unauthenticated"}}
	}
	return []policy.Subject{s}
}

// Common returns the narrower one of two subjects, or the second; false if nobody is certainly both. Somebody may be in any two
// groups, but nobody both is authenticated and is not, or is two users.
func Common(a, b policy.Subject) (policy.Subject, bool) {
	switch {
	case Includes(b, a):
		return a, true
	case Includes(a, b):
		return b, true
	case a.User != "" && b.User != "":
		return b, false
	}
	const unauthenticated = "system:unauthenticated"
	anonymous := func(s policy.Subject) bool { return s.Group == unauthenticated || s.User == "system:anonymous" }
	if anonymous(a) != anonymous(b) {
		return b, false
	}
	for _, x := range [][2]policy.Subject{{a, b}, {b, a}} {
		if group := x[1].Group; group == serviceaccount.AllServiceAccountsGroup || strings.HasPrefix(group, serviceaccount.ServiceAccountGroupPrefix) {
			namespace, known := namespaceOf(x[0]) // of which b is not, or it would include a
			return b, !known || namespace != "" && x[1].Group == serviceaccount.AllServiceAccountsGroup
		}
	}
	return b, true
}

// namespaceOf returns the namespace of the service accounts that a subject is; false if it may be others.
func namespaceOf(s policy.Subject) (string, bool) {
	if rest, ok := strings.CutPrefix(s.User, serviceaccount.ServiceAccountUsernamePrefix); ok {
		namespace, _, _ := strings.Cut(rest, ":")
		return namespace, true
	}
	if s.User != "" {
		return "", true // no service account
	}
	return strings.CutPrefix(s.Group, serviceaccount.ServiceAccountGroupPrefix)
}
