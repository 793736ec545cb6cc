package edit_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"stele.dev/stele/core/run/plane/planetest"
)

// The server's own finalizer of a namespace is nobody's; others are theirs who set them, be it
// through /finalize.
func TestWhoManagesTheFinalizersOfANamespace(t *testing.T) {
	p := planetest.NewPlane(t)
	const path = "/api/v1/namespaces"
	managers := func(a planetest.Answer) (list []string) {
		t.Helper()
		entries, _ := a.Field("metadata", "managedFields").([]any)
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
		a := p.Must(t, 200, "GET", path+"/"+name, "")
		if got := managers(a); strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	a := p.Must(t, 201, "POST", path+"?fieldManager=maker", `{"metadata":{"name":"plain"}}`)
	of("plain", "maker/ "+label+"}")
	p.Must(t, 201, "POST", path+"?fieldManager=maker", `{"metadata":{"name":"held"},"spec":{"finalizers":["example.com/hold"]}}`)
	of("held", "maker/ "+label+`,"f:spec":{"f:finalizers":{}}}`)

	if finalizers, ok := a.Field("spec", "finalizers").([]any); !ok || len(finalizers) != 1 {
		t.Fatalf("%s", a)
	}
	p.Must(t, 200, "PUT", path+"/plain/finalize?fieldManager=holder", `{"metadata":{"name":"plain"},"spec":{"finalizers":["kubernetes","example.com/hold"]}}`)
	of("plain", `holder/finalize {"f:spec":{"f:finalizers":{}}}`, "maker/ "+label+"}")
}

// Its phase says whether it is being deleted, whoever writes it.
func TestThePhaseOfANamespaceCannotDeny(t *testing.T) {
	p := planetest.NewPlane(t)
	const path = "/api/v1/namespaces"
	p.Must(t, 201, "POST", path, `{"metadata":{"name":"shop","finalizers":["example.com/hold"]}}`)
	phase := func(phase string, code int) {
		t.Helper()
		p.Must(t, code, "PATCH", path+"/shop/status", `{"status":{"phase":"`+phase+`"}}`, "Content-Type", planetest.MergePatch)
	}
	phase("Terminating", 422)
	phase("Active", 200)
	p.Must(t, 200, "DELETE", path+"/shop", "")
	phase("Terminating", 200)
	phase("Active", 422)
}

// A write of the finalizers of a namespace passes admission as an update of the subresource finalize, and rules that name it,
// */* or namespaces/*, may change the finalizers and refuse it.
func TestRulesAboutTheFinalizersOfANamespace(t *testing.T) {
	p := newMutatedPlane(t, `admission: {
		mutate: audited: {order: 1, match: {apiGroups: [""], resources: ["namespaces/*"], operations: ["UPDATE"], conditions: sub: "request.subResource == 'finalize'"}
			mutations: x: {patchType: "JSONPatch", expression: "[JSONPatch{op: 'add', path: '/spec/finalizers/-', value: 'example.com/audit'}]"}
		}
		validate: held: {match: {apiGroups: [""], resources: ["namespaces/finalize"], operations: ["UPDATE"], namespaceSelector: matchLabels: hold: "yes"}
			validations: x: {expression: "'kubernetes' in object.spec.finalizers", message: "it stays"}
		}
		validate: whole: {match: {apiGroups: [""], resources: ["namespaces"], operations: ["UPDATE"]}, validations: x: expression: "false"}
	}`)
	const path = "/api/v1/namespaces"
	p.Must(t, 201, "POST", path, `{"metadata":{"name":"shop","labels":{"hold":"yes"}}}`)
	p.Must(t, 201, "POST", path, `{"metadata":{"name":"free"}}`)

	// The selector reads the labels that the namespace has, and not those that the write gives it.
	p.Do("PUT", path+"/shop/finalize", `{"metadata":{"name":"shop"},"spec":{"finalizers":["example.com/a"]}}`).Refuses(t, 422, "rule t/validate/held/x", "it stays")
	a := p.Must(t, 200, "PUT", path+"/free/finalize", `{"metadata":{"name":"free"},"spec":{"finalizers":["example.com/a"]}}`)
	if got := a.Field("spec", "finalizers"); !slices.Equal(got.([]any), []any{"example.com/a", "example.com/audit"}) {
		t.Errorf("the finalizers are %v", got)
	}
	if got := mutationsOf(p.LastEvent(t)); !slices.Equal(got, []string{"t/mutate/audited/x /spec/finalizers/1"}) {
		t.Errorf("the event has the mutations %q", got)
	}
	p.Must(t, 422, "PATCH", path+"/free", `{"metadata":{"labels":{"a":"b"}}}`, "Content-Type", planetest.MergePatch)
}

// An update without a spec keeps the finalizers of a namespace.
func TestAnUpdateKeepsTheFinalizersOfANamespace(t *testing.T) {
	p := planetest.NewPlane(t)
	const path = "/api/v1/namespaces/kept"
	p.Must(t, 201, "POST", "/api/v1/namespaces", `{"metadata":{"name":"kept"}}`)
	for _, body := range []string{`{"metadata":{"name":"kept","labels":{"a":"b"}}}`, `{"metadata":{"name":"kept"},"spec":{}}`, `{"metadata":{"name":"kept"},"spec":{"finalizers":[]}}`} {
		p.Must(t, 200, "PUT", path, body)
		if got, _ := json.Marshal(p.Must(t, 200, "GET", path, "").Field("spec")); string(got) != `{"finalizers":["kubernetes"]}` {
			t.Errorf("%s leaves the spec %s", body, got)
		}
	}
}
