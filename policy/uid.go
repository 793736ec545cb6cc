// This file makes the UIDs of objects that the server renders from the policy.

package policy

import (
	"strings"

	"github.com/google/uuid"
)

// UIDOf returns the UID of an object. It is the same on every replica and under every policy.
func UIDOf(group, resource, namespace, name string) string {
	return uuid.NewSHA1(uuid.NameSpaceURL, []byte(strings.Join([]string{group, resource, namespace, name}, "/"))).String()
}
