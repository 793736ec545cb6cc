package rendered_test

import (
	"encoding/json"
	"maps"
	"strings"
	"testing"

	"stele.dev/stele/core/run/plane/planetest"
	"stele.dev/stele/eventlog/memlog"
)

// Installers create, update and apply what may be there already. What the policy says already is answered as kube-apiserver does.
func TestWhatThePolicySaysAlreadyIsNoChange(t *testing.T) {
	p := planetest.NewPlane(t)
	p.PushGadgets(t, planetest.Gadgets)
	before := p.Committer.Tip().Revision()
	for _, path := range []string{
		planetest.DefinitionsPath + "/gadgets.example.com", planetest.DefinitionsPath + "/widgets.example.com", planetest.RolesPath + "/widgets",
		planetest.RolesPath + "/view", planetest.GrantsPath + "/builtin:system:discovery", planetest.InDefault + "/t:editors",
		"/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas/probes", "/apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations/exempt",
	} {
		there := p.Must(t, 200, "GET", path, "")
		collection := path[:strings.LastIndex(path, "/")]
		object := there.Object()
		written := as(t, object, func(o map[string]any, meta map[string]any) { // as in a file
			delete(o, "status")
			for _, field := range []string{"uid", "resourceVersion", "creationTimestamp", "generation"} {
				delete(meta, field)
			}
			annotations := meta["annotations"].(map[string]any)
			maps.DeleteFunc(annotations, func(name string, _ any) bool { return strings.HasPrefix(name, "stele.dev/") })
			annotations["kubectl.kubernetes.io/last-applied-configuration"] = "{}"
		})
		labeled := as(t, object, func(_, meta map[string]any) { meta["labels"] = map[string]any{"new": "x"} })
		merge, apply := []string{"Content-Type", "application/merge-patch+json"}, []string{"Content-Type", "application/apply-patch+yaml"}
		for _, tc := range []struct {
			what, method, path, body string
			header                   []string
			code                     int
		}{
			{"a create", "POST", collection, written, nil, 409},
			{"a create as a dry run", "POST", collection + "?dryRun=All", written, nil, 409},
			{"an update with what was read", "PUT", path, string(there.Body), nil, 200},
			{"an update with what was written", "PUT", path, written, nil, 200},
			{"an update of another version", "PUT", path, as(t, object, func(_, meta map[string]any) { meta["resourceVersion"] = "1" }), nil, 409},
			{"an update of another object with the name", "PUT", path, as(t, object, func(_, meta map[string]any) { meta["uid"] = "x" }), nil, 409},
			{"an update that changes a label", "PUT", path, labeled, nil, 403},
			{"an empty patch", "PATCH", path, "{}", merge, 200},
			{"a patch that changes a label", "PATCH", path, `{"metadata":{"labels":{"new":"x"}}}`, merge, 403},
			{"a JSON patch that tests", "PATCH", path, `[{"op":"test","path":"/kind","value":"` + object["kind"].(string) + `"}]`, []string{"Content-Type", "application/json-patch+json"}, 200},
			{"an apply of what was written", "PATCH", path + "?fieldManager=x", written, apply, 200},
			{"an apply that changes a label", "PATCH", path + "?fieldManager=x&force=true", labeled, apply, 403},
			{"an apply without a kind", "PATCH", path + "?fieldManager=x", "{}", apply, 400},
		} {
			a := p.Do(tc.method, tc.path, tc.body, tc.header...)
			if a.Code != tc.code {
				t.Errorf("%s of %s: %s, want %d", tc.what, path, a, tc.code)
			}
			if a.Code == 200 && string(a.Body) != string(there.Body) {
				t.Errorf("%s of %s: %s, want %s", tc.what, path, a, there)
			}
			if reason := a.Field("reason"); tc.method == "POST" && reason != "AlreadyExists" {
				t.Errorf("%s of %s: reason %v", tc.what, path, reason)
			}
		}
	}
	p.Must(t, 409, "POST", planetest.RolesPath, "metadata:\n  name: widgets\n", "Content-Type", "application/yaml")
	p.Must(t, 409, "POST", planetest.RolesPath, protobufRole(t, "widgets"), "Content-Type", "application/vnd.kubernetes.protobuf")
	if after := p.Committer.Tip().Revision(); after != before {
		t.Errorf("the log went from %d to %d", before, after)
	}
}

