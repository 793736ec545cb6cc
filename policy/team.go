package policy

import (
	"slices"

	"stele.dev/stele/schemas"
)

// Team is a team of the bundle, and what the platform lets it rule over and read.
type Team struct {
	Name string `json:"name"`
	// Groups are the API groups whose kinds the team may define, and may match in denies and admission rules; "*" for all.
	Groups Limit `json:"groups"`
	// Namespaces are patterns of the namespaces in which the team may grant roles; "*" for all.
	Namespaces Limit `json:"namespaces"`
	// Reads are the kinds of other API groups that rules and views of the team may read, as plural.group; "*" for all.
	Reads Limit `json:"reads,omitzero"`
}

// Limit is one of the limits of a team.
type Limit struct {
	Values []string         `json:"values"`
	Source schemas.Position `json:"source,omitzero"`
}

// IsZero reports whether the bundle does not have the limit.
func (l Limit) IsZero() bool { return len(l.Values) == 0 && l.Source.IsZero() }

// has reports whether the limit includes a value.
func (l Limit) has(value string) bool {
	return slices.Contains(l.Values, "*") || slices.Contains(l.Values, value)
}

// MayRead reports whether rules and views of the team may read stored objects of a kind.
func (t *Team) MayRead(k *schemas.Kind) bool {
	return t.Groups.has(k.Group) || t.Reads.has(k.Resource())
}
