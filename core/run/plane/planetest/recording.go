package planetest

import (
	"testing"

	"stele.dev/stele/eventlog"
)

// Decisions returns the decisions with an audit ID, the newest first.
func (r *Replica) Decisions(t *testing.T, auditID string) []*eventlog.Event {
	t.Helper()
	found, err := r.Plane.Decisions.Find(t.Context(), auditID)
	if err != nil {
		t.Fatal(err)
	}
	return found
}
