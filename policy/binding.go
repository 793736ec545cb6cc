package policy

import (
	"slices"
)

// Everywhere reports whether the binding grants its role in all namespaces and for cluster-scoped
// requests.
func (b *Binding) Everywhere() bool { return slices.Contains(b.Namespaces, "*") }

// In reports whether the binding grants its role in a namespace.
func (b *Binding) In(namespace string) bool {
	return inNamespace(b.Namespaces, namespace)
}
