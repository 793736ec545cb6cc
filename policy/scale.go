package policy

import (
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"stele.dev/stele/policy/expr"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/celtype"
)

// Seen returns the version in which requests for a subresource see objects: [Scale] for the scale
// subresource, otherwise v.
func (v *Version) Seen(subresource string) *Version {
	if subresource == "scale" {
		return Scale
	}
	return v
}

// Serves reports whether the version has a subresource; "" is the object itself.
func (v *Version) Serves(subresource string) bool {
	switch subresource {
	case "":
		return true
	case "status":
		return v.Status
	case "scale":
		return v.Scale != nil
	case "finalize":
		return v.Kind.Group == "" && v.Kind.Plural == "namespaces"
	}
	return false
}

// Scale is autoscaling/v1 Scale. It has no program, since no Scale is stored: it is a view of
// another object, see [schemas.Scale].
var Scale = func() *Version {
	v := &Version{Version: &scaleKind.Versions[0], Kind: &Kind{Kind: &scaleKind}, object: func() *celtype.Type { return scaleType }}
	v.Kind.Versions = []*Version{v}
	return v
}()

var scaleType = expr.ResourceType(&scaleKind, &scaleKind.Versions[0])

var scaleKind = schemas.Kind{
	Group: autoscalingv1.GroupName, Kind: "Scale", ListKind: "ScaleList", Plural: "scales", Singular: "scale", StorageVersion: "v1", Builtin: true,
	Versions: []schemas.Version{{
		Name: "v1",
		// A Scale always has a spec and a status, and its replicas only if they are not 0.
		Schema: structOf(
			schemas.Field{Name: "spec", Presence: schemas.Required, Schema: structOf(
				schemas.Field{Name: "replicas", Presence: schemas.Optional, Schema: &schemas.Node{Kinds: schemas.IntegerKind}})},
			schemas.Field{Name: "status", Presence: schemas.Required, Schema: structOf(
				schemas.Field{Name: "replicas", Presence: schemas.Required, Schema: &schemas.Node{Kinds: schemas.IntegerKind}},
				schemas.Field{Name: "selector", Presence: schemas.Optional, Schema: &schemas.Node{Kinds: schemas.StringKind}})},
		),
		// The columns of kube-apiserver for custom resources.
		Columns: []schemas.Column{
			{Name: "Desired", Type: "integer", Description: "Number of desired replicas", JSONPath: ".spec.replicas"},
			{Name: "Available", Type: "integer", Description: "Number of actual replicas", JSONPath: ".status.replicas"},
			{Name: "Age", Type: "date", Description: metav1.ObjectMeta{}.SwaggerDoc()["creationTimestamp"], JSONPath: ".metadata.creationTimestamp"},
		},
	}},
}

func structOf(fields ...schemas.Field) *schemas.Node {
	return &schemas.Node{Kinds: schemas.StructKind, Struct: &schemas.Struct{Fields: fields}}
}
