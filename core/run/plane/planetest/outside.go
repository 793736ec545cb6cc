package planetest

import (
	"context"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"stele.dev/stele/core"
	"stele.dev/stele/eventlog/memlog"
	"stele.dev/stele/policy"
)

// Outside is an authorizer that is not the policy, as a test has it.
type Outside struct {
	Mu     sync.Mutex
	Asked  []policy.Request
	Answer func(r *policy.Request) policy.Opinion
}

// Authorize implements the authorizer.
func (o *Outside) Authorize(_ context.Context, r *policy.Request) policy.Opinion {
	o.Mu.Lock()
	o.Asked = append(o.Asked, *r)
	answer := o.Answer
	o.Mu.Unlock()
	return answer(r)
}

// ByName implements the authorizer: it decides by names.
func (o *Outside) ByName(*policy.Request) bool { return true }

// Last returns the last request that it was asked about.
func (o *Outside) Last() policy.Request { return o.Before(0) }

// Before returns the n-th request before the last one.
func (o *Outside) Before(n int) policy.Request {
	o.Mu.Lock()
	defer o.Mu.Unlock()
	return o.Asked[len(o.Asked)-1-n]
}

// AskingBundle asks a webhook behind what it says itself.
var AskingBundle = strings.Replace(Bundle, `cluster: "test"`, "cluster: \"test\"\n\tauthorizers: [\"deny\", \"rbac\", \"webhook\"]", 1)

// NewAskingPlane starts a control plane whose policy asks an authorizer outside of it.
func NewAskingPlane(t testing.TB, o *Outside, enforceable core.Enforceable) *Replica {
	t.Helper()
	var store memlog.Store
	bind := func(p *policy.Policy) *policy.Policy {
		return p.WithAuthorizers(func(string) policy.Authorizer { return o })
	}
	r, err := OpenReplicaAsking(t.Context(), store.Open(nil), bind, enforceable)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	r.Bootstrap(t, AskingBundle)
	return r
}

// Opines returns the function of an authorizer that always says the same.
func Opines(v policy.Verdict, reason string) func(*policy.Request) policy.Opinion {
	return func(*policy.Request) policy.Opinion {
		return policy.Opinion{Verdict: v, Reason: reason, Detail: "10.0.0.1 said so"}
	}
}

// Client is client-go's, for a token.
func (r *Replica) Client(t testing.TB, token string) dynamic.Interface {
	t.Helper()
	server := httptest.NewServer(r)
	t.Cleanup(server.Close)
	c, err := dynamic.NewForConfig(&rest.Config{Host: server.URL, BearerToken: token})
	if err != nil {
		t.Fatal(err)
	}
	return c
}
