package wire

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	kcbor "k8s.io/apimachinery/pkg/runtime/serializer/cbor"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
	"stele.dev/stele/core/call/negotiate"
	"stele.dev/stele/core/object/gotypes"
)

var (
	protobufs = protobuf.NewSerializer(gotypes.Scheme, gotypes.Scheme)
	cbors     = kcbor.NewSerializer(gotypes.Scheme, gotypes.Scheme)
	// streamed does not convert the object of an event.
	streamed = kcbor.NewSerializer(gotypes.Scheme, gotypes.Scheme, kcbor.Transcode(false))
)

// Encode converts an answer from JSON to a media type. Only kinds with a Go type can be Protocol Buffers; for others
// the error is kube-apiserver's 406.
func Encode(mediaType string, text []byte) ([]byte, error) {
	var encoded bytes.Buffer
	var err error
	switch mediaType {
	case negotiate.YAML:
		return yaml.JSONToYAML(text)
	case negotiate.Protobuf:
		var object runtime.Object
		if object, err = gotypes.Decode(text); err != nil {
			return nil, err
		}
		if object == nil {
			object = &unstructured.Unstructured{} // which the serializer refuses
		}
		err = protobufs.Encode(object, &encoded)
	case negotiate.CBOR:
		var content map[string]any
		if err = kjson.UnmarshalCaseSensitivePreserveInts(text, &content); err != nil {
			return nil, err
		}
		err = cbors.EncodeNondeterministic(&unstructured.Unstructured{Object: content}, &encoded)
	default:
		return text, nil
	}
	return encoded.Bytes(), err
}

// AppendEvent appends a watch event. kind is ADDED or another event type; object is JSON. delimited means that the
// event is part of a stream; otherwise it is a message of its own.
func AppendEvent(to []byte, mediaType string, delimited bool, kind string, object []byte) ([]byte, error) {
	if mediaType == negotiate.JSON {
		to = slices.Grow(to, len(`{"type":"","object":}`)+len(kind)+len(object)+1)
		to = append(append(append(to, `{"type":"`...), kind...), `","object":`...)
		return append(append(to, object...), "}\n"...), nil
	}
	encoded, err := Encode(mediaType, object)
	if err != nil {
		return to, err
	}
	event := &metav1.WatchEvent{Type: kind, Object: runtime.RawExtension{Raw: encoded}}
	switch mediaType {
	case negotiate.Protobuf:
		if delimited {
			to = binary.BigEndian.AppendUint32(to, uint32(event.Size()))
		}
		return appendMessage(to, event)
	case negotiate.CBOR:
		b := bytes.NewBuffer(to)
		err := streamed.EncodeNondeterministic(event, b)
		return b.Bytes(), err
	}
	return to, fmt.Errorf("wire: no stream of %s", mediaType)
}

// message is implemented by types that apimachinery generates for Protocol Buffers.
type message interface {
	Size() int
	MarshalToSizedBuffer([]byte) (int, error)
}

func appendMessage(to []byte, m message) ([]byte, error) {
	n := m.Size()
	to = slices.Grow(to, n)
	_, err := m.MarshalToSizedBuffer(to[len(to) : len(to)+n])
	return to[:len(to)+n], err
}

// List encodes a list of Protocol Buffers item by item. It holds the encoded items, and only one decoded item at a time. It
// is not safe for concurrent use.
type List struct {
	kind   runtime.TypeMeta
	fields []byte // encoded
}

// NewList returns an empty list, with room for items of the given length together.
func NewList(kind, apiVersion string, meta metav1.ListMeta, length int) (*List, error) {
	l := &List{kind: runtime.TypeMeta{Kind: kind, APIVersion: apiVersion}, fields: make([]byte, 0, length)}
	return l, l.field(metadataField, &meta)
}

// These are the field numbers of all lists of Kubernetes.
const (
	metadataField protowire.Number = 1
	itemsField    protowire.Number = 2
)

func (l *List) field(number protowire.Number, m message) error {
	l.fields = protowire.AppendTag(l.fields, number, protowire.BytesType)
	l.fields = protowire.AppendVarint(l.fields, uint64(m.Size()))
	var err error
	l.fields, err = appendMessage(l.fields, m)
	return err
}

// Add appends an item in JSON.
func (l *List) Add(text []byte) error {
	object, err := gotypes.Decode(text)
	if err != nil {
		return err
	}
	m, ok := object.(message)
	if !ok {
		return protobufs.Encode(&unstructured.Unstructured{}, &bytes.Buffer{}) // which returns the error
	}
	return l.field(itemsField, m)
}

// Encoded returns the length of the encoded list, and a function that writes it.
func (l *List) Encoded() (length int, write func(io.Writer) error) {
	whole := &runtime.Unknown{TypeMeta: l.kind, Raw: l.fields}
	length = len(selfDescribedProtobuf) + whole.Size()
	return length, func(w io.Writer) error {
		if _, err := w.Write(selfDescribedProtobuf); err != nil {
			return err
		}
		_, err := whole.MarshalToWriter(w, len(l.fields), func(w io.Writer) (int, error) { return w.Write(l.fields) })
		return err
	}
}

// selfDescribedProtobuf is the start of Kubernetes' Protocol Buffers.
var selfDescribedProtobuf = []byte("k8s\x00")
