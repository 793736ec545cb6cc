package suiterun

import (
	"context"
	"encoding/json"
	"net/http/httptest"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"stele.dev/stele/core/call"
	"stele.dev/stele/core/resources/explain"
	"stele.dev/stele/core/reviewers/review"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/suites"
)

// Answer is what a request of a test got.
type Answer struct {
	Code int
	// Stage is the stage that refused; "" if the request succeeded.
	Stage string
	// Rules are the rules that decided. If several rules refuse, all of them.
	Rules   []Rule
	Message string
	// Flow is the flow of the request; nil if a stage before flow refused it.
	Flow *explain.Flow
	// Audit is what the audit log records of the request; nil if it was refused before its user was known.
	Audit *explain.Audit
	// Fields are the messages about fields that are wrong, by their paths.
	Fields map[string]string
	Object map[string]any // nil if the answer has none
	// Mutations are the ids of what changed the object, in their order.
	Mutations []string
	Warnings  []string
	Names     []string // of the objects of a list, sorted
	// Stages are the verdicts of all stages.
	Stages []explain.Stage

	target *target
	listed bool
}

// Rule is a rule and where it is written.
type Rule struct{ ID, Source string }

// Result is the result of a test.
type Result struct {
	Test   *suites.Test
	Answer *Answer
	// Failures say what is not as expected; empty if the test passed.
	Failures []string
	// Why says which rules were considered, if the test failed.
	Why []string
}

// Run runs a test. [Runner.Check] must have accepted its suite. The error is not about the test: the context ended, or the
// control plane failed.
func (r *Runner) Run(ctx context.Context, s *suites.Suite, t *suites.Test) (*Result, error) {
	a, err := r.ask(ctx, s, t)
	if err != nil {
		return nil, err
	}
	result := &Result{Test: t, Answer: a, Failures: compare(&t.Expect, a)}
	if len(result.Failures) > 0 {
		result.Why = a.consideredRules()
	}
	return result, nil
}

// ask makes the request of a test.
func (r *Runner) ask(ctx context.Context, s *suites.Suite, t *suites.Test) (*Answer, error) {
	target, err := r.target(&t.Request)
	if err != nil {
		return nil, err
	}
	tip, err := r.state(slices.Concat(s.Given, t.Given))
	if err != nil {
		return nil, err
	}
	opinions := map[string]suites.Opinion{}
	for _, from := range []map[string]suites.Opinion{s.Authorizers, t.Authorizers} {
		for name, o := range from {
			opinions[name] = o
		}
	}
	tip.Policy = r.bound(opinions)
	q, only, err := target.http(review.WithAnswers(policy.Explain(ctx), answers(s.Reviewers, t.Reviewers)), tip)
	if err != nil {
		return nil, err
	}
	name, groups := t.As.Authenticated()
	as := &call.Call{
		User: &user.DefaultInfo{Name: name, UID: t.As.UID, Groups: groups, Extra: t.As.Extra}, Tip: tip, Confirmed: true, Received: target.time, AuditID: "test",
	}
	if as.Received.IsZero() {
		as.Received = time.Now()
	}
	w := httptest.NewRecorder()
	trace := explain.NewComplete()
	verdict, warnings := r.pipeline.Try(q.Context(), as, q, w, only, trace)
	verdict.Stages = trace.Stages
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return answerOf(target, &verdict, w, warnings), nil
}

// answerOf returns what a request got.
func answerOf(t *target, verdict *explain.Status, w *httptest.ResponseRecorder, warnings []string) *Answer {
	a := &Answer{Code: verdict.Code, Message: verdict.Message, Warnings: warnings, Stages: verdict.Stages, Audit: verdict.Audit, Fields: map[string]string{}, target: t}
	if a.Code == 0 && verdict.Allowed {
		a.Code = 200
	}
	text := w.Body.Bytes()
	s := statusOf(text)
	for i := range a.Stages {
		stage := &a.Stages[i]
		if stage.Verdict == explain.Refused {
			a.Stage = stage.Name
		}
		if stage.Flow != nil {
			a.Flow = stage.Flow
		} else if stage.Rule != "" && (stage.Verdict == explain.Refused || a.Code < 400) {
			a.Rules = []Rule{{stage.Rule, stage.Source}}
		}
		for _, c := range stage.Considered {
			if stage.Name == "mutation" && policy.Changes(c.Verdict) {
				a.Mutations = append(a.Mutations, c.Rule)
			}
		}
		if stage.Verdict == explain.Refused && stage.Name == "schema" {
			a.Rules = nil
			for _, c := range stage.Considered {
				if rule := (Rule{c.Rule, c.Source}); c.Verdict == policy.VerdictFails && !slices.Contains(a.Rules, rule) {
					a.Rules = append(a.Rules, rule)
				}
			}
		}
	}
	if a.Code >= 400 {
		a.causes(s)
		return a
	}
	a.Message = ""
	if s == nil {
		a.read(text)
	}
	return a
}

// causes reads the rules and the fields that a refusal names.
func (a *Answer) causes(s *metav1.Status) {
	if s == nil || s.Details == nil {
		return
	}
	if a.Stage == "validation" || a.Stage == "mutation" {
		a.Rules = nil
		for _, c := range s.Details.Causes {
			a.Rules = append(a.Rules, Rule{string(c.Type), c.Field})
		}
		return
	}
	for _, c := range s.Details.Causes {
		if c.Field == "" || c.Field == "<nil>" { // about the whole object, for example that some rules were not checked
			continue
		}
		if before := a.Fields[c.Field]; before != "" {
			a.Fields[c.Field] = before + "\n" + c.Message
		} else {
			a.Fields[c.Field] = c.Message
		}
	}
}

// read reads the object or the list of an answer.
func (a *Answer) read(text []byte) {
	d := json.NewDecoder(strings.NewReader(string(text)))
	d.UseNumber()
	var object map[string]any
	if d.Decode(&object) != nil {
		return
	}
	items, list := object["items"].([]any)
	if !list || a.target.Verb != "list" {
		a.Object = object
		return
	}
	a.listed = true
	for _, item := range items {
		fields, _ := item.(map[string]any)
		meta, _ := fields["metadata"].(map[string]any)
		name, _ := meta["name"].(string)
		a.Names = append(a.Names, name)
	}
	slices.Sort(a.Names)
}
