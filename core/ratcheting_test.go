package core_test

import (
	"fmt"
	"strings"
	"testing"
)

// What a stricter policy finds wrong with an object that is there may stay as it is
// (KEP-4008), also where only the status is written.
func TestWhatAStricterPolicyFindsMayStay(t *testing.T) {
	p := newPlane(t)
	p.must(t, 201, "POST", widgetsPath, widget("a", 500))
	p.must(t, 201, "POST", policiesPath, policyBody(t, strings.Replace(bundle, "int & >0 & <=1000", "int & >0 & <=10", 1), nil))

	p.must(t, 200, "PATCH", widgetsPath+"/a", `{"spec":{"color":"red"}}`, "Content-Type", "application/merge-patch+json")
	p.must(t, 200, "PATCH", widgetsPath+"/a/status", `{"status":{"ready":true}}`, "Content-Type", "application/merge-patch+json")
	a := p.must(t, 422, "PATCH", widgetsPath+"/a", `{"spec":{"size":400,"color":"blue"}}`, "Content-Type", "application/merge-patch+json")
	if said := fmt.Sprint(a.field("message")); !strings.Contains(said, "spec.size: Invalid value: 400") {
		t.Error(said)
	}
	p.must(t, 200, "PATCH", widgetsPath+"/a", `{"spec":{"size":4}}`, "Content-Type", "application/merge-patch+json")
	p.must(t, 422, "PATCH", widgetsPath+"/a", `{"spec":{"size":500}}`, "Content-Type", "application/merge-patch+json")
}
