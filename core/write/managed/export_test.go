package managed

import "sigs.k8s.io/structured-merge-diff/v6/typed"

// Type is the type of the objects.
func (f *Fields) Type() typed.ParseableType { return f.merge }
