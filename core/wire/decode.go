package wire

import (
	"encoding/json"
	"fmt"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
	"sigs.k8s.io/yaml"
	"stele.dev/stele/core/negotiate"
	"stele.dev/stele/core/typed"
)

// Decode turns a body into JSON. kind is what it is taken for if it does not say what it is; said is
// what it says, as far as that could be read.
func Decode(mediaType string, body []byte, kind schema.GroupVersionKind) (text []byte, said schema.GroupVersionKind, err error) {
	switch mediaType {
	case negotiate.YAML:
		text, err = yaml.YAMLToJSON(body)
		return text, said, err
	case negotiate.CBOR:
		var content map[string]any
		if err := direct.Unmarshal(body, &content); err != nil {
			return nil, said, fmt.Errorf("unable to determine group/version/kind: %w", err)
		}
		text, err = json.Marshal(content)
		return text, said, err
	case negotiate.Protobuf:
		return decodeProtobuf(body, kind)
	}
	return body, said, nil
}

func decodeProtobuf(body []byte, kind schema.GroupVersionKind) ([]byte, schema.GroupVersionKind, error) {
	var object runtime.Object
	var said *schema.GroupVersionKind
	var err error
	switch {
	case kind.Group == apiextensions.GroupName:
		// A definition may nest as deep as it has bytes, and what decodes it would follow. All that is
		// asked of one is its name.
		whole, partial := &runtime.Unknown{}, &metav1.PartialObjectMetadata{}
		if _, said, err = protobufs.Decode(body, &kind, whole); err == nil {
			err = partial.Unmarshal(whole.Raw)
		}
		object = partial
	case typed.Has(kind):
		object, said, err = protobufs.Decode(body, &kind, nil)
	default:
		none := &unstructured.Unstructured{}
		none.SetGroupVersionKind(kind)
		object, said, err = protobufs.Decode(body, &kind, none)
	}
	if said == nil {
		said = &schema.GroupVersionKind{}
	}
	if err != nil {
		return nil, *said, err
	}
	object.GetObjectKind().SetGroupVersionKind(*said)
	text, err := json.Marshal(object)
	return text, *said, err
}

// DeleteOptions decodes the body of a delete, whatever group the options are said to be of.
func DeleteOptions(mediaType string, body []byte) ([]byte, error) {
	kind := metav1.SchemeGroupVersion.WithKind("DeleteOptions")
	if mediaType != negotiate.Protobuf {
		text, _, err := Decode(mediaType, body, kind)
		return text, err
	}
	whole, options := &runtime.Unknown{}, &metav1.DeleteOptions{}
	_, said, err := protobufs.Decode(body, &kind, whole)
	if err != nil {
		return nil, err
	}
	if err := options.Unmarshal(whole.Raw); err != nil {
		return nil, err
	}
	options.Kind = said.Kind
	return json.Marshal(options)
}
