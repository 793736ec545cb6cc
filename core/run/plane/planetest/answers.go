package planetest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"stele.dev/stele/core/resources/explain"
)

// Applied is the content type of a server-side apply.
const Applied = "application/apply-patch+yaml"

// Apply applies to a widget; query follows the field manager.
func (r *Replica) Apply(name, manager, body string, query ...string) Answer {
	return r.Do("PATCH", WidgetsPath+"/"+name+"?fieldManager="+manager+strings.Join(query, ""), body, "Content-Type", Applied)
}

// Owners returns the managedFields without their times: the fields by manager, operation, version and
// subresource.
func (a Answer) Owners(t testing.TB) map[string]string {
	t.Helper()
	var o struct {
		Metadata struct {
			ManagedFields []struct {
				Manager, Operation, APIVersion, FieldsType, Subresource string
				Time                                                    *time.Time
				FieldsV1                                                json.RawMessage
			}
		}
	}
	if err := json.Unmarshal(a.Body, &o); err != nil {
		t.Fatal(err)
	}
	owners := map[string]string{}
	for _, e := range o.Metadata.ManagedFields {
		if e.FieldsType != "FieldsV1" || e.Time == nil && e.Subresource != "scale" { // of which upstream keeps no times
			t.Errorf("entry %+v", e)
		}
		key := e.Manager + " " + e.Operation + " " + e.APIVersion
		if e.Subresource != "" {
			key += " " + e.Subresource
		}
		owners[key] = string(e.FieldsV1)
	}
	return owners
}

// BlamesPath is the path of blames.
const BlamesPath = "/apis/log.stele.dev/v1/blames"

// ExpectLines fails the test unless the lines are the wanted ones.
func ExpectLines(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// ChangesPath is the path of changes.
const ChangesPath = "/apis/log.stele.dev/v1/changes"

// Revisions of a list of changes, in its order.
func (a Answer) Revisions() (list []string) {
	items, _ := a.Field("items").([]any)
	for _, item := range items {
		c := item.(map[string]any)
		list = append(list, fmt.Sprintf("%v %v", c["metadata"].(map[string]any)["name"], c["type"]))
	}
	return list
}

// Sighted has a policy in which some may see the log, and of objects only some.
const Sighted = `
package test
import "stele.dev/policy"

bundle: policy.#Bundle & {
	cluster: "test"
	teams: t: {
		contact: "#t", groups: ["*"], namespaces: ["*"]
		rbac: {
			clusterRoles: log: rules: r: {apiGroups: ["log.stele.dev"], resources: ["*"], verbs: ["*"]}
			clusterRoles: configs: rules: r: {apiGroups: [""], resources: ["configmaps"], verbs: ["get", "list", "watch"]}
			clusterRoles: one: rules: r: {apiGroups: [""], resources: ["configmaps"], resourceNames: ["mine"], verbs: ["get", "list", "watch"]}
			bindings: log: {clusterRole: "log", subjects: [{user: "eddie"}, {user: "reader"}], namespaces: ["*"]}
			bindings: configs: {clusterRole: "configs", subjects: [{user: "eddie"}], namespaces: ["default"]}
			bindings: one: {clusterRole: "one", subjects: [{user: "reader"}], namespaces: ["*"]}
			denies: private: {
				subjects: [{user: "eddie"}]
				rules: r: {apiGroups: [""], resources: ["configmaps"], resourceNames: ["private"], verbs: ["*"]}
				reason: "it is private"
			}
		}
	}
}
`

// Finalizers returns the finalizers of an object; "[]" if it has none.
func (a Answer) Finalizers() string {
	if f := a.Field("metadata", "finalizers"); f != nil {
		return fmt.Sprint(f)
	}
	return "[]"
}

// ExplanationsPath is the path of explanations.
const ExplanationsPath = "/apis/policy.stele.dev/v1/explanations"

// Explain asks for an explanation.
func (r *Replica) Explain(t *testing.T, spec explain.Spec, header ...string) *explain.Explanation {
	t.Helper()
	e := &explain.Explanation{Spec: spec}
	e.APIVersion, e.Kind = "policy.stele.dev/v1", "Explanation"
	text, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	a := r.Must(t, 201, "POST", ExplanationsPath, string(text), header...)
	if err := json.Unmarshal(a.Body, e); err != nil {
		t.Fatal(err)
	}
	return e
}

// Stage returns what a stage said.
func Stage(t *testing.T, e *explain.Explanation, name string) explain.Stage {
	t.Helper()
	for _, s := range e.Status.Stages {
		if s.Name == name {
			return s
		}
	}
	t.Fatalf("the stage %s said nothing: %+v", name, e.Status)
	return explain.Stage{}
}

// WidgetSpec returns the spec of an explanation of a request for widgets in the namespace default.
func WidgetSpec(verb, user string, groups ...string) explain.Spec {
	return explain.Spec{Verb: verb, Group: "example.com", Version: "v1", Resource: "widgets", Namespace: "default", User: user, Groups: groups}
}

// CheckAnswer holds what is true of every answer: no panic and no 500, a Status if it
// is an error, and JSON in any case.
func CheckAnswer(t *testing.T, a Answer) {
	t.Helper()
	if !json.Valid(a.Body) {
		t.Fatalf("not JSON: %s", a)
	}
	if a.Code < 400 {
		return
	}
	var s metav1.Status
	if err := json.Unmarshal(a.Body, &s); err != nil {
		t.Fatal(err)
	}
	if a.Code >= 500 || s.Kind != "Status" || int(s.Code) != a.Code || s.Reason == "" || s.Message == "" {
		t.Fatalf("no answer of ours: %s", a)
	}
}

// Message returns the message of a Status.
func (a Answer) Message() string {
	message, _ := a.Field("message").(string)
	return message
}

// Patch patches an object in the namespace default. kind is the kind of the patch.
func (r *Replica) Patch(name, kind, body string, header ...string) Answer {
	contentType := map[string]string{"merge": "application/merge-patch+json", "json": "application/json-patch+json", "strategic": "application/strategic-merge-patch+json"}[kind]
	return r.Do("PATCH", WidgetsPath+"/"+name, body, append([]string{"Content-Type", contentType}, header...)...)
}
