package main

import (
	"fmt"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"stele.dev/stele/core/authn"
)

// tokenWebhookOptions are the flags about a server that is asked whose tokens are. They have kube-apiserver's names.
type tokenWebhookOptions struct {
	file, version string
	cacheTTL      time.Duration
}

func (o *tokenWebhookOptions) addFlags(f *pflag.FlagSet) {
	f.StringVar(&o.file, "authentication-token-webhook-config-file", "", "kubeconfig of a server that is asked by TokenReview whose bearer tokens are; read again when it changes, or its certificates do")
	f.StringVar(&o.version, "authentication-token-webhook-version", "v1", "version of TokenReview that it is asked by: v1 or v1beta1")
	f.DurationVar(&o.cacheTTL, "authentication-token-webhook-cache-ttl", 2*time.Minute, "how long its answer that a token is valid is used again")
}

// authenticator is nil without an error if nobody is to be asked.
func (o *tokenWebhookOptions) authenticator(audiences authenticator.Audiences) (authenticator.Token, error) {
	if o.cacheTTL < 0 {
		return nil, fmt.Errorf("--authentication-token-webhook-cache-ttl %s: want a duration that is not negative", o.cacheTTL)
	}
	if o.file == "" {
		return nil, nil
	}
	w, err := authn.NewWebhook(authn.WebhookOptions{File: o.file, Version: o.version, CacheTTL: o.cacheTTL, Audiences: audiences})
	if err != nil {
		return nil, fmt.Errorf("--authentication-token-webhook-config-file: %w", err)
	}
	return w, nil
}
