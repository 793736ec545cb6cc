package edit_test

import (
	"fmt"
	"strings"
	"testing"

	"stele.dev/stele/core/run/plane/planetest"
)

// Finalizers of the core group's kinds need a domain, as upstream has it: on others there is a warning.
func TestFinalizersOfCoreKindsHaveDomains(t *testing.T) {
	p := planetest.NewPlane(t)
	const wrong = "name is neither a standard finalizer name nor is it fully qualified"
	for _, path := range []string{"/api/v1/namespaces", "/api/v1/namespaces/default/configmaps", "/api/v1/namespaces/default/secrets", "/api/v1/namespaces/default/serviceaccounts"} {
		a := p.Must(t, 422, "POST", path, `{"metadata":{"name":"a","finalizers":["orphan","mine"]}}`)
		cause := a.Field("details", "causes").([]any)[0].(map[string]any)
		if cause["field"] != "metadata.finalizers[1]" || cause["reason"] != "FieldValueInvalid" || !strings.HasSuffix(fmt.Sprint(cause["message"]), wrong) {
			t.Errorf("%s: %s", path, a)
		}
		p.Must(t, 201, "POST", path, `{"metadata":{"name":"a","finalizers":["orphan","example.com/mine"]}}`)
		p.Must(t, 422, "PATCH", path+"/a", `{"metadata":{"finalizers":["mine"]}}`, "Content-Type", planetest.MergePatch)
	}
	a := p.Must(t, 201, "POST", planetest.WidgetsPath, `{"metadata":{"name":"a","finalizers":["mine"]},"spec":{"size":1}}`)
	if !strings.Contains(a.Header.Get("Warning"), "prefer a domain-qualified finalizer name") {
		t.Errorf("%v", a.Header)
	}
}
