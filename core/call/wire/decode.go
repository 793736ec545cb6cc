package wire

import (
	"fmt"
	"io"

	"google.golang.org/protobuf/encoding/protowire"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
	"sigs.k8s.io/yaml"
	"stele.dev/stele/core/call/negotiate"
	"stele.dev/stele/core/object/canonical"
	"stele.dev/stele/core/object/gotypes"
)

// Decode converts a body to JSON. kind is used for a body that does not name its kind. said is the kind that the body
// names, as far as it could be read.
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
		text, err = canonical.Marshal(content)
		return text, said, err
	case negotiate.Protobuf:
		return decodeProtobuf(body, kind)
	}
	return body, said, nil
}

// decodeProtobuf decodes only the type of the kind, whatever the body names. Schemas of definitions can be nested so deeply
// that decoding them would exhaust the stack, so their depth is looked at first.
func decodeProtobuf(body []byte, kind schema.GroupVersionKind) ([]byte, schema.GroupVersionKind, error) {
	whole := &runtime.Unknown{}
	_, said, err := protobufs.Decode(body, &kind, whole)
	if err != nil {
		return nil, schema.GroupVersionKind{}, err
	}
	var object runtime.Object
	switch {
	case !gotypes.Has(kind):
		return nil, *said, protobufs.Encode(&unstructured.Unstructured{}, io.Discard) // which returns the error
	case !gotypes.Has(*said):
		return nil, *said, runtime.NewNotRegisteredErrForKind(gotypes.Scheme.Name(), *said)
	case kind.Group == apiextensions.GroupName && nests(whole.Raw, maxNesting):
		return nil, *said, fmt.Errorf("wire: messages nest more than %d levels", maxNesting)
	case *said != kind:
		// Of PartialObjectMetadata only the type matters.
		object = &metav1.PartialObjectMetadata{}
	default:
		if object, err = gotypes.Scheme.New(kind); err != nil {
			return nil, *said, err
		}
	}
	m, ok := object.(interface{ Unmarshal([]byte) error })
	if !ok {
		return nil, *said, fmt.Errorf("wire: %T has no Protocol Buffers", object)
	}
	if err := m.Unmarshal(whole.Raw); err != nil {
		return nil, *said, err
	}
	object.GetObjectKind().SetGroupVersionKind(*said)
	text, err := canonical.Marshal(object)
	return text, *said, err
}

// maxNesting is how deeply the messages of a definition may nest. A level of a schema is up to three messages, and schemas nest 60 levels.
const maxNesting = 500

// nests reports whether messages nest more than some levels. Texts count as messages if they look like one.
func nests(message []byte, levels int) bool {
	if levels < 0 {
		return true
	}
	for len(message) > 0 {
		number, sort, n := protowire.ConsumeTag(message)
		if n < 0 {
			return false
		}
		message = message[n:]
		if sort == protowire.BytesType {
			part, n := protowire.ConsumeBytes(message)
			if n < 0 {
				return false
			}
			if nests(part, levels-1) {
				return true
			}
			message = message[n:]
			continue
		}
		if n = protowire.ConsumeFieldValue(number, sort, message); n < 0 {
			return false
		}
		message = message[n:]
	}
	return false
}

// DeleteOptions decodes the body of a delete. The options may name any group.
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
	return canonical.Marshal(options)
}
