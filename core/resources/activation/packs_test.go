package activation_test

import (
	"strings"
	"testing"

	"stele.dev/stele/core/run/plane/planetest"
)

// withPacks is the bundle with rules over other objects, made of packs.
var withPacks = strings.NewReplacer(`import "stele.dev/policy"`, `import (
	"stele.dev/policy"
	"stele.dev/policy/packs"
)`, `owner?: =~`, `primary?: bool, config?: string, owner?: =~`, `storageVersion: "v1"
			versions: v1: {
				#schema: #Widget`, `storageVersion: "v1", index: [".spec.owner", ".spec.primary", ".spec.config"]
			versions: v1: {
				#schema: #Widget`, `rbac: {`, `admission: (packs.#UniqueField & {name: "owner", kind: "widgets.example.com", version: "v1", field: "spec.owner"}).admission
		admission: (packs.#ReferenceExists & {name: "config", kind: "widgets.example.com", field: "spec.config", to: {kind: "configmaps", version: "v1"}}).admission
		admission: (packs.#NoDeleteWhileReferenced & {name: "used", kind: "configmaps", from: {kind: "widgets.example.com", version: "v1", field: "spec.config"}}).admission
		admission: (packs.#AtMostOneDefault & {name: "primary", kind: "widgets.example.com", version: "v1", field: "spec.primary", within: "namespace"}).admission
		admission: (packs.#LimitRange & {name: "free", order: 7, apiGroups: ["example.com"], resources: ["widgets"], field: "spec.config", default: "c"}).admission
		rbac: {`).Replace(planetest.Bundle)

func TestPacksOverOtherObjects(t *testing.T) {
	p := planetest.NewPlane(t)
	p.Activate(t, withPacks)
	with := func(name, more string) string {
		return `{"metadata":{"name":"` + name + `"},"spec":{"size":1,` + more + `}}`
	}
	const elsewhere = "/apis/example.com/v1/namespaces/kube-system/widgets"
	configMap := `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c"}}`
	for _, tc := range []struct {
		name, method, path, body string
		code                     int
		message                  string
	}{
		{"a reference to nothing", "POST", planetest.WidgetsPath, with("a", `"config":"c"`), 422, "rule t/validate/config/exists denied the request: spec.config: there is no configmaps c"},
		{"what it refers to", "POST", "/api/v1/namespaces/default/configmaps", configMap, 201, ""},
		{"the same elsewhere", "POST", "/api/v1/namespaces/kube-system/configmaps", configMap, 201, ""},
		{"a reference, by default", "POST", planetest.WidgetsPath, with("a", `"owner":"x@example.com"`), 201, ""},
		{"an owner that is taken", "POST", elsewhere, with("b", `"owner":"x@example.com"`), 422, "rule t/validate/owner/unique denied the request: spec.owner x@example.com is taken"},
		{"another owner, the first default", "POST", planetest.WidgetsPath, with("b", `"owner":"y@example.com","primary":true`), 201, ""},
		{"a second default", "POST", planetest.WidgetsPath, with("c", `"primary":true`), 422, "rule t/validate/primary/one denied the request: there is a default already: spec.primary of another one is true"},
		{"no default", "POST", planetest.WidgetsPath, with("c", `"primary":false`), 201, ""},
		{"a default elsewhere", "POST", elsewhere, with("c", `"primary":true`), 201, ""},
		{"a delete of what is used", "DELETE", "/api/v1/namespaces/default/configmaps/c", "", 403, "rule t/validate/used/unreferenced denied the request: widgets.example.com refer to it by spec.config: 3"},
		{"without those who use it", "DELETE", planetest.WidgetsPath, "", 200, ""},
		{"a delete of what is not used", "DELETE", "/api/v1/namespaces/default/configmaps/c", "", 200, ""},
	} {
		if a := p.Do(tc.method, tc.path, tc.body); a.Code != tc.code || !strings.Contains(withoutPlaces(a.Message()), tc.message) {
			t.Fatalf("%s: %s\nwant %d %s", tc.name, a, tc.code, tc.message)
		}
	}
}

// withoutPlaces leaves out the lines of rules.
func withoutPlaces(message string) string {
	for {
		before, rest, found := strings.Cut(message, " (bundle.cue:")
		if !found {
			return message
		}
		_, after, _ := strings.Cut(rest, ")")
		message = before + after
	}
}
