package plans_test

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Rules that ask authorizers outside of the policy decide neither stored objects nor recorded writes.
func TestRulesThatAskOutsideDecideNothing(t *testing.T) {
	s := stocked(t)
	next := changed(t, `cluster: "test"`, "cluster: \"test\"\n\tauthorizers: [\"deny\", \"rbac\", \"abac\"]", "admission: validate: limit:", `admission: validate: asks: {
			match: {apiGroups: ["data.corp.example"], resources: ["databases"]}
			validations: reads: {expression: "object.spec.storageGiB > 250 || authorizer.serviceAccount('shop', 'robot').group('').resource('secrets').namespace('shop').check('get').allowed()", message: "the robot may not read secrets"}
		}
		admission: validate: limit:`)
	p := s.plan(t, "admin", next, week)
	if strings.Contains(show(p), "the robot") || p.Checked.Objects != 5 || !strings.Contains(strings.Join(p.Notes, "\n"), "5 of 10 databases.data.corp.example could not be tried") {
		t.Errorf("%s", show(p))
	}
	if why := strings.Join(p.Replay.Why, "\n"); len(p.Replay.Flips) != 0 || p.Replay.Undecided != 5 || !strings.Contains(why, "outside of the policy") {
		t.Errorf("%s", show(p))
	}
}

// A plan asks no webhook. Writes that one changed, and refusals by one, are undecided.
func TestReplaysAskNoWebhooks(t *testing.T) {
	var asked atomic.Int32
	hook := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		in := &admissionv1.AdmissionReview{}
		if err := json.NewDecoder(r.Body).Decode(in); err != nil {
			t.Error(err)
		}
		out := &admissionv1.AdmissionReview{TypeMeta: in.TypeMeta, Response: &admissionv1.AdmissionResponse{UID: in.Request.UID, Allowed: in.Request.Name != "bad", Result: &metav1.Status{Message: "it is bad"}}}
		if r.URL.Path == "/change" {
			kind := admissionv1.PatchTypeJSONPatch
			out.Response.Allowed, out.Response.PatchType, out.Response.Patch = true, &kind, []byte(`[{"op":"add","path":"/spec/storageGiB","value":400}]`)
		}
		if err := json.NewEncoder(w).Encode(out); err != nil {
			t.Error(err)
		}
	}))
	defer hook.Close()
	webhook := func(more, path string) string {
		return fmt.Sprintf(`{%s rules: r: {apiGroups: ["data.corp.example"], resources: ["databases"], operations: ["CREATE"]}, sideEffects: "None", clientConfig: {url: %q, caBundle: %q}}`,
			more, hook.URL+path, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: hook.Certificate().Raw}))
	}
	asking := func(pairs ...string) string {
		return changed(t, append([]string{"admission: validate: limit:", `admission: webhooks: {mutating: "change.example.com": ` + webhook("order: 1,", "/change") + `, validating: "check.example.com": ` + webhook("", "/check") + `}
		admission: validate: limit:`}, pairs...)...)
	}
	s := start(t)
	s.Activate(t, asking())
	s.must(t, "admin", "POST", "/api/v1/namespaces", `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"shop"}}`)
	s.must(t, "dana", "POST", databases, database("good", ""))
	if text := s.refused(t, 400, "dana", "POST", databases, database("bad", "")); !strings.Contains(text, "it is bad") {
		t.Error(text)
	}
	before := asked.Load()
	for name, next := range map[string]string{"the same policy": asking(), "a smaller limit": asking("maxGiB: 500", "maxGiB: 300"), "without webhooks": changed(t)} {
		p := s.plan(t, "admin", next, week)
		if len(p.Replay.Flips) != 0 || name != "the same policy" && (p.Replay.Undecided != 2 || !strings.Contains(strings.Join(p.Replay.Why, "\n"), "a webhook or a plugin changed its object")) {
			t.Errorf("%s: %s", name, show(p))
		}
	}
	if asked.Load() != before {
		t.Errorf("plans have asked webhooks %d times", asked.Load()-before)
	}
}
