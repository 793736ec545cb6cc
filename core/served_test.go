package core_test

import (
	"fmt"
	"strings"
	"testing"

	"stele.dev/stele/core/run/plane/planetest"
)

// What is served can be named in the rules of a policy, which knows by a list of its own
// what no policy defines.
func TestRulesCanNameWhatIsServed(t *testing.T) {
	p := planetest.NewPlane(t)
	paths := map[string]string{"": "/api/v1"} // by group
	for _, g := range p.Must(t, 200, "GET", "/apis", "").Field("groups").([]any) {
		name := g.(map[string]any)["name"].(string)
		version := g.(map[string]any)["preferredVersion"].(map[string]any)["version"].(string)
		paths[name] = "/apis/" + name + "/" + version
	}
	var rules strings.Builder
	n := 0
	for group, path := range paths {
		for _, r := range p.Must(t, 200, "GET", path, "").Field("resources").([]any) {
			n++
			fmt.Fprintf(&rules, "r%d: {apiGroups: [%q], resources: [%q], verbs: [\"*\"]}\n", n, group, r.(map[string]any)["name"])
		}
	}
	if n < 10 {
		t.Fatalf("only %d resources are served", n)
	}
	planetest.Compile(t, planetest.Bundle+"bundle: teams: t: rbac: clusterRoles: all: rules: {\n"+rules.String()+"}\n")
}
