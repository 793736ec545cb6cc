package plans_test

import (
	"slices"
	"testing"

	"stele.dev/stele/policy/plan"
)

// Stored quotas that name what a new policy does not define are found.
func TestWhatQuotasLimitIsRemoved(t *testing.T) {
	s := start(t)
	const quota = `quota: resources: "storage.corp.example": sums: data: {kind: "databases.data.corp.example", path: ".spec.storageGiB"}`
	with := changed(t, `cluster: "test"`, `cluster: "test"`+"\n\t"+quota)
	s.Activate(t, with)
	s.must(t, "admin", "POST", "/api/v1/namespaces/default/resourcequotas", `{"apiVersion":"v1","kind":"ResourceQuota","metadata":{"name":"small"},"spec":{"hard":{"storage.corp.example":"100"}}}`)
	s.must(t, "admin", "POST", "/api/v1/namespaces/default/resourcequotas", `{"apiVersion":"v1","kind":"ResourceQuota","metadata":{"name":"few"},"spec":{"hard":{"count/databases.data.corp.example":"3"}}}`)
	p := s.plan(t, "admin", bundle, nil)
	var removed, invalid bool
	for i := range p.Findings {
		f := &p.Findings[i]
		removed = removed || f.Rule == "QUOTA_RESOURCE_REMOVED" && f.Class == plan.Widens
		invalid = invalid || f.Kind == "resourcequotas" && f.Class == plan.Breaks && f.Objects != nil && f.Objects.Violating == 1 && f.Objects.Of == 2 &&
			slices.ContainsFunc(f.Objects.Samples, func(s plan.Sample) bool { return s.Name == "small" })
	}
	if !removed || !invalid {
		t.Errorf("%s", show(p))
	}
	if p := s.plan(t, "admin", with, nil); p.Checked.Objects != 0 {
		t.Errorf("without a change: %s", show(p))
	}
}
