package core_test

import (
	"fmt"
	"strings"
	"testing"

	"stele.dev/stele/core/run/plane/planetest"
)

// What a stricter policy finds wrong with an object that is there may stay as it is
// (KEP-4008), also where only the status is written.
func TestWhatAStricterPolicyFindsMayStay(t *testing.T) {
	p := planetest.NewPlane(t)
	p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("a", 500))
	p.Must(t, 201, "POST", planetest.PoliciesPath, planetest.PolicyBody(t, strings.Replace(planetest.Bundle, "int & >0 & <=1000", "int & >0 & <=10", 1), nil))

	p.Must(t, 200, "PATCH", planetest.WidgetsPath+"/a", `{"spec":{"color":"red"}}`, "Content-Type", "application/merge-patch+json")
	p.Must(t, 200, "PATCH", planetest.WidgetsPath+"/a/status", `{"status":{"ready":true}}`, "Content-Type", "application/merge-patch+json")
	a := p.Must(t, 422, "PATCH", planetest.WidgetsPath+"/a", `{"spec":{"size":400,"color":"blue"}}`, "Content-Type", "application/merge-patch+json")
	if said := fmt.Sprint(a.Field("message")); !strings.Contains(said, "spec.size: Invalid value: 400") {
		t.Error(said)
	}
	p.Must(t, 200, "PATCH", planetest.WidgetsPath+"/a", `{"spec":{"size":4}}`, "Content-Type", "application/merge-patch+json")
	p.Must(t, 422, "PATCH", planetest.WidgetsPath+"/a", `{"spec":{"size":500}}`, "Content-Type", "application/merge-patch+json")
}
