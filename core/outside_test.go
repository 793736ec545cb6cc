package core_test

import (
	"context"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"stele.dev/stele/core/resources/activation"
	"stele.dev/stele/core/run/plane/planetest"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/compile"
	"stele.dev/stele/schemas"
)

// An authorizer outside of the policy is asked what clients ask, with their selectors.
func TestSelectorsReachAuthorizers(t *testing.T) {
	o := &planetest.Outside{Answer: planetest.Opines(policy.Allows, "")}
	r := planetest.NewAskingPlane(t, o, nil)
	widgets := r.Client(t, "nobody-token").Resource(planetest.WidgetsResource.WithVersion("v1")).Namespace("default")
	ask := func(verbs ...string) { // the last of which is what it heard last
		t.Helper()
		for n, verb := range verbs {
			if got := o.Before(len(verbs) - 1 - n); got.Verb != verb || got.User != "nobody" || got.Resource != "widgets" || got.Namespace != "default" || got.Selectors == nil ||
				len(got.Selectors.Labels) != 1 || got.Selectors.Labels[0].String() != "team=a" || len(got.Selectors.Fields) != 1 || got.Selectors.Fields[0].Field != "spec.color" {
				t.Errorf("of a %s it heard %+v, %+v", verb, got, got.Selectors)
			}
		}
	}
	selected := metav1.ListOptions{LabelSelector: "team=a", FieldSelector: "spec.color=red"}
	if _, err := widgets.List(t.Context(), selected); err != nil {
		t.Fatal(err)
	}
	ask("list")
	watch, err := widgets.Watch(t.Context(), selected)
	if err != nil {
		t.Fatal(err)
	}
	watch.Stop()
	ask("watch")
	if err := widgets.DeleteCollection(t.Context(), metav1.DeleteOptions{}, selected); err != nil {
		t.Fatal(err)
	}
	ask("deletecollection", "list") // the answer shows what was there
	if _, err := widgets.Get(t.Context(), "x", metav1.GetOptions{}); err == nil {
		t.Error("there is an object")
	}
	if got := o.Last(); got.Verb != "get" || got.Selectors != nil {
		t.Errorf("of a get it heard %+v", got)
	}
}

// Who is refused reads the authorizer's reason, and no detail; who is allowed is in the log with it.
func TestWhatAnAuthorizerSaid(t *testing.T) {
	o := &planetest.Outside{Answer: planetest.Opines(policy.Denies, "outside of the change window")}
	r := planetest.NewAskingPlane(t, o, nil)
	a := r.Must(t, http.StatusForbidden, "POST", planetest.WidgetsPath, planetest.Widget("w", 1), "Authorization", "Bearer nobody-token")
	if text := string(a.Body); !strings.Contains(text, "outside of the change window") || strings.Contains(text, "10.0.0.1") {
		t.Errorf("the caller reads %s", text)
	}
	o.Answer = planetest.Opines(policy.Allows, "ticket 5")
	r.Must(t, http.StatusCreated, "POST", planetest.WidgetsPath, planetest.Widget("w", 1), "Authorization", "Bearer nobody-token", "Audit-ID", "the-write")
	e := r.Must(t, http.StatusOK, "GET", "/apis/policy.stele.dev/v1/explanations/the-write", "")
	if text := string(e.Body); !strings.Contains(text, `"rule":"webhook"`) || !strings.Contains(text, "ticket 5") {
		t.Errorf("of the write it is known %s", text)
	}
	r.Must(t, http.StatusCreated, "POST", planetest.WidgetsPath, planetest.Widget("by-rbac", 1), "Authorization", "Bearer editor-token")
	if n := len(o.Asked); n != 2 {
		t.Errorf("it was asked %d times, want 2: what the policy allows ends the chain", n)
	}
	var explained = r.Must(t, http.StatusCreated, "POST", "/apis/policy.stele.dev/v1/explanations", `{"apiVersion":"policy.stele.dev/v1","kind":"Explanation","spec":{"verb":"get","group":"example.com","version":"v1","resource":"widgets","namespace":"default","name":"w","user":"zoe"}}`)
	if text := string(explained.Body); !strings.Contains(text, `"verdict":"allows","reason":"ticket 5","detail":"10.0.0.1 said so"`) {
		t.Errorf("the explanation is %s", text)
	}
}

