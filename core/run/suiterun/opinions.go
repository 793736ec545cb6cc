package suiterun

import (
	"context"

	"stele.dev/stele/policy"
	"stele.dev/stele/policy/suites"
)

// bound returns the policy with authorizers outside of it that answer as a test says. Those that it does not name have no
// opinion.
func (r *Runner) bound(opinions map[string]suites.Opinion) *policy.Policy {
	if len(r.policy.Form().Outside()) == 0 {
		return r.policy
	}
	return r.policy.WithAuthorizers(func(name string) policy.Authorizer {
		return stub{opinions[name], r.policy.Form().Plugin(name)}
	})
}

// stub is an authorizer that always gives the same answer.
type stub struct {
	opinion suites.Opinion
	plugin  *policy.Plugin // nil if it is none
}

// Authorize implements [policy.Authorizer].
func (s stub) Authorize(context.Context, *policy.Request) policy.Opinion {
	if s.plugin != nil && s.plugin.Shadow {
		return policy.Opinion{Detail: "it is asked in shadow mode, and its answer does not count"}
	}
	switch s.opinion {
	case suites.Allow:
		return policy.Opinion{Verdict: policy.Allows, Reason: "the test lets it allow"}
	case suites.Deny:
		return policy.Opinion{Verdict: policy.Denies, Reason: "the test lets it deny"}
	case suites.Unavailable:
		o := policy.Opinion{Verdict: policy.Denies, Reason: "the authorizer is unavailable", Failed: true}
		if s.plugin != nil && s.plugin.FailurePolicy == "NoOpinion" {
			o.Verdict = policy.SaysNothing
		}
		return o
	}
	return policy.Opinion{}
}

// ByName implements [policy.Authorizer].
func (s stub) ByName(*policy.Request) bool { return s.opinion != "" }
