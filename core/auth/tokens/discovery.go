package tokens

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
)

// These are the paths of the discovery documents.
const (
	ConfigurationPath = "/.well-known/openid-configuration"
	KeySetPath        = "/openid/v1/jwks"
)

// These are the media types of the documents, and how long clients may cache them.
const (
	ConfigurationType = "application/json"
	KeySetType        = "application/jwk-set+json"
	MaxAge            = 3600 // seconds
)

// Discoverable returns an error if others cannot discover the issuer: it must be an https URL without query and
// fragment (OpenID Connect Discovery 1.0).
func (s *ServiceAccounts) Discoverable() error {
	issuer, err := url.Parse(s.issuers[0])
	switch {
	case err != nil:
		return err
	case issuer.Scheme != "https":
		return fmt.Errorf("the issuer %s is no https URL", s.issuers[0])
	case issuer.RawQuery != "" || issuer.Fragment != "":
		return fmt.Errorf("the issuer %s has a query or a fragment", s.issuers[0])
	}
	return nil
}

// Configuration returns the OpenID Connect discovery document of the issuer.
func (s *ServiceAccounts) Configuration() ([]byte, error) {
	var signing []string
	for _, k := range s.keys.ring.Load().keys {
		signing = append(signing, string(k.algorithm))
	}
	slices.Sort(signing)
	return json.Marshal(struct {
		Issuer        string   `json:"issuer"`
		JWKSURI       string   `json:"jwks_uri"`
		ResponseTypes []string `json:"response_types_supported"`
		SubjectTypes  []string `json:"subject_types_supported"`
		Algorithms    []string `json:"id_token_signing_alg_values_supported"`
	}{s.issuers[0], s.jwksURI, []string{"id_token"}, []string{"public"}, slices.Compact(signing)})
}

// KeySet returns the public keys that verify tokens (RFC 7517).
func (s *ServiceAccounts) KeySet() ([]byte, error) {
	return json.Marshal(s.keys.ring.Load().public())
}
