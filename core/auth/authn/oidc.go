package authn

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/apis/apiserver/validation"
	authenticationcel "k8s.io/apiserver/pkg/authentication/cel"
	"k8s.io/apiserver/plugin/pkg/authenticator/token/oidc"
	"stele.dev/stele/limits/reload"
)

// OIDC configures one issuer of JWTs by the options of kube-apiserver's flags --oidc-*. It is converted to an
// AuthenticationConfiguration, except for the algorithms, which that does not limit.
type OIDC struct {
	IssuerURL, ClientID string
	// CAFile is a PEM file with the authorities of the issuer's certificate; "" means the system's.
	CAFile string
	// UsernamePrefix is "-" for no prefix. "" means the issuer's URL and #, and no prefix for the claim email.
	UsernameClaim, UsernamePrefix string
	// GroupsClaim is "" for no groups.
	GroupsClaim, GroupsPrefix string
	RequiredClaims            map[string]string
	SigningAlgs               []string
}

// followOIDC loads the issuer, and reloads it when the file of authorities changes.
func (a *Authenticator) followOIDC(ctx context.Context, o *Options) error {
	for _, name := range o.OIDC.SigningAlgs {
		if known := oidc.AllValidSigningAlgorithms(); !slices.Contains(known, name) {
			return fmt.Errorf("--oidc-signing-algs: %q is not among %s", name, strings.Join(known, ", "))
		}
	}
	var authorities []byte
	if o.OIDC.CAFile != "" {
		var err error
		if authorities, err = reload.Read(o.OIDC.CAFile); err != nil {
			return fmt.Errorf("--oidc-ca-file: %w", err)
		}
	}
	return a.followIssuers(ctx, o, origin{
		flag: "oidc-ca-file", path: o.OIDC.CAFile, content: authorities, algorithms: o.OIDC.SigningAlgs,
		read: func(ca []byte, compiler authenticationcel.Compiler) (*apiserver.AuthenticationConfiguration, error) {
			return o.OIDC.configuration(ca, compiler, o.Disallowed)
		},
	})
}

// configuration converts the flags to a valid configuration. ca is the content of the file of authorities. Errors name
// flags.
func (o *OIDC) configuration(ca []byte, compiler authenticationcel.Compiler, disallowed []string) (*apiserver.AuthenticationConfiguration, error) {
	if o.CAFile != "" && len(ca) == 0 { // otherwise the system's authorities would be used
		return nil, errors.New("--oidc-ca-file: it is empty")
	}
	prefix := o.UsernamePrefix
	switch {
	case prefix == "-":
		prefix = ""
	case prefix == "" && o.UsernameClaim != "email":
		prefix = o.IssuerURL + "#"
	}
	issuer := apiserver.JWTAuthenticator{
		Issuer: apiserver.Issuer{URL: o.IssuerURL, Audiences: []string{o.ClientID}, CertificateAuthority: string(ca)},
		ClaimMappings: apiserver.ClaimMappings{
			Username: apiserver.PrefixedClaimOrExpression{Claim: o.UsernameClaim, Prefix: &prefix},
		},
	}
	if o.GroupsClaim != "" {
		issuer.ClaimMappings.Groups = apiserver.PrefixedClaimOrExpression{Claim: o.GroupsClaim, Prefix: &o.GroupsPrefix}
	}
	for _, claim := range slices.Sorted(maps.Keys(o.RequiredClaims)) {
		issuer.ClaimValidationRules = append(issuer.ClaimValidationRules, apiserver.ClaimValidationRule{Claim: claim, RequiredValue: o.RequiredClaims[claim]})
	}
	c := &apiserver.AuthenticationConfiguration{JWT: []apiserver.JWTAuthenticator{issuer}}
	wrong := validation.ValidateAuthenticationConfiguration(compiler, c, disallowed)
	for _, e := range wrong {
		e.Field = flagOf(e)
	}
	return c, wrong.ToAggregate()
}

// flagOf returns the flag for a field of the configuration.
func flagOf(e *field.Error) string {
	for _, f := range []struct{ field, flag string }{
		{"jwt[0].issuer.url", "--oidc-issuer-url"},
		{"jwt[0].issuer.audiences", "--oidc-client-id"},
		{"jwt[0].issuer.certificateAuthority", "--oidc-ca-file"},
		{"jwt[0].claimMappings.username", "--oidc-username-claim"},
		{"jwt[0].claimMappings.groups", "--oidc-groups-claim"},
		{"jwt[0].claimValidationRules", "--oidc-required-claim"},
	} {
		if strings.HasPrefix(e.Field, f.field) {
			return f.flag
		}
	}
	return e.Field
}
