package core_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

// The server's own finalizer of a namespace is nobody's; others are theirs who set them, be it
// through /finalize.
func TestWhoManagesTheFinalizersOfANamespace(t *testing.T) {
	p := newPlane(t)
	const path = "/api/v1/namespaces"
	managers := func(a answer) (list []string) {
		t.Helper()
		entries, _ := a.field("metadata", "managedFields").([]any)
		for _, e := range entries {
			entry := e.(map[string]any)
			fields, err := json.Marshal(entry["fieldsV1"])
			if err != nil {
				t.Fatal(err)
			}
			place, _ := entry["subresource"].(string)
			list = append(list, entry["manager"].(string)+"/"+place+" "+string(fields))
		}
		slices.Sort(list) // upstream's order is that of times
		return list
	}
	const label = `{"f:metadata":{"f:labels":{".":{},"f:kubernetes.io/metadata.name":{}}}`
	of := func(name string, want ...string) {
		t.Helper()
		a := p.must(t, 200, "GET", path+"/"+name, "")
		if got := managers(a); strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	a := p.must(t, 201, "POST", path+"?fieldManager=maker", `{"metadata":{"name":"plain"}}`)
	of("plain", "maker/ "+label+"}")
	p.must(t, 201, "POST", path+"?fieldManager=maker", `{"metadata":{"name":"held"},"spec":{"finalizers":["example.com/hold"]}}`)
	of("held", "maker/ "+label+`,"f:spec":{"f:finalizers":{}}}`)

	if finalizers, ok := a.field("spec", "finalizers").([]any); !ok || len(finalizers) != 1 {
		t.Fatalf("%s", a)
	}
	p.must(t, 200, "PUT", path+"/plain/finalize?fieldManager=holder", `{"metadata":{"name":"plain"},"spec":{"finalizers":["kubernetes","example.com/hold"]}}`)
	of("plain", `holder/finalize {"f:spec":{"f:finalizers":{}}}`, "maker/ "+label+"}")
}

// Its phase says whether it is being deleted, whoever writes it.
func TestThePhaseOfANamespaceCannotDeny(t *testing.T) {
	p := newPlane(t)
	const path = "/api/v1/namespaces"
	p.must(t, 201, "POST", path, `{"metadata":{"name":"shop","finalizers":["example.com/hold"]}}`)
	phase := func(phase string, code int) {
		t.Helper()
		p.must(t, code, "PATCH", path+"/shop/status", `{"status":{"phase":"`+phase+`"}}`, "Content-Type", mergePatch)
	}
	phase("Terminating", 422)
	phase("Active", 200)
	p.must(t, 200, "DELETE", path+"/shop", "")
	phase("Terminating", 200)
	phase("Active", 422)
}
