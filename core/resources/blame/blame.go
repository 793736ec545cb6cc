package blame

import (
	"stele.dev/stele/core/catalog/discovery"
)

// Group, Version, Plural and Kind name the API of blames.
const (
	Group   = "log.stele.dev"
	Version = "v1"
	Plural  = "blames"
	Kind    = "Blame"
)

// Resource returns the discovery entry of blames.
func Resource() discovery.Resource {
	return discovery.NewResource(Group, Version, Kind, Plural, "create")
}

// These are the types of events that gave a field its value.
const (
	Created   = "Created"   // the user created the object
	Updated   = "Updated"   // the user changed the field
	Mutated   = "Mutated"   // mutating admission, in a request of the user
	Defaulted = "Defaulted" // the schema's default; the request did not set the field
	Rendered  = "Rendered"  // a default that a new policy added to a stored object
	Server    = "Server"    // the server set the field
	Earlier   = "Earlier"   // the value is older than the kept history of the kind
)

// Notes are shown to users.
const (
	ByServer     = "set by the server"
	BeforeWindow = "before the window"
)