// P3: what an authorizer allowed under one policy is decided again if another one is in force by the time
// of the commit.
func TestWhatWasAllowedOutsideIsDecidedAgainUnderTheNextPolicy(t *testing.T) {
	o := &planetest.Outside{}
	r := planetest.NewAskingPlane(t, o, nil)
	var activated atomic.Bool
	o.Answer = func(*policy.Request) policy.Opinion {
		if !activated.Swap(true) {
			if _, err := activation.ActivateCompiled(context.Background(), r.Committer, planetest.Compile(t, planetest.Bundle), "test"); err != nil {
				t.Error(err)
			}
		}
		return policy.Opinion{Verdict: policy.Allows}
	}
	a := r.Must(t, http.StatusForbidden, "POST", planetest.WidgetsPath, planetest.Widget("w", 1), "Authorization", "Bearer nobody-token")
	if got, want := a.Header.Get("Stele-Policy"), r.Committer.Tip().Policy.DigestString(); got != want {
		t.Errorf("it was decided by %s, in force is %s", got, want)
	}
	if n := len(o.Asked); n != 1 {
		t.Errorf("it was asked %d times: the next policy does not ask it", n)
	}
}

// Reviews have selectors, with upstream's rules for what is wrong with them.
func TestReviewsOfSelections(t *testing.T) {
	o := &planetest.Outside{Answer: planetest.Opines(policy.Allows, "")}
	r := planetest.NewAskingPlane(t, o, nil)
	for name, tc := range map[string]struct {
		selectors string
		code      int
		want      string // in the answer
		asked     string // of the selectors
	}{
		"both, raw":       {`"fieldSelector":{"rawSelector":"a=b"},"labelSelector":{"rawSelector":"x=1"}`, 201, `"allowed":true`, "a=b x=1"},
		"both, as lists":  {`"fieldSelector":{"requirements":[{"key":"a","operator":"In","values":["b"]}]},"labelSelector":{"requirements":[{"key":"x","operator":"Exists"}]}`, 201, `"allowed":true`, "a=b x"},
		"a broken text":   {`"fieldSelector":{"rawSelector":"a"}`, 201, `"evaluationError":"spec.resourceAttributes.fieldSelector ignored due to parse error"`, ""},
		"an operator":     {`"labelSelector":{"requirements":[{"key":"x","operator":"Near","values":["1"]},{"key":"y","operator":"Exists"}]}`, 201, `"evaluationError":"spec.resourceAttributes.labelSelector partially ignored due to parse error"`, "y"},
		"text and list":   {`"fieldSelector":{"rawSelector":"a=b","requirements":[{"key":"a","operator":"In","values":["b"]}]}`, 422, "may not specified at the same time as requirements", ""},
		"neither":         {`"labelSelector":{}`, 422, "requirements or rawSelector is required", ""},
		"values too many": {`"labelSelector":{"requirements":[{"key":"x","operator":"Exists","values":["1"]}]}`, 422, "may not be specified when `operator` is 'Exists' or 'DoesNotExist'", ""},
	} {
		t.Run(name, func(t *testing.T) {
			a := r.Must(t, tc.code, "POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews",
				`{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","spec":{"user":"zoe","resourceAttributes":{"verb":"list","group":"example.com","resource":"widgets",`+tc.selectors+`}}}`)
			if !strings.Contains(string(a.Body), tc.want) {
				t.Errorf("it says %s, want %s", a.Body, tc.want)
			}
			if tc.code != 201 {
				return
			}
			s, got := o.Last().Selectors, []string{}
			for _, f := range s.Fields {
				got = append(got, f.Field+string(f.Operator)+f.Value)
			}
			for i := range s.Labels {
				got = append(got, s.Labels[i].String())
			}
			if strings.Join(got, " ") != tc.asked {
				t.Errorf("it was asked about %q, want %q", got, tc.asked)
			}
		})
	}
}

// A policy that this replica cannot enforce does not come in force: the answer says why, and where it stands.
func TestAPolicyThatCannotBeEnforcedHereIsRefused(t *testing.T) {
	wrong := schemas.Diagnostic{Pos: schemas.Position{File: "bundle.cue", Line: 7, Column: 2}, Path: "bundle.plugins.p", Message: "the plugin cannot be used here: there is no such program", Hint: "put it there"}
	r := planetest.NewAskingPlane(t, &planetest.Outside{Answer: planetest.Opines(policy.SaysNothing, "")}, func(_ context.Context, compiled *compile.Result) schemas.Diagnostics {
		if len(compiled.Form.Authorizers) == 0 {
			return schemas.Diagnostics{wrong}
		}
		return nil
	})
	before := r.Committer.Tip().Revision()
	for _, query := range []string{"", "?dryRun=All"} {
		a := r.Must(t, http.StatusUnprocessableEntity, "POST", "/apis/policy.stele.dev/v1/policies"+query, planetest.PolicyBody(t, planetest.Bundle, nil))
		for _, want := range []string{"bundle.cue:7", "bundle.plugins.p", "there is no such program", "put it there"} {
			if !strings.Contains(string(a.Body), want) {
				t.Errorf("the answer lacks %q: %s", want, a.Body)
			}
		}
	}
	if now := r.Committer.Tip().Revision(); now != before {
		t.Errorf("revision %d, was %d", now, before)
	}
}

