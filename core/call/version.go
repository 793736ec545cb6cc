package call

import (
	"encoding/json"
	"fmt"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"stele.dev/stele/core/object/metadata"
	"stele.dev/stele/core/object/versions"
	"stele.dev/stele/core/status"
	"stele.dev/stele/policy"
)

// DecodeStored decodes a stored object.
func DecodeStored(text []byte) (*metav1.ObjectMeta, map[string]any, error) {
	meta, content, err := metadata.DecodeStored(text)
	if err != nil {
		return nil, nil, fmt.Errorf("core: stored object: %w", err)
	}
	return meta, content, nil
}

// Shown returns a stored object in the version of the request.
func (c *Call) Shown(object []byte) ([]byte, error) {
	text, err := c.ShownVersion().Of(object)
	return text, conversionFailed(err)
}

// conversionFailed returns the error of a conversion as clients get it.
func conversionFailed(err error) error {
	if err == nil {
		return nil
	}
	return status.Internal(err)
}

// ShownVersion returns what converts stored objects to the version of the request.
func (c *Call) ShownVersion() versions.Version { return versions.As(c.Kind) }

// DecodeStored decodes a stored object in the version of the request.
func (c *Call) DecodeStored(text []byte) (*metav1.ObjectMeta, map[string]any, error) {
	meta, content, err := DecodeStored(text)
	if face := c.Kind.Kind.Face; face != nil {
		content = face.Show(content)
	}
	if err != nil || !c.Kind.Kind.Converts() || !c.ShownVersion().Converts(text) {
		return meta, content, err
	}
	if err := c.Kind.Convert(versions.NameOf(text), content); err != nil {
		return nil, nil, conversionFailed(&versions.ConversionError{Resource: c.Kind.Kind.Resource(), Name: named(meta), Err: err})
	}
	return meta, content, nil
}

// named returns the namespace and name of an object.
func named(meta *metav1.ObjectMeta) string {
	if meta.Namespace == "" {
		return meta.Name
	}
	return meta.Namespace + "/" + meta.Name
}

// Scales reports whether the request is about the subresource scale.
func (c *Call) Scales() bool { return c.Info.Subresource == "scale" }

// Seen returns the version in which the client sees the object: that of Scale for the subresource scale.
func (c *Call) Seen() *policy.Version { return c.Kind.Seen(c.Info.Subresource) }

// ScaleOf returns the Scale of an object, and reports whether the object has the field with the wanted replicas.
func (c *Call) ScaleOf(meta *metav1.ObjectMeta, content map[string]any) (*autoscalingv1.Scale, bool, error) {
	return c.Kind.Scale.Scaled(meta, content)
}

// View returns a stored object as the client sees it: in its version, or as a Scale.
func (c *Call) View(object []byte) ([]byte, error) {
	if !c.Scales() {
		return c.Shown(object)
	}
	meta, content, err := c.DecodeStored(object)
	if err != nil {
		return nil, err
	}
	scale, has, err := c.ScaleOf(meta, content)
	switch {
	case err != nil && c.Write:
		return nil, status.BadRequest(err.Error())
	case err != nil:
		return nil, status.Internal(err)
	case !has && !c.Write:
		return nil, status.Internal(fmt.Errorf("the spec replicas field %q does not exist", c.Kind.Scale.SpecReplicasPath)) // as upstream
	}
	return json.Marshal(scale)
}
