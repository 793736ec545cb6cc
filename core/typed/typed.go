// Package typed has the Go types of the built-in kinds, for what only they can tell: how
// typed clients encode them as Protocol Buffers, how strategic merge patches merge their
// lists, and what is said of a value of the wrong type.
package typed

import (
	"encoding/json"
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	kjson "sigs.k8s.io/json"
)

var scheme = func() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, coordinationv1.AddToScheme, eventsv1.AddToScheme, authorizationv1.AddToScheme, authenticationv1.AddToScheme, rbacv1.AddToScheme, apiextensionsv1.AddToScheme} {
		if err := add(s); err != nil {
			panic(err) // static input
		}
	}
	return s
}()

var protobufs = protobuf.NewSerializer(scheme, scheme)

// Has tells whether a kind has a Go type here.
func Has(gvk schema.GroupVersionKind) bool { return scheme.Recognizes(gvk) }

// New returns a zero value of the kind's Go type.
func New(gvk schema.GroupVersionKind) (any, error) { return scheme.New(gvk) }

// FromProtobuf turns an object, or options, that a client has encoded as Protocol
// Buffers into JSON.
func FromProtobuf(data []byte, defaults schema.GroupVersionKind) ([]byte, error) {
	object, gvk, err := protobufs.Decode(data, &defaults, nil)
	if err != nil {
		return nil, err
	}
	object.GetObjectKind().SetGroupVersionKind(*gvk)
	text, err := json.Marshal(object)
	if err != nil {
		return nil, fmt.Errorf("convert to JSON: %w", err)
	}
	return text, nil
}

// TypeError says how the JSON of a built-in kind does not fit its Go type, as
// kube-apiserver finds out by decoding; nil if it fits, or for other kinds.
func TypeError(gvk schema.GroupVersionKind, object []byte) error {
	into, err := scheme.New(gvk)
	if err != nil {
		return nil
	}
	return kjson.UnmarshalCaseSensitivePreserveInts(object, into)
}