// Who proposes a chain with one more authorizer is told what that means.
func TestAnAuthorizerThatJoinsTheChainIsSaid(t *testing.T) {
	r := planetest.NewAskingPlane(t, &planetest.Outside{Answer: planetest.Opines(policy.SaysNothing, "")}, nil)
	more := strings.Replace(planetest.AskingBundle, `"webhook"]`, `"webhook", "abac"]`, 1)
	a := r.Must(t, http.StatusCreated, "POST", "/apis/policy.stele.dev/v1/policies?dryRun=All", planetest.PolicyBody(t, more, nil))
	if got := strings.Join(a.Header.Values("Warning"), "\n"); !strings.Contains(got, "abac joins the chain") || strings.Contains(got, "webhook joins") {
		t.Errorf("it warns %s", got)
	}
}

// What may be seen cannot be decided while an authorizer fails: who may see it by the policy itself is told so, where
// else changes would be missing without a word. Others see nothing, and so do not learn what there is.
func TestChangesAreNotLeftOutBecauseAnAuthorizerFails(t *testing.T) {
	var failing atomic.Bool
	o := &planetest.Outside{Answer: func(r *policy.Request) policy.Opinion {
		switch {
		case r.Resource == "changes":
			return policy.Opinion{Verdict: policy.Allows}
		case failing.Load():
			return policy.Opinion{Verdict: policy.Denies, Reason: "it is unavailable", Failed: true}
		}
		return policy.Opinion{}
	}}
	r := planetest.NewAskingPlane(t, o, nil)
	r.Bootstrap(t, strings.Replace(planetest.AskingBundle, `"rbac", "webhook"`, `"webhook", "rbac"`, 1))
	before := r.Committer.Tip().Revision()
	r.Must(t, http.StatusCreated, "POST", planetest.WidgetsPath, planetest.Widget("w", 1))
	all := fmt.Sprintf("%s?fieldSelector=since%%3D%d", planetest.ChangesPath, before+1)
	one := fmt.Sprintf("%s/%d", planetest.ChangesPath, before+1)
	reader, nobody := []string{"Authorization", "Bearer reader-token"}, []string{"Authorization", "Bearer nobody-token"}

	failing.Store(true)
	r.Must(t, http.StatusServiceUnavailable, "GET", all, "", reader...)
	r.Must(t, http.StatusServiceUnavailable, "GET", one, "", reader...)
	w := r.Watch(t, fmt.Sprintf("%s?watch=1&resourceVersion=%d", planetest.ChangesPath, before), reader...)
	if e := w.Next(t); e.Type != "ERROR" || e.Object["code"] != float64(http.StatusServiceUnavailable) {
		t.Errorf("who follows is sent %v", e)
	}
	if got := r.Must(t, http.StatusOK, "GET", all, "", nobody...).Revisions(); len(got) != 0 {
		t.Errorf("who may not see it sees %v", got)
	}
	r.Must(t, http.StatusNotFound, "GET", one, "", nobody...)

	failing.Store(false)
	if got := r.Must(t, http.StatusOK, "GET", all, "", reader...).Revisions(); len(got) != 1 {
		t.Errorf("when it answers again they see %v", got)
	}
}

// Who waits for an authorizer keeps nobody from reading history who does not.
func TestAnAuthorizerThatIsSlowStallsNoOtherReader(t *testing.T) {
	asked, answers := make(chan struct{}, 100), make(chan struct{})
	o := &planetest.Outside{Answer: func(r *policy.Request) policy.Opinion {
		if r.Resource == "widgets" {
			asked <- struct{}{}
			<-answers
		}
		return policy.Opinion{Verdict: policy.Allows}
	}}
	r := planetest.NewAskingPlane(t, o, nil)
	r.Must(t, http.StatusCreated, "POST", planetest.WidgetsPath, planetest.Widget("w", 1))
	var readers sync.WaitGroup
	for range 2 * runtime.GOMAXPROCS(0) {
		readers.Go(func() { r.Do("GET", planetest.ChangesPath, "", "Authorization", "Bearer nobody-token") })
	}
	for range 2 * runtime.GOMAXPROCS(0) {
		<-asked
	}
	r.Must(t, http.StatusOK, "GET", planetest.ChangesPath, "")
	close(answers)
	readers.Wait()
}
