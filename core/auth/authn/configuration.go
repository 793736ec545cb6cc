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

// configuration parses an AuthenticationConfiguration (KEP-3331) of any version, strictly, as kube-apiserver does. Its
// error names the fields. The configuration must not name a disallowed issuer.
func configuration(content []byte, compiler authenticationcel.Compiler, disallowed []string) (*apiserver.AuthenticationConfiguration, error) {
	if len(content) == 0 {
		return nil, errors.New("it is empty; want an AuthenticationConfiguration")
	}
	// If it is not an object at all, the decoder's error has the line.
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

// unchanged checks that a new configuration does not change what requires a restart, as in kube-apiserver.
func unchanged(now, before *apiserver.AnonymousAuthConfig) error {
	if reflect.DeepEqual(now, before) {
		return nil
	}
	return field.Forbidden(field.NewPath("anonymous"), "it differs from what the server was started with, which only a start can change")
}
