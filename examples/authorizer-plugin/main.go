// Command authorizer-plugin is an authorizer plugin of stele: it allows deletes only within a change window, or
// with the number of a ticket. README.md says how to build and use it.
package main

import (
	"context"
	"slices"

	"stele.dev/stele/plugins/sdk"
)

func main() { sdk.Serve(plugin) }

var plugin = sdk.Plugin[Config]{
	Name: "change-window", Version: "1.0.0", Schema: schema, Deterministic: true, New: newAuthorizer,
}

func newAuthorizer(_ context.Context, config Config, _ map[string][]byte) (sdk.Authorizer, error) {
	zone, ticket, err := config.parse()
	if err != nil {
		return nil, err
	}
	refusal := config.refusal()
	return sdk.Func(func(_ context.Context, r *sdk.Request) (sdk.Decision, error) {
		hour := r.Time.In(zone).Hour()
		switch {
		case r.Resource == "" || r.Verb != "delete" && r.Verb != "deletecollection":
			return sdk.NoOpinion(), nil
		case slices.ContainsFunc(r.User.Extra["example.com/ticket"], ticket.MatchString):
			return sdk.NoOpinion(), nil
		case !config.Freeze && config.From <= hour && hour < config.To:
			return sdk.NoOpinion().CacheFor(0), nil
		}
		return sdk.Deny(refusal).CacheFor(0), nil
	}), nil
}
