package core_test

import (
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	"stele.dev/stele/core/run/plane/planetest"
)

func TestWhoMayDoWhat(t *testing.T) {
	p := planetest.NewPlane(t)
	p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("a", 1))
	const anonymous, wrong, editor, reader, nobody = "", "Bearer wrong", "Bearer editor-token", "Bearer reader-token", "Bearer nobody-token"
	const inSystem = "/apis/example.com/v1/namespaces/kube-system/widgets"
	for _, tc := range []struct {
		as, method, path, body string
		code                   int
		message                string
	}{
		{anonymous, "GET", "/healthz", "", 200, ""},
		{anonymous, "GET", "/livez", "", 200, ""},
		{anonymous, "GET", "/readyz", "", 200, ""},
		{anonymous, "GET", "/version", "", 200, ""},
		{anonymous, "GET", "/api", "", 401, "Unauthorized"},
		{anonymous, "GET", "/metrics", "", 401, "Unauthorized"},
		{anonymous, "GET", "/healthz/ping", "", 401, "Unauthorized"},
		{anonymous, "GET", planetest.WidgetsPath, "", 401, "Unauthorized"},
		{anonymous, "POST", "/healthz", "{}", 403, ""},
		{wrong, "GET", "/healthz", "", 401, "Unauthorized"},
		{wrong, "GET", planetest.WidgetsPath, "", 401, "Unauthorized"},
		{"Basic eDp5", "GET", planetest.WidgetsPath, "", 401, "Unauthorized"},

		{editor, "GET", planetest.WidgetsPath, "", 200, ""},
		{editor, "GET", "/apis", "", 200, ""},
		{editor, "GET", "/openapi/v3", "", 200, ""},
		{editor, "GET", "/openapi/v2", "", 200, ""},
		{editor, "GET", "/version", "", 200, ""},
		{editor, "POST", planetest.WidgetsPath, planetest.Widget("b", 1), 201, ""},
		{editor, "PATCH", planetest.WidgetsPath + "/a", "{}", 200, ""},
		{editor, "GET", inSystem, "", 403, `widgets.example.com is forbidden: User "eddie" cannot list resource "widgets" in API group "example.com" in the namespace "kube-system"`},
		{editor, "GET", "/apis/example.com/v1/widgets", "", 403, `cannot list resource "widgets" in API group "example.com" at the cluster scope`},
		{editor, "GET", planetest.WidgetsPath + "/a/status", "", 403, `widgets.example.com "a" is forbidden: User "eddie" cannot get resource "widgets/status" in API group "example.com" in the namespace "default"`},
		{editor, "GET", "/api/v1/namespaces/default/secrets/x", "", 403, `secrets "x" is forbidden`},
		{editor, "GET", "/metrics", "", 403, `User "eddie" cannot get path "/metrics"`},
		{editor, "GET", "/apis/log.stele.dev/v1/changes", "", 403, `cannot list resource "changes" in API group "log.stele.dev"`},
		{editor, "GET", "/apis/example.com/v1/namespaces/default/gadgets", "", 403, `cannot list resource "gadgets"`},

		{reader, "GET", "/apis/example.com/v1/widgets", "", 200, ""},
		{reader, "GET", "/apis/log.stele.dev/v1/changes", "", 200, ""},
		{reader, "GET", "/apis/example.com/v1/namespaces/default/gadgets", "", 404, ""},
		{reader, "DELETE", planetest.WidgetsPath + "/a", "", 403, `cannot delete resource "widgets"`},
		{nobody, "GET", planetest.WidgetsPath + "/a", "", 403, "is forbidden"},
		{nobody, "GET", "/api/v1", "", 200, ""},
	} {
		header := []string{"Authorization", tc.as}
		if tc.method == "PATCH" {
			header = append(header, "Content-Type", "application/merge-patch+json")
		}
		a := p.Do(tc.method, tc.path, tc.body, header...)
		if a.Code != tc.code {
			t.Errorf("%q %s %s: %s, want %d", tc.as, tc.method, tc.path, a, tc.code)
			continue
		}
		if message, _ := a.Field("message").(string); tc.message != "" && !strings.Contains(message, tc.message) {
			t.Errorf("%q %s %s: %q, want %q", tc.as, tc.method, tc.path, message, tc.message)
		}
		if tc.code == 401 && a.Header.Get("WWW-Authenticate") == "" {
			t.Errorf("%s %s: 401 without a challenge", tc.method, tc.path)
		}
	}
}

// Every allowed write names the rule that allowed it, and its line.
func TestEventsNameTheirRule(t *testing.T) {
	p := planetest.NewPlane(t)
	p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("a", 1), "Authorization", "Bearer editor-token", "User-Agent", "tests/1", "Audit-ID", "the-audit-id")
	a := p.Must(t, 200, "GET", "/apis/log.stele.dev/v1/changes?limit=1", "")
	change := a.Field("items").([]any)[0].(map[string]any)
	decision := change["decision"].(map[string]any)
	if decision["authorizer"] != "rbac" || decision["rule"] != "t/bindings/editors" || !strings.HasPrefix(fmt.Sprint(decision["source"]), "bundle.cue:") {
		t.Errorf("decision %v", decision)
	}
	request := change["request"].(map[string]any)
	if change["actor"].(map[string]any)["user"] != "eddie" || request["verb"] != "create" || request["auditID"] != "the-audit-id" || request["userAgent"] != "tests/1" {
		t.Errorf("change %v", change)
	}
	if change["policy"] != p.Committer.Tip().Policy.DigestString() {
		t.Errorf("policy %v", change["policy"])
	}
}

