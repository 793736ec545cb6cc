package flow_test

import (
	"context"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"stele.dev/stele/core/call"
	"stele.dev/stele/core/commit"
	"stele.dev/stele/core/load/flow"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/probes"
	"stele.dev/stele/projections/policies"
	"stele.dev/stele/schemas"
)

// tipOf returns a tip whose policy has these levels and schemas, and came into force at a revision.
func tipOf(t testing.TB, revision uint64, f policy.Flow) *commit.Tip {
	t.Helper()
	form := policy.Form{Version: policy.FormVersion, Cluster: "test", Flow: f}
	encoded, _ := form.Encode()
	p, err := probes.Load(encoded)
	if err != nil {
		t.Fatal(err)
	}
	return &commit.Tip{Policy: p, Policies: &policies.State{Active: &policies.Activation{Proposal: &policies.Proposal{}, Revision: revision}}}
}

// level returns a level with queues, as its shares of 1,000.
func level(name string, shares int) policy.PriorityLevel {
	return policy.PriorityLevel{ID: "flow/priorityLevels/" + name, Name: name, NominalConcurrencyShares: shares, Queuing: &policy.Queuing{Queues: 8, HandSize: 2, QueueLengthLimit: 10},
		Source: schemas.Position{File: "levels.cue", Line: 3}}
}

// schemaFor returns a flow schema of all requests of a user for paths.
func schemaFor(user, level string) policy.FlowSchema {
	return policy.FlowSchema{ID: "flow/flowSchemas/" + user, Name: user, MatchingPrecedence: 500, PriorityLevel: level, Distinguisher: "ByUser",
		Subjects: []policy.Subject{{User: user}}, Source: schemas.Position{File: "flows.cue", Line: 12},
		Rules: []policy.FlowRule{{Verbs: []string{"*"}, NonResourceURLs: []string{"*"}}, {Verbs: []string{"*"}, APIGroups: []string{"*"}, Resources: []string{"*"}}}}
}

// suggested are the levels of Kubernetes that every policy has, each with one share and nothing to lend.
func suggested() (levels []policy.PriorityLevel) {
	for _, name := range []string{"system", "node-high", "leader-election", "workload-high", "workload-low", "global-default"} {
		zero, l := 0, level(name, 1)
		l.BorrowingLimitPercent = &zero
		levels = append(levels, l)
	}
	return levels
}

// requestOf returns a request for a path.
func requestOf(tip *commit.Tip, name string, groups ...string) *call.Call {
	return &call.Call{W: call.NewDiscard(), Received: time.Now(), Tip: tip, User: &user.DefaultInfo{Name: name, Groups: append(groups, user.AllAuthenticated)},
		Info: &request.RequestInfo{Verb: "get", Path: "/some"}}
}

// watchOf returns a watch of a resource.
func watchOf(tip *commit.Tip, name string) *call.Call {
	r := requestOf(tip, name)
	r.Info = &request.RequestInfo{IsResourceRequest: true, Verb: "watch", APIGroup: "apps.example", APIVersion: "v1", Resource: "widgets", Namespace: "a", Path: "/apis/apps.example/v1/namespaces/a/widgets"}
	return r
}

// newControl returns a control with a number of seats.
func newControl(seats int, change ...func(*flow.Options)) *flow.Control {
	o := flow.Options{Seats: seats, Metrics: prometheus.NewPedanticRegistry()}
	for _, f := range change {
		f(&o)
	}
	return flow.New(o)
}

// taken takes seats for a request, which must succeed.
func taken(t testing.TB, c *flow.Control, r *call.Call) *call.Call {
	t.Helper()
	if err := c.Take(t.Context(), r); err != nil {
		t.Fatalf("%s is refused: %v", r.User.GetName(), err)
	}
	return r
}

// refusedOf takes seats for a request, which must fail, and returns the refusal.
func refusedOf(t testing.TB, ctx context.Context, c *flow.Control, r *call.Call) *apierrors.StatusError {
	t.Helper()
	err := c.Take(ctx, r)
	if !apierrors.IsTooManyRequests(err) {
		t.Fatalf("%s gets %v, want 429", r.User.GetName(), err)
	}
	return err.(*apierrors.StatusError)
}

// stateOf returns the state of a level; nil if there is none.
func stateOf(c *flow.Control, name string) *flow.LevelState {
	for _, l := range c.Levels() {
		if l.Name == name {
			return &l
		}
	}
	return nil
}
