package decisions

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"stele.dev/stele/core/call"
	"stele.dev/stele/policy"
	"stele.dev/stele/schemas/wording"
)

// SchemaRule returns the CEL rule, or the line of the schema, that the first error with a line names; empty if none does.
func SchemaRule(c *call.Call, s *metav1.Status) (rule, source string) {
	if c.Kind == nil || s.Details == nil {
		return "", ""
	}
	kind := c.Kind.Kind.Kind
	for i := range s.Details.Causes {
		text := s.Details.Causes[i].Message
		if source = wording.PlaceIn(text); source == "" {
			continue
		}
		for j := range c.Kind.Rules {
			if x := &c.Kind.Rules[j]; x.Source.String() == source {
				return policy.RuleID(kind, x), source
			}
		}
		return kind.Resource() + "/schema", source
	}
	return "", ""
}

// NamedIn returns the name of the object that the error of a create names.
func NamedIn(c *call.Call, s *metav1.Status) string {
	d := s.Details
	if c.Info == nil || c.Info.Verb != "create" || c.Info.Name != "" || d == nil || d.Group != c.Info.APIGroup {
		return ""
	}
	if d.Kind == c.Info.Resource || c.Kind != nil && d.Kind == c.Kind.Kind.Kind.Kind {
		return d.Name
	}
	return ""
}