// Clients find their request in the audit log by the id that they chose, or were given.
func TestAuditIDIsAnswered(t *testing.T) {
	p := planetest.NewPlane(t)
	w := httptest.NewRecorder()
	p.ServeHTTP(w, planetest.Request("GET", "/version", "", "Audit-ID", "mine"))
	if got := w.Header().Get("Audit-Id"); got != "mine" {
		t.Errorf("Audit-Id %q", got)
	}
	if a := p.Do("GET", "/version", ""); len(a.Header.Get("Audit-Id")) != 36 {
		t.Errorf("Audit-Id %q", a.Header.Get("Audit-Id"))
	}
}

// Whom a request names instead of who sends it, and what then is refused. The rules and
// texts are upstream's.
func TestImpersonation(t *testing.T) {
	p := planetest.NewPlane(t)
	for name, tc := range map[string]struct {
		as      string // token
		headers []string
		code    int
		message string
	}{
		"the administrator as an editor": {"admin", []string{"Impersonate-User", "x", "Impersonate-Group", "editors"}, 201, ""},
		"the administrator as nobody":    {"admin", []string{"Impersonate-User", "x"}, 403, `User "x" cannot create resource "widgets"`},
		"a group without a user":         {"admin", []string{"Impersonate-Group", "editors"}, 400, "without impersonating a user"},
		"an editor as the administrator": {"editor", []string{"Impersonate-User", "admin"}, 403, `users "admin" is forbidden: User "eddie" cannot impersonate resource "users" in API group "" at the cluster scope`},
		"an editor as themselves":        {"editor", []string{"Impersonate-User", "eddie"}, 403, "cannot impersonate"},
		"a helper as the one it may be":  {"helper", []string{"Impersonate-User", "eddie", "Impersonate-Group", "editors"}, 201, ""},
		"a helper as someone else":       {"helper", []string{"Impersonate-User", "admin"}, 403, `users "admin" is forbidden: User "helper" cannot impersonate`},
		"a helper in the masters' group": {"helper", []string{"Impersonate-User", "eddie", "Impersonate-Group", "system:masters"}, 403, `groups "system:masters" is forbidden: User "helper" cannot impersonate`},
		"a helper with a uid":            {"helper", []string{"Impersonate-User", "eddie", "Impersonate-Uid", "7"}, 403, `uids.authentication.k8s.io "7" is forbidden`},
		"a helper with extra":            {"helper", []string{"Impersonate-User", "eddie", "Impersonate-Extra-Scopes", "view"}, 403, `cannot impersonate resource "userextras/scopes" in API group "authentication.k8s.io"`},
		"the administrator with extra":   {"admin", []string{"Impersonate-User", "x", "Impersonate-Group", "editors", "Impersonate-Extra-Scopes", "view", "Impersonate-Uid", "7"}, 201, ""},
		"one whom no event can name":     {"admin", []string{"Impersonate-User", "\xff"}, 400, "not UTF-8"},
		"one of whom too much is said":   {"admin", []string{"Impersonate-User", "x", "Impersonate-Group", "editors", "Impersonate-Extra-Scopes", strings.Repeat("v", 70<<10)}, 400, "too large"},
		"the administrator as a robot":   {"admin", []string{"Impersonate-User", "system:serviceaccount:default:robot"}, 403, `User "system:serviceaccount:default:robot" cannot create`},
	} {
		t.Run(name, func(t *testing.T) {
			a := p.Do("POST", planetest.WidgetsPath, `{"metadata":{"generateName":"w-"},"spec":{"size":1}}`, append([]string{"Authorization", "Bearer " + tc.as + "-token"}, tc.headers...)...)
			if a.Code != tc.code || tc.message != "" && !strings.Contains(fmt.Sprint(a.Field("message")), tc.message) {
				t.Errorf("%s\nwant %d %s", a, tc.code, tc.message)
			}
		})
	}
	p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("both", 1), "Impersonate-User", "eddie", "Impersonate-Group", "editors")
	change := p.Must(t, 200, "GET", planetest.ChangesPath+"?limit=1", "").Field("items").([]any)[0].(map[string]any)
	if actor := change["actor"].(map[string]any); actor["user"] != "eddie" || actor["impersonator"] != "admin" {
		t.Errorf("the event names %v", actor)
	}
}

// A deny says why, by which rule, and where that stands, to whoever it is.
func TestADenySaysWhy(t *testing.T) {
	p := planetest.NewPlane(t)
	p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("precious", 1))
	for _, as := range []string{"admin", "editor"} {
		a := p.Must(t, 403, "DELETE", planetest.WidgetsPath+"/precious", "", "Authorization", "Bearer "+as+"-token")
		if !strings.Contains(fmt.Sprint(a.Field("message")), `cannot delete resource "widgets" in API group "example.com" in the namespace "default": precious things stay (bundle.cue:`) {
			t.Errorf("%s", a)
		}
		if causes := fmt.Sprint(a.Field("details", "causes")); !strings.Contains(causes, "t/denies/keep-precious") || !strings.Contains(causes, "bundle.cue:") {
			t.Errorf("causes %s", causes)
		}
	}
	p.Must(t, 200, "PATCH", planetest.WidgetsPath+"/precious", `{"spec":{"size":2}}`, "Content-Type", "application/merge-patch+json")
	a := p.Must(t, 201, "POST", planetest.Authorization+"selfsubjectaccessreviews", `{"spec":{"resourceAttributes":{"namespace":"default","verb":"delete","group":"example.com","resource":"widgets","name":"precious"}}}`)
	if a.Field("status", "allowed") != false || a.Field("status", "denied") != true || !strings.Contains(fmt.Sprint(a.Field("status", "reason")), "precious things stay") {
		t.Errorf("%s", a)
	}
}
