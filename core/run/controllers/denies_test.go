package controllers

import (
	"slices"
	"testing"

	"stele.dev/stele/policy/servercontrollers"
)

// Vet warns of denies that meet the server's controllers, by a list of its own: policy knows nothing of core.
func TestVetKnowsTheControllers(t *testing.T) {
	for _, c := range All {
		name := c.user().GetName()
		if !slices.ContainsFunc(servercontrollers.All, func(s servercontrollers.Controller) bool { return s.User == name }) {
			t.Errorf("servercontrollers.All lacks %s", name)
		}
	}
	if len(servercontrollers.All) != len(All) {
		t.Errorf("servercontrollers.All has %d users, and there are %d controllers", len(servercontrollers.All), len(All))
	}
}
