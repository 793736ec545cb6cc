package controllers

import (
	"slices"
	"testing"

	"stele.dev/stele/policy/compile"
)

// Vet warns of denies that meet the server's controllers, by a list of its own: policy knows nothing of core.
func TestVetKnowsTheControllers(t *testing.T) {
	for _, c := range All {
		name := c.user().GetName()
		if !slices.ContainsFunc(compile.ServerControllers, func(s compile.ServerController) bool { return s.User == name }) {
			t.Errorf("compile.ServerControllers lacks %s", name)
		}
	}
	if len(compile.ServerControllers) != len(All) {
		t.Errorf("compile.ServerControllers has %d users, and there are %d controllers", len(compile.ServerControllers), len(All))
	}
}
