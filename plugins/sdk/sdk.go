// Package sdk is the SDK for plugins of stele: authorizers, which decide requests, and admission plugins, which change
// and check what requests write.
//
//	func main() {
//		sdk.Serve(sdk.Plugin[Config]{Name: "curfew", Version: "1.0.0", New: newAuthorizer})
//	}
//
// One program may be both: it sets New and NewAdmission. examples/authorizer-plugin and examples/admission-plugin are
// complete plugins, packages authorizertest and admissiontest test plugins, and docs/PLUGINS.md describes the protocol,
// for languages other than Go.
package sdk

import (
	"context"
	"time"
)

// Authorizer decides requests. It must be safe for concurrent use.
type Authorizer interface {
	// Authorize decides a request. It must return when the context ends: the policy says how long a
	// decision may take. After an error, the failure policy decides; the text of the error is for
	// operators. Authorize MUST NOT keep the request.
	Authorize(ctx context.Context, r *Request) (Decision, error)
}

// Func is a function that implements [Authorizer].
type Func func(ctx context.Context, r *Request) (Decision, error)

// Authorize implements [Authorizer].
func (f Func) Authorize(ctx context.Context, r *Request) (Decision, error) { return f(ctx, r) }

// Plugin is a plugin: an authorizer, an admission plugin, or both. C is the type of its configuration.
type Plugin[C any] struct {
	// Name and Version of the program, for people.
	Name, Version string
	// Schema is CUE with a definition #Config, the schema of configurations. A push of a policy,
	// `stele policy vet` and `stele plugin` check configurations against it, and name the line of each
	// error. Without a schema, the plugin has no configuration. A server that loads a policy does not
	// evaluate CUE and does not set defaults: New must check the configuration.
	Schema string
	// Secrets are the names of the secrets that the plugin needs.
	Secrets []string
	// Deterministic is set if the same request at the same time always gets the same decision. Reviews of
	// admission plugins must always be so.
	Deterministic bool
	// New makes an authorizer with a configuration; it is nil if the plugin is none. The SDK refuses a
	// configuration that does not decode into C or has unknown fields. If there is none, config is C's zero
	// value. All secrets in Secrets are present. If New returns an error, the plugin is not used.
	New func(ctx context.Context, config C, secrets map[string][]byte) (Authorizer, error)
	// NewAdmission makes what reviews writes, as New makes an authorizer; it is nil if the plugin reviews none.
	NewAdmission func(ctx context.Context, config C, secrets map[string][]byte) (Admission, error)
}

// Request is a request to decide on. For a request for a resource, Path is empty; for any other request, the
// fields that describe a resource are empty.
type Request struct {
	User User
	// Verb is the verb in lower case: get, list, watch, create, update, patch, delete,
	// deletecollection, or a custom one; without a resource, it is the HTTP method.
	Verb string

	Group, Version, Resource, Subresource string
	// Namespace is empty for cluster-scoped resources, and for requests across all namespaces.
	Namespace string
	// Name is empty for requests that name no object, such as create and list.
	Name string
	// FieldSelector and LabelSelector are requirements that all requested objects meet.
	FieldSelector, LabelSelector []Requirement

	// Path is the URL's path if the request is not for a resource.
	Path string

	// Time is the time of the decision. Use it instead of a clock, so that tests can set the time.
	Time time.Time
}

// User is the user who sent the request.
type User struct {
	Name, UID string
	Groups    []string
	Extra     map[string][]string
}

// Requirement is a part of a selector, see authorization.k8s.io/v1.
type Requirement struct {
	Key      string
	Operator string // In, NotIn, Exists or DoesNotExist
	Values   []string
}

// Decision is the decision of an [Authorizer]. The zero value is no opinion. Decisions can be compared with
// ==.
type Decision struct {
	verdict verdict
	reason  string
	bounded bool
	ttl     time.Duration
}

type verdict uint8

const (
	noOpinion verdict = iota
	allow
	deny
)

// Allow returns a decision that allows the request. Explanations show the reason.
func Allow(reason string) Decision { return Decision{verdict: allow, reason: reason} }

// Deny returns a decision that refuses the request, whatever other authorizers decide. The user sees the
// reason.
func Deny(reason string) Decision { return Decision{verdict: deny, reason: reason} }

// NoOpinion returns a decision that leaves the request to the next authorizer.
func NoOpinion() Decision { return Decision{} }

// CacheFor returns the decision with a limit on how long it may be cached for requests that differ in the
// time only; 0 means not at all. Without a limit, and as an upper bound, the policy's cacheTTL applies.
func (d Decision) CacheFor(ttl time.Duration) Decision {
	d.bounded, d.ttl = true, max(ttl, 0)
	return d
}

// String returns the decision as text for logs.
func (d Decision) String() string {
	s := [...]string{noOpinion: "no opinion", allow: "allow", deny: "deny"}[d.verdict]
	if d.reason != "" {
		s += ": " + d.reason
	}
	return s
}
