// Package sdk is what authorizer plugins of stele are written with:
//
//	func main() {
//		sdk.Serve(sdk.Plugin[Config]{Name: "curfew", Version: "1.0.0", New: newAuthorizer})
//	}
//
// examples/authorizer-plugin is a whole one, package authorizertest tests them, and
// docs/PLUGINS.md has what goes on underneath, for languages other than Go.
package sdk

import (
	"context"
	"time"
)

// Authorizer decides requests. It is called for many at the same time.
type Authorizer interface {
	// Authorize decides a request. It gives up when the context ends, which is soon: the
	// policy says how long a decision may take. An error is no decision, and what comes of
	// it is said by the policy; its text is for operators. The request MUST NOT be kept.
	Authorize(ctx context.Context, r *Request) (Decision, error)
}

// Func is a function as an [Authorizer].
type Func func(ctx context.Context, r *Request) (Decision, error)

// Authorize implements [Authorizer].
func (f Func) Authorize(ctx context.Context, r *Request) (Decision, error) { return f(ctx, r) }

// Plugin is a program that authorizes, configured by a C.
type Plugin[C any] struct {
	// Name and Version of the program, for people.
	Name, Version string
	// Schema is CUE with a definition #Config, which configurations must fit: a push of a policy,
	// `stele policy vet` and `stele plugin` hold them against it, and say what is wrong where the
	// configuration stands. Without one, no configuration is taken. A replica that loads a policy
	// has no CUE at hand, and defaults are not filled in: New checks what it is given.
	Schema string
	// Secrets are the names of those that it needs.
	Secrets []string
	// Deterministic: the same request at the same time is always decided in the same way.
	Deterministic bool
	// New makes the authorizer of a configuration. A configuration that is no C, or has
	// fields that C does not have, does not come here; without one it is C's zero value.
	// Every secret of Secrets is there. An error keeps the plugin from being used.
	New func(ctx context.Context, config C, secrets map[string][]byte) (Authorizer, error)
}

// Request is what is to be decided. Of a request for a resource, Path is empty; of one
// that is for none, all that describes a resource is.
type Request struct {
	User User
	// Verb in lower case: get, list, watch, create, update, patch, delete, deletecollection,
	// or another one that is asked for; of requests for no resource, the HTTP method.
	Verb string

	Group, Version, Resource, Subresource string
	// Namespace is empty if there is none, and for all of them.
	Namespace string
	// Name is empty where the request names none: of creates and lists.
	Name string
	// FieldSelector and LabelSelector are requirements that all of what it is about meets.
	FieldSelector, LabelSelector []Requirement

	// Path of a request for no resource.
	Path string

	// Time of the decision. It is to be used instead of a clock: tests say what time it is.
	Time time.Time
}

// User is who asks.
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

// Decision is what an [Authorizer] says. The zero value is no opinion. Decisions can be
// compared with ==.
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

// Allow allows the request. The reason is for who asks for an explanation.
func Allow(reason string) Decision { return Decision{verdict: allow, reason: reason} }

// Deny refuses the request, whatever others would say. The reason is shown to who sent it.
func Deny(reason string) Decision { return Decision{verdict: deny, reason: reason} }

// NoOpinion leaves the request to the next authorizer.
func NoOpinion() Decision { return Decision{} }

// CacheFor says for how long the decision holds for requests that differ in nothing but
// the time; not at all if that is zero. The policy bounds it, and otherwise decides alone.
func (d Decision) CacheFor(ttl time.Duration) Decision {
	d.bounded, d.ttl = true, max(ttl, 0)
	return d
}

// String returns the decision as it is written in logs.
func (d Decision) String() string {
	s := [...]string{noOpinion: "no opinion", allow: "allow", deny: "deny"}[d.verdict]
	if d.reason != "" {
		s += ": " + d.reason
	}
	return s
}
