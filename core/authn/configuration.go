package authn

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/apis/apiserver/install"
	"k8s.io/apiserver/pkg/apis/apiserver/validation"
	authenticationcel "k8s.io/apiserver/pkg/authentication/cel"
	"sigs.k8s.io/yaml"
)

var configurations = func() runtime.Decoder {
	scheme := runtime.NewScheme()
	install.Install(scheme)
	return serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDecoder()
}()

// configuration reads an AuthenticationConfiguration (KEP-3331), of any of its versions, as kube-apiserver does: what
// it does not know it refuses. The error names the fields. Tokens of the disallowed issuers, our own, are
// none of its business.
func configuration(content []byte, compiler authenticationcel.Compiler, disallowed []string) (*apiserver.AuthenticationConfiguration, error) {
	if len(content) == 0 {
		return nil, errors.New("it is empty; want an AuthenticationConfiguration")
	}
	// What cannot be read at all the decoder refuses, with the line.
	if text, err := yaml.YAMLToJSON(content); err == nil && !bytes.HasPrefix(text, []byte("{")) {
		return nil, errors.New("it is no object; want an AuthenticationConfiguration")
	}
	decoded, err := runtime.Decode(configurations, content)
	if err != nil {
		return nil, err
	}
	c, ok := decoded.(*apiserver.AuthenticationConfiguration)
	if !ok {
		return nil, fmt.Errorf("want an AuthenticationConfiguration, not a %T", decoded)
	}
	return c, validation.ValidateAuthenticationConfiguration(compiler, c, disallowed).ToAggregate()
}

// unchanged tells whether a new configuration leaves alone what only a start can change, as upstream has it.
func unchanged(now, before *apiserver.AnonymousAuthConfig) error {
	if reflect.DeepEqual(now, before) {
		return nil
	}
	return field.Forbidden(field.NewPath("anonymous"), "it differs from what the server was started with, which only a start can change")
}
