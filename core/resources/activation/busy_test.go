package activation_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"stele.dev/stele/core"
	"stele.dev/stele/core/resources/activation"
	"stele.dev/stele/core/run/plane/planetest"
	"stele.dev/stele/eventlog/memlog"
	"stele.dev/stele/limits/child"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/bundles"
	"stele.dev/stele/policy/compile"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/program"
)

// busy is an evaluator that says so.
type busy struct{ verdict schemas.Verdict }

func (b busy) Evaluate(string, []byte) schemas.Verdict { return b.verdict }

// A client that is refused because the machine is busy may try again; one whose object CUE cannot check may not.
func TestWhatIsNotCheckedBecauseTheMachineIsBusyMayBeTriedAgain(t *testing.T) {
	const text = `
package test
import "stele.dev/policy"
bundle: policy.#Bundle & {
	cluster: "test"
	teams: t: {
		contact: "#t", groups: ["*"], namespaces: ["*"]
		kinds: "widgets.example.com": {
			group: "example.com", names: {kind: "Widget", plural: "widgets"}, storageVersion: "v1"
			versions: v1: #schema: spec!: {size!: int, double: *(size * 2) | int}
		}
	}
}
`
	for _, c := range []struct {
		verdict schemas.Verdict
		code    int
		retry   string
	}{
		{schemas.Verdict{Failed: "what checks it could not be started", Busy: true}, http.StatusServiceUnavailable, "1"},
		{schemas.Verdict{Failed: "checking it crashed"}, http.StatusUnprocessableEntity, ""},
	} {
		var store memlog.Store
		r, err := planetest.OpenReplicaAsking(t.Context(), store.Open(nil), func(p *policy.Policy) *policy.Policy {
			encoded, _ := p.Form().Encode()
			p, err := policy.New(encoded, program.EvaluateWith(busy{c.verdict}))
			if err != nil {
				t.Error(err)
			}
			return p
		}, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(r.Close)
		r.Bootstrap(t, text)
		for _, query := range []string{"", "?dryRun=All"} {
			a := r.Must(t, c.code, "POST", planetest.WidgetsPath+query, planetest.Widget("w", 1))
			if got := a.Header.Get("Retry-After"); got != c.retry || !strings.Contains(string(a.Body), "could not be checked: "+c.verdict.Failed) {
				t.Errorf("%+v: Retry-After %q: %s", c.verdict, got, a)
			}
		}
	}
}

// A push that could not be compiled because the machine is busy is no bad policy.
func TestAPushThatTheMachineIsTooBusyForMayBeTriedAgain(t *testing.T) {
	r := planetest.NewPlane(t)
	r.Pipeline = core.New(core.Options{Committer: r.Committer, Log: r.Log, History: r.History, Authenticator: r.Authenticator,
		Compile: func(context.Context, *bundles.Source) (*compile.Result, schemas.Diagnostics, error) {
			return nil, nil, &child.Starved{Why: "the machine is too busy"}
		}})
	a := r.Must(t, http.StatusServiceUnavailable, "POST", "/apis/policy.stele.dev/v1/policies", planetest.PolicyBody(t, planetest.Bundle, nil))
	if a.Header.Get("Retry-After") != "1" || !strings.Contains(string(a.Body), "the machine is too busy") {
		t.Errorf("it answers %s, Retry-After %q", a, a.Header.Get("Retry-After"))
	}
}

// A push, which may be an emergency, does not wait for policies that somebody asks about.
func TestAPushDoesNotWaitForPlans(t *testing.T) {
	r := planetest.NewPlane(t)
	began, release := make(chan struct{}), make(chan struct{})
	r.Pipeline = core.New(core.Options{Committer: r.Committer, Log: r.Log, History: r.History, Authenticator: r.Authenticator,
		Compile: func(ctx context.Context, source *bundles.Source) (*compile.Result, schemas.Diagnostics, error) {
			if strings.Contains(source.Package, "slow") {
				began <- struct{}{}
				<-release
			}
			return planetest.CompileHere(ctx, source)
		}})
	slow := planetest.PolicyBody(t, planetest.Bundle, func(p *activation.Policy) { p.Spec.Package = "./slow" })
	answers := make(chan planetest.Answer, 2)
	for _, path := range []string{"/apis/policy.stele.dev/v1/policies?dryRun=All", "/apis/policy.stele.dev/v1/plans"} {
		body := slow
		if strings.HasSuffix(path, "plans") {
			body = strings.Replace(body, `"kind":"Policy"`, `"kind":"Plan"`, 1)
		}
		go func() { answers <- r.Do("POST", path, body) }()
	}
	<-began
	r.Must(t, http.StatusOK, "POST", "/apis/policy.stele.dev/v1/policies", planetest.PolicyBody(t, planetest.Bundle, nil)) // it is in force
	release <- struct{}{}
	<-began
	release <- struct{}{}
	for range 2 {
		<-answers
	}
}
