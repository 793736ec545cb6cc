package client

import (
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"stele.dev/stele/cmd/stele/internal/secrets"
	"stele.dev/stele/core/resources/changes"
)

// hiding finds the secret fields of changed objects: those of today's schema, and those of the policy that was in
// force at the change. It is not safe for concurrent use.
type hiding struct {
	config *rest.Config
	today  *Shapes
	then   map[string]*Shapes // by the policy in force
}

// NewHiding returns a finder of the secret fields of changed objects.
func NewHiding(config *rest.Config) *hiding {
	return &hiding{config: config, today: &Shapes{Config: config}, then: map[string]*Shapes{}}
}

// Of returns the secret fields of the object of a change.
func (h *hiding) Of(c *changes.Change) secrets.Fields {
	kind := schema.GroupKind{Group: c.Object.Group, Kind: c.Object.Kind}
	fields := h.today.Secrets(kind)
	if !c.Object.Sensitive || kind.Group == "" {
		return fields
	}
	then := h.then[c.Policy]
	if then == nil {
		then = &Shapes{Config: AtRevision(h.config, c.Revision)}
		h.then[c.Policy] = then
	}
	if fields = fields.Union(then.Secrets(kind)); fields.Any() {
		return fields
	}
	return secrets.Unknown()
}
