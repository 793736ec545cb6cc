package suiterun

import (
	"context"
	"errors"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"stele.dev/stele/core/reviewers/review"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/suites"
)

// answers returns the webhooks and plugins of a test, which answer as the test says. Those that it does not name admit
// every write.
func answers(of ...map[string]suites.Review) review.Find {
	said := map[string]suites.Review{}
	for _, m := range of {
		for id, answer := range m {
			said[id] = answer
		}
	}
	return func(p *policy.Policy, r *policy.Reviewer) review.Reviewer {
		if r.Plugin != "" {
			if plugin := p.Form().Plugin(policy.PluginPrefix + r.Plugin); plugin != nil && plugin.Shadow {
				return answer{suites.Review{Answer: suites.Admit}, r}
			}
		}
		return answer{said[r.ID], r}
	}
}

// answer is a webhook or a plugin that always gives the same answer.
type answer struct {
	says suites.Review
	of   *policy.Reviewer
}

// Review implements [review.Reviewer].
func (a answer) Review(context.Context, *review.Review) (*review.Verdict, error) {
	switch a.says.Answer {
	case suites.Refuse:
		return &review.Verdict{Status: &metav1.Status{Status: metav1.StatusFailure, Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden, Message: "the test lets it refuse"}}, nil
	case string(suites.Unavailable):
		return nil, &review.CallError{What: a.of.What(), Name: a.of.Name(), Reason: errors.New("the test lets it be unavailable"), Code: http.StatusInternalServerError}
	}
	return &review.Verdict{Allowed: true, Patch: a.says.Patch}, nil
}
