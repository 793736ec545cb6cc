package tracing

import (
	"fmt"
	"os"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/apis/apiserver/install"
	api "k8s.io/component-base/tracing/api/v1"
)

var decoder = func() runtime.Decoder {
	scheme := runtime.NewScheme()
	install.Install(scheme)
	return serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDecoder()
}()

// Config says where spans are sent, and how many requests are traced.
type Config = api.TracingConfiguration

// ReadConfig reads a TracingConfiguration of apiserver.config.k8s.io, as kube-apiserver does: it rejects unknown fields.
func ReadConfig(file string) (*Config, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("the tracing configuration cannot be read: %w", err)
	}
	var c apiserver.TracingConfiguration
	if err := runtime.DecodeInto(decoder, text, &c); err != nil {
		return nil, fmt.Errorf("the tracing configuration %s cannot be decoded; want a TracingConfiguration of apiserver.config.k8s.io/v1: %w", file, err)
	}
	if errs := api.ValidateTracingConfiguration(&c.TracingConfiguration, nil, nil); len(errs) > 0 {
		return nil, fmt.Errorf("the tracing configuration %s is invalid: %w", file, errs.ToAggregate())
	}
	return &c.TracingConfiguration, nil
}
