package explain

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/authentication/user"
	"stele.dev/stele/core/call"
	"stele.dev/stele/core/read"
	"stele.dev/stele/core/status"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/audits"
)

// Trace records the verdicts of the stages of an explained request. It is for one goroutine.
type Trace struct {
	Stages     []Stage
	considered []policy.Considered // the rules that the current stage evaluated
	until      string              // the last stage that runs; "" for all
	ofKinds    bool                // record the rules of kinds as well
}

// NewComplete returns a trace that also records the CEL rules of kinds that were evaluated, with the rule that refused.
func NewComplete() *Trace { return &Trace{ofKinds: true} }

// NewUntil returns a trace that ends a request with a stage.
func NewUntil(stage string) *Trace { return &Trace{until: stage} }

// OfKinds returns [Trace.Consider] if the trace records the rules of kinds, else nil.
func (t *Trace) OfKinds() func(policy.Considered) {
	if t == nil || !t.ofKinds {
		return nil
	}
	return t.Consider
}

// Partial reports whether the request ends before its last stage.
func (t *Trace) Partial() bool { return t.until != "" }

// Ends reports whether a stage is the last one that runs.
func (t *Trace) Ends(stage string) bool { return t.until == stage }

// Consider records a rule that the current stage evaluated.
func (t *Trace) Consider(c policy.Considered) { t.considered = append(t.considered, c) }

// Forget drops the verdicts of a stage and of all later stages.
func (t *Trace) Forget(stage string) {
	if i := slices.IndexFunc(t.Stages, func(x Stage) bool { return x.Name == stage }); i >= 0 {
		t.Stages = t.Stages[:i]
	}
}

// Note records the verdict of the stage that ran, and its error. authorized is the decision before conditions were
// evaluated.
func (t *Trace) Note(c *call.Call, authorized *policy.Decision, err error) {
	s := Stage{Name: c.Stage, Verdict: Passed}
	switch c.Stage {
	case "connection":
		s.Message = c.HTTP.Method + " " + c.HTTP.URL.Path
	case "authentication":
		s.Message = userText(c.Requester)
	case "impersonation":
		if s.Message = "as oneself"; c.User != c.Requester {
			s.Message = "as " + userText(c.User)
		}
	case "flow":
		if x := c.Flow.Schema; x != nil {
			s.Flow = &Flow{Schema: x.Name, PriorityLevel: x.PriorityLevel, Distinguisher: x.Distinguisher, Of: c.Flow.Distinguisher, Watches: x.Watches, Seats: c.Flow.Would, Exempt: x.Level.Exempt}
			s.Rule, s.Source, s.Message = x.ID, x.Source.String(), s.Flow.String()
			if x.Builtin {
				s.Source = "built in"
			}
		}
	case "authorization", "conditions":
		if d := c.Decision; d != nil && (c.Stage == "authorization" || authorized.Pending != nil) {
			s.Rule, s.Source, s.Message = d.Rule, d.Source, d.Reason
			if d.Pending != nil {
				s.Verdict = Open
			}
		}
		if c.Stage == "authorization" && c.Tip.Policy != nil {
			t.considered = c.Tip.Policy.Consider(&c.Access, authorized)
		}
	case "commit":
		if c.Body != nil && c.Body.Options.DryRun {
			s.Message = "a dry run: nothing is written"
		}
	}
	if err != nil {
		if c.Stage == "authorization" {
			t.hideSeats()
		}
		st, _ := status.From(err)
		s.Verdict, s.Message = Refused, st.Message
		if c.Stage == "validation" || c.Stage == "mutation" {
			cause := status.RuleOf(st)
			s.Rule, s.Source = string(cause.Type), cause.Field
		}
		if i := slices.IndexFunc(t.considered, func(c policy.Considered) bool { return c.Verdict == policy.VerdictFails }); (c.Stage == "schema" || c.Stage == "commit") && i >= 0 {
			s.Rule, s.Source = t.considered[i].Rule, t.considered[i].Source
		}
		if beyond := new(read.BeyondError); errors.As(err, &beyond) {
			s.Rule, s.Source = beyond.Decision.Rule, beyond.Decision.Source
		}
	}
	for _, c := range t.considered {
		s.Considered = append(s.Considered, Considered(c))
	}
	t.considered = nil
	t.Forget(s.Name) // a stage that runs again replaces its verdict and those of later stages
	t.Stages = append(t.Stages, s)
}

// hideSeats removes the seats of a request that is not authorized: they depend on how many objects there are.
func (t *Trace) hideSeats() {
	for i := range t.Stages {
		if s := &t.Stages[i]; s.Flow != nil {
			s.Flow.Seats = 0
			s.Message = s.Flow.String()
		}
	}
}

// String describes the flow: "priority level batch, flow of the user dana, 4 seats". It does not name a single seat.
func (f *Flow) String() string {
	text := "priority level " + f.PriorityLevel
	switch f.Distinguisher {
	case "ByUser":
		text += ", flow of the user " + f.Of
	case "ByNamespace":
		if text += ", flow of the namespace " + f.Of; f.Of == "" {
			text = strings.TrimSuffix(text, "the namespace ") + "requests outside of namespaces"
		}
	}
	if f.Seats > 1 {
		text += fmt.Sprintf(", %d seats", f.Seats)
	}
	if f.Watches > 0 {
		text += fmt.Sprintf(", at most %d watches", f.Watches)
	}
	if f.Exempt {
		text += ", which never waits"
	}
	return text
}

func userText(u user.Info) string {
	if u == nil {
		return ""
	}
	return fmt.Sprintf("%s, in groups %s", u.GetName(), strings.Join(u.GetGroups(), ", "))
}

// Verdict returns the result of a call that ended with err.
func Verdict(c *call.Call, err error) Status {
	s := Status{Allowed: err == nil}
	if c.Audit != nil {
		s.Audit = AuditOf(c.Audit.Record)
		if s.Audit.Unruled && err == nil && !c.Write {
			s.Audit = &Audit{Level: audits.LevelName(audits.None), Unruled: true}
		}
	}
	if c.Tip != nil {
		s.Revision = c.Tip.Revision()
		if c.Tip.Policy != nil {
			s.Policy = c.Tip.Policy.DigestString()
		}
	}
	if err != nil {
		st, _ := status.From(err)
		s.Code, s.Reason, s.Message = int(st.Code), string(st.Reason), st.Message
	} else if c.Decision != nil && c.Decision.Pending != nil {
		s.Allowed, s.Message = false, c.Decision.Reason
	}
	return s
}
