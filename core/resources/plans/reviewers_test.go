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

// reviewing starts a webhook that refuses objects with the name bad and, at /change, changes the size of every object. It returns how often it
// was asked, and a function that returns its configuration for creates of databases.
func reviewing(t *testing.T) (asked *atomic.Int32, webhook func(more, path string) string) {
	t.Helper()
	asked = new(atomic.Int32)
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
	t.Cleanup(hook.Close)
	return asked, func(more, path string) string {
		return fmt.Sprintf(`{%s rules: r: {apiGroups: ["data.corp.example"], resources: ["databases"], operations: ["CREATE"]}, sideEffects: "None", clientConfig: {url: %q, caBundle: %q}}`,
			more, hook.URL+path, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: hook.Certificate().Raw}))
	}
}

// A plan asks no webhook. Writes that one changed are undecided, and refusals of what it changed, unless nobody is asked any more.
func TestReplaysAskNoWebhooks(t *testing.T) {
	asked, webhook := reviewing(t)
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
	for name, next := range map[string]string{"the same policy": asking(), "a smaller limit": asking("maxGiB: 500", "maxGiB: 300")} {
		p := s.plan(t, "admin", next, week)
		why := strings.Join(p.Replay.Why, "\n")
		if len(p.Replay.Flips) != 0 || name != "the same policy" && (p.Replay.Undecided != 2 || !strings.Contains(why, "a webhook or a plugin changed its object: data/webhooks/mutating/change.example.com") ||
			!strings.Contains(why, "a webhook or an admission plugin decides it, or may: data/webhooks/mutating/change.example.com")) {
			t.Errorf("%s: %s", name, show(p))
		}
	}
	p := s.plan(t, "admin", changed(t), week)
	if f := onlyFlip(t, p, false); f.Count != 1 || f.Rule != "data/webhooks/validating/check.example.com" || p.Replay.Undecided != 1 {
		t.Errorf("without webhooks: %s", show(p))
	}
	if asked.Load() != before {
		t.Errorf("plans have asked webhooks %d times", asked.Load()-before)
	}
}

// What a webhook answered about a write is its answer in a replay, as long as the policy asks the same of the same object. A webhook that the
// proposed policy asks for the first time, or otherwise, decides what nobody knows.
func TestReplaysTakeRecordedAnswersOfWebhooks(t *testing.T) {
	asked, webhook := reviewing(t)
	asking := func(validating string, pairs ...string) string {
		return changed(t, append([]string{"admission: validate: limit:", "admission: webhooks: validating: {" + validating + `}
		admission: validate: limit:`}, pairs...)...)
	}
	check := `"check.example.com": ` + webhook("", "/check")
	s := start(t)
	s.Activate(t, asking(check))
	s.must(t, "admin", "POST", "/api/v1/namespaces", `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"shop"}}`)
	s.must(t, "dana", "POST", databases, database("good", ""))
	s.refused(t, 400, "dana", "POST", databases, database("bad", ""))
	before := asked.Load()
	const id = "data/webhooks/validating/"
	for _, c := range []struct {
		name, next         string
		undecided          int
		why, flip          string
		refused, unchanged bool
	}{
		{"another rule", asking(check, `message: "too large"`, `message: "larger than allowed"`), 0, "", "", false, true},
		{"a smaller limit", asking(check, "maxGiB: 500", "maxGiB: 5"), 0, "", "data/validate/limit/max", true, false},
		{"one more webhook", asking(check + `, "more.example.com": ` + webhook("", "/more")), 1, id + "more.example.com", "", false, true},
		{"another address", asking(`"check.example.com": ` + webhook("", "/other")), 2, id + "check.example.com", "", false, true},
		{"a default that the webhook has not seen", asking(check, "pool: max: int & >=1 & <=1000 | *10", "pool: max: int & >=1 & <=1000 | *11"), 2, id + "check.example.com", "", false, true},
		{"no webhook", changed(t), 0, "", id + "check.example.com", false, false},
	} {
		p := s.plan(t, "admin", c.next, week)
		if p.Replay.Undecided != c.undecided || !strings.Contains(strings.Join(p.Replay.Why, "\n"), c.why) {
			t.Errorf("%s: %d undecided: %s", c.name, p.Replay.Undecided, show(p))
		}
		if c.unchanged {
			if len(p.Replay.Flips) != 0 {
				t.Errorf("%s: %s", c.name, show(p))
			}
		} else if f := onlyFlip(t, p, c.refused); f.Count != 1 || f.Rule != c.flip {
			t.Errorf("%s: %s", c.name, show(p))
		}
	}
	if asked.Load() != before {
		t.Errorf("plans have asked webhooks %d times", asked.Load()-before)
	}
}
