package policy

import (
	"strings"

	"github.com/google/uuid"
)

// ObjectUID returns the UID of an object that the server renders from the policy. It is the same on every replica and under
// every policy.
func ObjectUID(group, resource, namespace, name string) string {
	return uuid.NewSHA1(uuid.NameSpaceURL, []byte(strings.Join([]string{group, resource, namespace, name}, "/"))).String()
}
