// Package gotypes provides the Go types of the built-in kinds. They are needed for Protocol Buffers, for the list rules
// of strategic merge patches, and for error messages about values of the wrong type.
package gotypes

import (
	"cmp"
	"encoding/json"

	"github.com/tidwall/gjson"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1beta1 "k8s.io/apimachinery/pkg/apis/meta/v1beta1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "sigs.k8s.io/json"
)

// Scheme has the types, and those that answers use: lists, Status, metadata, discovery. It is read-only.
var Scheme = func() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, autoscalingv1.AddToScheme, coordinationv1.AddToScheme, eventsv1.AddToScheme, authorizationv1.AddToScheme, authenticationv1.AddToScheme, rbacv1.AddToScheme, flowcontrolv1.AddToScheme, admissionregistrationv1.AddToScheme, apiextensionsv1.AddToScheme} {
		if err := add(s); err != nil {
			panic(err) // with static input
		}
	}
	for _, add := range []func(*runtime.Scheme) error{metav1.AddMetaToScheme, metav1beta1.AddMetaToScheme, apidiscoveryv2.AddToScheme} {
		if err := add(s); err != nil {
			panic(err) // with static input
		}
	}
	return s
}()

// Has reports whether a kind has a Go type.
func Has(gvk schema.GroupVersionKind) bool { return Scheme.Recognizes(gvk) }

// New returns a zero value of the kind's Go type.
func New(gvk schema.GroupVersionKind) (any, error) { return Scheme.New(gvk) }

// Empty returns the JSON of an object that has only a resourceVersion and annotations. For a built-in kind it includes
// the fields that the Go type never omits.
func Empty(gvk schema.GroupVersionKind, revision string, annotations map[string]string) ([]byte, error) {
	var object runtime.Object = new(metav1.PartialObjectMetadata)
	if Has(gvk) {
		var err error
		if object, err = Scheme.New(gvk); err != nil {
			return nil, err
		}
	}
	o, err := meta.Accessor(object)
	if err != nil {
		return nil, err
	}
	o.SetResourceVersion(revision)
	o.SetAnnotations(annotations)
	object.GetObjectKind().SetGroupVersionKind(gvk)
	return json.Marshal(object)
}

// Decode decodes JSON into the Go type of the kind that it names, nil if the kind has none. If there is no version, as
// in the oldest discovery documents, it is v1.
func Decode(text []byte) (runtime.Object, error) {
	said := gjson.GetManyBytes(text, "apiVersion", "kind")
	gvk := schema.FromAPIVersionAndKind(said[0].String(), said[1].String())
	gvk.Version = cmp.Or(gvk.Version, "v1")
	if !Scheme.Recognizes(gvk) {
		return nil, nil
	}
	object, err := Scheme.New(gvk)
	if err != nil {
		return nil, err
	}
	return object, kjson.UnmarshalCaseSensitivePreserveInts(text, object)
}

// TypeError returns kube-apiserver's error if the JSON of a built-in kind does not fit its Go type. It returns nil if
// it fits, or if the kind has no Go type.
func TypeError(gvk schema.GroupVersionKind, object []byte) error {
	into, err := Scheme.New(gvk)
	if err != nil {
		return nil
	}
	return kjson.UnmarshalCaseSensitivePreserveInts(object, into)
}
