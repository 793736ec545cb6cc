package policy

import (
	"slices"
)

// Everywhere tells whether the binding grants its role in every namespace, and outside
// of namespaces.
func (b *Binding) Everywhere() bool { return slices.Contains(b.Namespaces, "*") }

// In tells whether the binding grants its role in a namespace.
func (b *Binding) In(namespace string) bool {
	return inNamespace(b.Namespaces, namespace)
}
