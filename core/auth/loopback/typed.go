package loopback

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/gentype"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

// Typed returns a client for the objects of one built-in resource in a namespace. It has the methods of client-go's typed
// clients but for lists and applies. The packages of those clients import the apply configurations of all kinds.
func Typed[T interface {
	runtime.Object
	metav1.Object
}](config *rest.Config, resource schema.GroupVersionResource, namespace string, empty func() T) (*gentype.Client[T], error) {
	c := rest.CopyConfig(config)
	version := resource.GroupVersion()
	c.GroupVersion, c.APIPath = &version, "/apis"
	if resource.Group == "" {
		c.APIPath = "/api"
	}
	c.NegotiatedSerializer = rest.CodecFactoryForGeneratedClient(scheme.Scheme, scheme.Codecs).WithoutConversion()
	client, err := rest.RESTClientFor(c)
	if err != nil {
		return nil, err
	}
	return gentype.NewClient(resource.Resource, client, scheme.ParameterCodec, namespace, empty, gentype.PrefersProtobuf[T]()), nil
}