// A write is decoded as those of stored kinds.
func TestWritesAreDecodedStrictly(t *testing.T) {
	p := newMatching(t)
	replaced := func(old, new string) string { return strings.Replace(pair, old, new, 1) }
	unknown, twice := replaced(`"rules":`, `"unknown": 1, "rules":`), replaced(`"rules":`, `"rules": [], "rules":`)
	for _, tc := range []struct {
		what, method, query, body, want string
		header                          []string
		code                            int
	}{
		{"an unknown field", "PUT", "?fieldValidation=Strict", unknown, `strict decoding error: unknown field \"unknown\"`, nil, 400},
		{"a field given twice", "PUT", "?fieldValidation=Strict", twice, `strict decoding error: duplicate field \"rules\"`, nil, 400},
		{"an unknown field in a patch", "PATCH", "?fieldValidation=Strict", `{"unknown": 1}`, `unknown field \"unknown\"`, merge, 400},
		{"a field given twice in a patch", "PATCH", "?fieldValidation=Strict", `{"metadata": {}, "metadata": {}}`, `duplicate field \"metadata\"`, merge, 400},
		{"another kind", "PUT", "", replaced(`"ClusterRole"`, `"Role"`), `Role in version \"v1\" cannot be handled as a ClusterRole`, nil, 400},
		{"another version", "PUT", "", replaced(`.io/v1"`, `.io/v1beta1"`), `the API version in the data (rbac.authorization.k8s.io/v1beta1) does not match`, nil, 400},
		{"a patch to another kind", "PATCH", "", `{"kind": "Role"}`, `cannot be handled as a ClusterRole`, merge, 400},
		{"an unknown field, ignored", "PUT", "?fieldValidation=Ignore&dryRun=All", unknown, "", nil, 200},
	} {
		if a := p.Do(tc.method, pairPath+tc.query, tc.body, tc.header...); a.Code != tc.code || !strings.Contains(a.String(), tc.want) {
			t.Errorf("%s: %s\nwant %d %s", tc.what, a, tc.code, tc.want)
		}
	}
	p.Must(t, 400, "POST", planetest.RolesPath+"?fieldValidation=Strict", unknown)
	if a := p.Must(t, 201, "POST", planetest.RolesPath, unknown); !strings.Contains(a.Header.Get("Warning"), `unknown field`) {
		t.Errorf("by default: %s, warning %s", a, a.Header.Get("Warning"))
	}
}

// Defaults and enums of a definition are values, which have many texts.
func TestValuesInDefinitionsAreComparedAsValues(t *testing.T) {
	p := planetest.NewPlane(t)
	p.PushGadgets(t, strings.Replace(planetest.Gadgets, "mode: {", `box: {type: object, default: {a: 1, b: "x"}, properties: {a: {type: integer}, b: {type: string}}}
              mode: {`, 1))
	const path = planetest.DefinitionsPath + "/gadgets.example.com"
	there := string(p.Must(t, 200, "GET", path, "").Body)
	const is = `{"a":1,"b":"x"}`
	if strings.Count(there, is) != 1 {
		t.Fatalf("no %s in %s", is, there)
	}
	p.Must(t, 200, "PUT", path, strings.ReplaceAll(there, is, `{ "b": "\u0078", "a": 1.0 }`))
	p.Must(t, 200, "PUT", path, strings.ReplaceAll(there, `"fast"]`, `"\u0066ast"]`))
	p.Must(t, 403, "PUT", path, strings.ReplaceAll(there, is, `{"a":2,"b":"x"}`))
}

// What cannot be read is not found by writes either, unless they would create it.
func TestWritesOfWhatIsNotThereAreNotFound(t *testing.T) {
	const elsewhere = `
bundle: teams: t: rbac: clusterRoles: "one:leader": {name: "leader", namespace: "one", rules: {}}
bundle: teams: t: rbac: bindings: one: {name: "leader", clusterRole: "one:leader", subjects: [{user: "x"}], namespaces: ["one"]}
bundle: teams: t: rbac: bindings: all: {clusterRole: "widgets", subjects: [{user: "x"}], namespaces: ["*"]}
`
	for _, mode := range []string{"", "bundle: dynamic: rbac: \"Match\"\n"} {
		p := planetest.StartReplica(t, new(memlog.Store).Open(nil), 0)
		p.Bootstrap(t, planetest.Bundle+elsewhere+mode)
		p.Namespace(t, "one")
		for _, path := range []string{
			planetest.InDefault + "/leader", planetest.RbacPath + "/namespaces/default/roles/leader", planetest.RolesPath + "/leader",
			planetest.GrantsPath + "/leader", planetest.InDefault + "/t:all", planetest.GrantsPath + "/t:editors", planetest.RbacPath + "/namespaces/none/roles/leader",
		} {
			p.Must(t, 404, "GET", path, "")
			p.Must(t, 404, "DELETE", path, "")
			p.Must(t, 404, "PATCH", path, "{}", merge...)
		}
		name := `{"metadata": {"name": "leader"}}`
		for _, a := range []planetest.Answer{
			p.Must(t, 403, "POST", planetest.InDefault, name), p.Must(t, 403, "PUT", planetest.InDefault+"/leader", name),
			p.Must(t, 403, "PATCH", planetest.InDefault+"/leader?fieldManager=x", `{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding"}`, apply...),
		} {
			if !strings.Contains(a.String(), "add it to rbac.bindings of a team") {
				t.Errorf("a create: %s", a)
			}
		}
	}
}

// as returns an object as it is after a change.
func as(t *testing.T, object map[string]any, change func(object, meta map[string]any)) string {
	t.Helper()
	text, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	var o map[string]any
	if err := json.Unmarshal(text, &o); err != nil {
		t.Fatal(err)
	}
	change(o, o["metadata"].(map[string]any))
	if text, err = json.Marshal(o); err != nil {
		t.Fatal(err)
	}
	return string(text)
}
