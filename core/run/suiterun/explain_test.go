package suiterun_test

import (
	"os"
	"strings"
	"testing"

	"stele.dev/stele/core/run/suiterun"
	"stele.dev/stele/policy/bundles"
	"stele.dev/stele/policy/compile"
	"stele.dev/stele/policy/suites"
)

// TestExplainSaysTheFlow explains requests by a bundle alone.
func TestExplainSaysTheFlow(t *testing.T) {
	source, err := bundles.ReadFS(os.DirFS("../../../examples/platform"), "clusters/dev")
	if err != nil {
		t.Fatal(err)
	}
	compiled, diags := compile.Bundle(source)
	if len(diags) > 0 {
		t.Fatal(diags)
	}
	r, err := suiterun.New(t.Context(), compiled, suiterun.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	alice := &suites.Person{User: "alice", Groups: []string{"team-widgets"}}
	controller := &suites.Person{User: "system:serviceaccount:widgets-system:controller"}
	for name, tc := range map[string]struct {
		as         *suites.Person
		q          suites.Request
		everywhere bool
		flow       string
		source     string
		allowed    bool
	}{
		"a list everywhere":     {alice, suites.Request{Verb: "list", Resource: "widgets"}, true, "priority level reports, flow of the user alice, at most 32 watches", "base/flow.cue:", false},
		"a list in a namespace": {alice, suites.Request{Verb: "list", Resource: "widgets"}, false, "priority level global-default, flow of the user alice", "built in", false},
		"a watch everywhere":    {alice, suites.Request{Verb: "watch", Resource: "widgets"}, true, "priority level reports, flow of the user alice, at most 32 watches", "base/flow.cue:", false},
		"a get of what is not there": {alice, suites.Request{Verb: "get", Resource: "widgets", Namespace: in("widgets-dev"), Name: "x"}, false,
			"priority level global-default, flow of the user alice", "built in", true},
		"a write without the object": {alice, suites.Request{Verb: "create", Resource: "widgets", Namespace: in("widgets-dev")}, false,
			"priority level global-default, flow of the user alice", "built in", true},
		"a write with the object": {alice, suites.Request{Verb: "create", Object: []byte(`{"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "x", "namespace": "widgets-dev"}, "spec": {"size": 5000}}`)}, false,
			"priority level global-default, flow of the user alice", "built in", false},
		"an account of a team": {controller, suites.Request{Verb: "list", Resource: "widgets"}, true, "priority level controllers, flow of the user system:serviceaccount:widgets-system:controller", "base/flow.cue:", false},
		"a probe":              {alice, suites.Request{Verb: "get", Path: "/livez"}, false, "priority level exempt, which never waits", "built in", true},
	} {
		t.Run(name, func(t *testing.T) {
			e, err := r.Explain(t.Context(), tc.as, &tc.q, tc.everywhere)
			if err != nil {
				t.Fatal(err)
			}
			found := false
			for _, s := range e.Status.Stages {
				if s.Name == "flow" {
					found = true
					if s.Message != tc.flow || !strings.HasPrefix(s.Source, tc.source) {
						t.Errorf("%s (%s), want %s", s.Message, s.Source, tc.flow)
					}
				}
			}
			if !found || e.Status.Allowed != tc.allowed {
				t.Errorf("allowed %t: %+v", e.Status.Allowed, e.Status)
			}
		})
	}
	if _, err := r.Explain(t.Context(), alice, &suites.Request{Verb: "list", Resource: "widgts"}, false); err == nil || !strings.Contains(err.Error(), `did you mean "widgets"?`) {
		t.Error(err)
	}
}

func in(namespace string) *string { return &namespace }
