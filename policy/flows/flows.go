// Package flows classifies requests by the flow schemas of a policy: which flow a request is part of, and which priority
// level it takes seats of. The rules are those of API priority and fairness in Kubernetes (KEP-1040).
//
// A policy has the flow schemas and priority levels of its bundle and those that every kube-apiserver makes. An entry of the
// bundle replaces a suggested one with the same name. The mandatory ones, exempt and catch-all, cannot be replaced.
package flows

import (
	"cmp"
	"maps"
	"slices"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"stele.dev/stele/policy"
)

// The resources of flow schemas and priority levels in the API.
const (
	SchemaResource = "flowschemas"
	LevelResource  = "prioritylevelconfigurations"
)

// Level is a priority level in force.
type Level struct {
	policy.PriorityLevel
	// Exempt is set if requests of the level never wait and are never refused.
	Exempt bool
	// Builtin is set if the bundle does not define the level.
	Builtin bool
	// UID is that of the PriorityLevelConfiguration in the API.
	UID string
}

// Schema is a flow schema in force.
type Schema struct {
	policy.FlowSchema
	// Level is the priority level that the schema names.
	Level *Level
	// Builtin is set if the bundle does not define the schema.
	Builtin bool
	// UID is that of the FlowSchema in the API.
	UID string
}

// Distinguish returns what tells apart the flows of a schema: the user, the namespace, or "" if all matching requests are
// one flow.
func (s *Schema) Distinguish(r *policy.Request) string {
	switch s.Distinguisher {
	case string(flowcontrolv1.FlowDistinguisherMethodByUserType):
		return r.User
	case string(flowcontrolv1.FlowDistinguisherMethodByNamespaceType):
		return r.Namespace
	}
	return ""
}

// InForce returns the flow schemas of a policy with the built-in ones, in the order in which they are tried, and the priority
// levels by name. A flow schema whose priority level does not exist is left out.
func InForce(f *policy.Flow) ([]*Schema, []*Level) {
	b := builtin()
	levels := map[string]*Level{}
	for i := range b.levels {
		levels[b.levels[i].Name] = &b.levels[i]
	}
	for i := range f.PriorityLevels {
		if l := &f.PriorityLevels[i]; !Mandatory(l.Name) {
			levels[l.Name] = &Level{PriorityLevel: *l, UID: policy.UIDOf(flowcontrolv1.GroupName, LevelResource, "", l.Name)}
		}
	}
	schemas := map[string]*Schema{}
	add := func(s policy.FlowSchema, builtin bool) {
		if level := levels[s.PriorityLevel]; level != nil {
			schemas[s.Name] = &Schema{FlowSchema: s, Level: level, Builtin: builtin, UID: policy.UIDOf(flowcontrolv1.GroupName, SchemaResource, "", s.Name)}
		}
	}
	for _, s := range b.schemas {
		add(s, true)
	}
	for _, s := range f.FlowSchemas {
		if !Mandatory(s.Name) {
			add(s, false)
		}
	}
	return slices.SortedFunc(maps.Values(schemas), func(x, y *Schema) int {
			return cmp.Or(cmp.Compare(x.MatchingPrecedence, y.MatchingPrecedence), cmp.Compare(x.Name, y.Name))
		}), slices.SortedFunc(maps.Values(levels), func(x, y *Level) int {
			return cmp.Compare(x.Name, y.Name)
		})
}

// Table holds the flow schemas and priority levels of one policy, with those that every policy has. It is immutable and
// safe for concurrent use.
type Table struct {
	schemas []*Schema // in the order in which they are tried
	levels  []*Level  // by name
	last    *Schema   // of requests that no schema matches
	index   index
}

// New returns the table of a policy.
func New(f *policy.Flow) *Table {
	t := &Table{}
	t.schemas, t.levels = InForce(f)
	i := slices.IndexFunc(t.schemas, func(s *Schema) bool { return s.Name == flowcontrolv1.FlowSchemaNameCatchAll })
	t.last = t.schemas[i]
	t.index = newIndex(t.schemas)
	return t
}

// Schemas returns the flow schemas in the order in which they are tried. The caller must not change them.
func (t *Table) Schemas() []*Schema { return t.schemas }

// Levels returns the priority levels by name. The caller must not change them.
func (t *Table) Levels() []*Level { return t.levels }

// Classify returns the first flow schema that matches a request. There is always one: catch-all, if no other one matches.
func (t *Table) Classify(r *policy.Request) *Schema {
	if s := t.index.firstSchema(r); s != nil {
		return s
	}
	return t.last
}
