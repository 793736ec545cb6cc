package lint

import (
	"slices"
	"time"

	"stele.dev/stele/policy"
)

// slowReviewer is the time for an answer above which a reviewer that must be asked is reported: kube-apiserver's default.
const slowReviewer = 10 * time.Second

// reviewers finds webhooks and plugins that can stop many writes.
func (c *checking) reviewers() {
	for i := range c.Form.Reviewers {
		r := &c.Form.Reviewers[i]
		if r.Ignore {
			continue
		}
		if r.Timeout > slowReviewer {
			c.add("WEBHOOK_SLOW", r.Source, r.ID, "writes wait "+r.Timeout.String()+" for it when it does not answer, and are refused then", "")
		}
		if r.NamespaceSelector == nil && r.ObjectSelector == nil && len(r.Conditions) == 0 && slices.ContainsFunc(r.Rules, wide) {
			c.add("WEBHOOK_WIDE", r.Source, r.ID, "it is asked about every write: while it cannot be asked, nothing can be written", "")
		}
	}
}

func wide(r policy.ReviewRule) bool {
	return slices.Contains(r.APIGroups, "*") && slices.ContainsFunc(r.Resources, func(name string) bool { return name == "*" || name == "*/*" })
}
