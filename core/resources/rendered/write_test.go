package rendered_test

import (
	"encoding/json"
	"maps"
	"strings"
	"testing"

	"stele.dev/stele/core/run/plane/planetest"
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
