package client

import (
	"cmp"
	"encoding/json"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/core/resources/changes"
)

// UserOf returns the user who made a change.
func UserOf(c *changes.Change) string {
	if c.Actor == nil {
		return ""
	}
	return c.Actor.User
}

// requestOf returns the request that made a change. It is empty for a change without a request.
func requestOf(c *changes.Change) changes.Request {
	if c.Request == nil {
		return changes.Request{}
	}
	return *c.Request
}

// VerbOf returns the verb of the request that made a change.
func VerbOf(c *changes.Change) string { return requestOf(c).Verb }

// AgentOf returns the user agent of the client that made a change.
func AgentOf(c *changes.Change) string { return requestOf(c).UserAgent }

// managerOf returns the field manager of a change. If the request has none, it returns the client's program, as
// Kubernetes does.
func managerOf(c *changes.Change) string {
	program, _, _ := strings.Cut(AgentOf(c), "/")
	return cmp.Or(requestOf(c).FieldManager, program)
}

// nameOf returns the name of a change's object.
func nameOf(c *changes.Change) string {
	if c.Object == nil {
		return ""
	}
	return c.Object.Name
}

// Change is a change, and its JSON as the server sent it.
type Change struct {
	changes.Change
	Raw json.RawMessage `json:"-"`
}

// UnmarshalJSON decodes a change and keeps the JSON.
func (c *Change) UnmarshalJSON(text []byte) error {
	type fields Change
	c.Raw = append(c.Raw[:0], text...)
	return json.Unmarshal(text, (*fields)(c))
}

// ActorText returns the user who made a change as text: "alice", or "admin as alice" for an impersonated user.
func ActorText(c *changes.Change) string {
	switch {
	case c.Actor == nil:
		return "-"
	case c.Actor.Impersonator != "":
		return c.Actor.Impersonator + " as " + c.Actor.User
	}
	return c.Actor.User
}

// GroupResource returns the resource of a change's object, with its group.
func GroupResource(c *changes.Change) string {
	return schema.GroupResource{Group: c.Object.Group, Resource: c.Object.Resource}.String()
}

// ResourceText returns the resource of a change's object, with its subresource and group.
func ResourceText(c *changes.Change) string {
	if c.Request != nil && c.Request.Subresource != "" {
		return schema.GroupResource{Group: c.Object.Group, Resource: c.Object.Resource + "/" + c.Request.Subresource}.String()
	}
	return GroupResource(c)
}
