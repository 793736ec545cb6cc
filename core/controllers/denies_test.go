package controllers

import (
	"slices"
	"testing"

	"stele.dev/stele/policy"
)

// Vet warns of denies that meet the server's controllers, by a list of its own: policy knows nothing of core.
func TestVetKnowsTheControllers(t *testing.T) {
	for _, c := range All {
		name := c.user().GetName()
		if !slices.ContainsFunc(policy.ServerControllers, func(s policy.ServerController) bool { return s.User == name }) {
			t.Errorf("policy.ServerControllers lacks %s", name)
		}
	}
	if len(policy.ServerControllers) != len(All) {
		t.Errorf("policy.ServerControllers has %d users, and there are %d controllers", len(policy.ServerControllers), len(All))
	}
}
