package objects

// Parser returns a function that makes objects of a kind from their payloads, as a state has
// them for which that is the kind: to be put into a [Change] that is made after the fact. It
// is safe for concurrent use.
func (k Kind) Parser() func(payload []byte, revision uint64) (*Object, error) {
	kind := newKind(k)
	return func(payload []byte, revision uint64) (*Object, error) { return newObject(kind, payload, revision) }
}

// SameJSON tells whether two objects are shown alike.
func (o *Object) SameJSON(other *Object) bool { return string(o.JSON) == string(other.JSON) }
