package edit

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"stele.dev/stele/core/commit"
	"stele.dev/stele/core/status"
	"stele.dev/stele/policy"
	"stele.dev/stele/projections/quotas"
)

// CheckQuota returns the error of a write that does not fit into the resource quotas of its namespace, on the request's tip;
// nil if it does.
func (d *Draft) CheckQuota(w *Write) error {
	if !w.Checks.Quota {
		return nil
	}
	if exceeded := commit.CheckQuota(d.Tip.Objects, d.Tip.Quotas, d.Key, w.Payload); exceeded != nil {
		return d.OverQuota(exceeded)
	}
	return nil
}

// OverQuotaError is the error of a write that does not fit into a quota.
type OverQuotaError struct {
	Exceeded *quotas.Exceeded
	status   *status.Error
}

func (e *OverQuotaError) Error() string { return e.status.Error() }

// Unwrap returns the error that clients get.
func (e *OverQuotaError) Unwrap() error { return e.status }

// OverQuota returns the error of a write that does not fit into a quota: that of Kubernetes, and the quota as its cause.
func (d *Draft) OverQuota(exceeded *quotas.Exceeded) error {
	err := status.Refused(d.Resource(), d.Key.Name, exceeded)
	for i := range exceeded.Charges {
		err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{
			Type: "QuotaExceeded", Message: exceeded.Charges[i].Name + " of quota " + exceeded.Quota.Name, Field: exceeded.Quota.ID(),
		})
	}
	return &OverQuotaError{exceeded, err}
}

// ConsiderQuotas tells which quotas a write counts against, and what they have left, on the request's tip.
func (d *Draft) ConsiderQuotas(w *Write, consider func(policy.Considered)) {
	if !w.Checks.Quota {
		return
	}
	charges := d.Tip.Quotas.Charges(d.Resource(), d.Key.Namespace, d.Old, w.Payload)
	for i := range charges {
		c := &charges[i]
		verdict := policy.VerdictHolds
		if c.Exceeds() || c.Err != nil {
			verdict = policy.VerdictFails
		}
		consider(policy.Considered{Rule: c.Quota.ID(), Verdict: verdict, Reason: c.String()})
	}
}
