package main

import (
	"reflect"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"stele.dev/stele/core/auth/authn"
)

func TestFlagsOfAnIssuer(t *testing.T) {
	const (
		both    = "--oidc-* flags need both --oidc-issuer-url and --oidc-client-id"
		exclude = "--authentication-config and --oidc-* flags cannot be given together"
	)
	for args, want := range map[string]string{
		"":                              "",
		"--authentication-config=c.yml": "",
		"--oidc-issuer-url=https://a.example --oidc-client-id=a": "",
		"--oidc-issuer-url=https://a.example":                    both,
		"--oidc-client-id=a":                                     both,
		"--oidc-issuer-url= --oidc-client-id=":                   both,
		"--oidc-groups-claim=roles":                              both,
		"--oidc-signing-algs=RS256":                              both,
		"--oidc-issuer-url=https://a.example --oidc-client-id=a --authentication-config=c.yml":   exclude,
		"--authentication-config=c.yml --oidc-username-claim=sub":                                exclude,
		"--authentication-token-webhook-version=v2":                                              `--authentication-token-webhook-version "v2": want v1 or v1beta1`,
		"--authentication-token-webhook-cache-ttl=-1s":                                           "--authentication-token-webhook-cache-ttl -1s: want a duration that is not negative",
		"--oidc-client-id=a --service-account-issuer=a --service-account-jwks-uri=http://a.test": "--service-account-jwks-uri http://a.test: want an https URL\n" + both,
	} {
		got := ""
		if o, err := parsed(args); err != nil {
			t.Errorf("%s: %v", args, err)
		} else if err := o.check(); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: %q, not %q", args, got, want)
		}
	}
}

func parsed(args string) (*authenticationOptions, error) {
	f := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	o := &authenticationOptions{}
	o.addFlags(f)
	return o, f.Parse(strings.Fields(args))
}

// They mean what kube-apiserver's mean, and have its defaults.
func TestFlagsOfAnIssuerAreThoseOfKubeAPIServer(t *testing.T) {
	const least = "--oidc-issuer-url=https://a.example --oidc-client-id=a"
	for args, want := range map[string]*authn.OIDC{
		"":    nil,
		least: {IssuerURL: "https://a.example", ClientID: "a", UsernameClaim: "sub", SigningAlgs: []string{"RS256"}},
		least + " --oidc-username-claim=email --oidc-username-prefix=- --oidc-groups-claim=roles --oidc-groups-prefix=g: --oidc-ca-file=ca.crt" +
			" --oidc-signing-algs=ES256,PS256 --oidc-signing-algs=RS512 --oidc-required-claim=a=b,c=d --oidc-required-claim=e=": {
			IssuerURL: "https://a.example", ClientID: "a", CAFile: "ca.crt", UsernameClaim: "email", UsernamePrefix: "-", GroupsClaim: "roles", GroupsPrefix: "g:",
			SigningAlgs: []string{"ES256", "PS256", "RS512"}, RequiredClaims: map[string]string{"a": "b,c=d", "e": ""},
		},
	} {
		o, err := parsed(args)
		if err != nil {
			t.Errorf("%s: %v", args, err)
		} else if err := o.check(); err != nil || !reflect.DeepEqual(o.OIDC, want) {
			t.Errorf("%s: %+v, not %+v, %v", args, o.OIDC, want, err)
		}
	}
	if _, err := parsed(least + " --oidc-required-claim=a"); err == nil || !strings.Contains(err.Error(), "--oidc-required-claim") {
		t.Errorf("a claim without a value: %v", err)
	}
}
