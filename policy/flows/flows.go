// Package flows classifies requests by the flow schemas of a policy: which flow a request is part of, and which priority
// level it takes seats of. The rules are those of API priority and fairness in Kubernetes (KEP-1040).
package flows

import (
	"slices"

	"stele.dev/stele/policy"
)

// Level is a priority level in force.
type Level struct {
	policy.PriorityLevel
	// Exempt is set if requests of the level never wait and are never refused.
	Exempt bool
	// Builtin is set if the bundle does not define the level.
	Builtin bool
}

// Schema is a flow schema in force.
type Schema struct {
	policy.FlowSchema
	// Level is the priority level that the schema names.
	Level *Level
	// Builtin is set if the bundle does not define the schema.
	Builtin bool
}

// Distinguish returns what tells apart the flows of a schema: the user, the namespace, or "" if all matching requests are
// one flow.
func (s *Schema) Distinguish(r *policy.Request) string {
	switch s.Distinguisher {
	case "ByUser":
		return r.User
	case "ByNamespace":
		return r.Namespace
	}
	return ""
}

// Table holds the flow schemas and priority levels of one policy, with those that every policy has. It is immutable and
// safe for concurrent use.
type Table struct {
	schemas []*Schema // by precedence, then name
	levels  []*Level  // by name
	last    *Schema   // of requests that no schema matches
}

// New returns the table of a policy.
func New(f *policy.Flow) *Table {
	t := &Table{}
	exempt, rest := &Level{PriorityLevel: policy.PriorityLevel{Name: "exempt"}, Exempt: true, Builtin: true},
		&Level{PriorityLevel: policy.PriorityLevel{Name: "catch-all", NominalConcurrencyShares: 5}, Builtin: true}
	t.levels = []*Level{exempt, rest}
	for i := range f.PriorityLevels {
		t.levels = append(t.levels, &Level{PriorityLevel: f.PriorityLevels[i]})
	}
	t.schemas = append(t.schemas, &Schema{FlowSchema: policy.FlowSchema{Name: "exempt", MatchingPrecedence: 1, PriorityLevel: "exempt", Subjects: []policy.Subject{{Group: policy.MastersGroup}},
		Rules: []policy.FlowRule{{Verbs: []string{"*"}, APIGroups: []string{"*"}, Resources: []string{"*"}, NonResourceURLs: []string{"*"}}}}, Level: exempt, Builtin: true})
	t.last = &Schema{FlowSchema: policy.FlowSchema{Name: "catch-all", MatchingPrecedence: 10000, PriorityLevel: "catch-all", Distinguisher: "ByUser"}, Level: rest, Builtin: true}
	t.schemas = append(t.schemas, t.last)
	return t
}

// Schemas returns the flow schemas in the order in which they are tried. The caller must not change them.
func (t *Table) Schemas() []*Schema { return t.schemas }

// Levels returns the priority levels by name. The caller must not change them.
func (t *Table) Levels() []*Level { return t.levels }

// Classify returns the first flow schema that matches a request. There is always one.
func (t *Table) Classify(r *policy.Request) *Schema {
	for _, s := range t.schemas {
		if slices.ContainsFunc(s.Subjects, func(x policy.Subject) bool { return x.Group != "" && slices.Contains(r.Groups, x.Group) }) {
			return s
		}
	}
	return t.last
}
