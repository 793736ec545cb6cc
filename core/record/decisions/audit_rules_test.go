package decisions_test

import (
	"fmt"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"
	"stele.dev/stele/core/auth/authn"
	"stele.dev/stele/core/run/plane/planetest"
	"stele.dev/stele/eventlog/memlog"
)

// newAudited starts a control plane whose policy has audit rules.
func newAudited(t testing.TB, rules string) *planetest.Replica {
	t.Helper()
	var store memlog.Store
	r := planetest.StartReplica(t, store.Open(nil), 0)
	r.Bootstrap(t, planetest.Audited(rules))
	return r
}

func TestWritesHaveTheirAuditRule(t *testing.T) {
	p := newAudited(t, `
		none: {order: 1, level: "None", verbs: ["create"], subjects: [{group: "editors"}]}
		request: {order: 2, level: "Request", apiGroups: ["example.com"], resources: ["widgets"], verbs: ["patch", "update", "delete", "deletecollection"]}
		secrets: {order: 3, level: "RequestResponse", apiGroups: [""], resources: ["secrets"]}
		rest: {order: 9, level: "Metadata"}`)
	patch, merge := `{"spec":{"size":7}}`, []string{"Content-Type", "application/merge-patch+json"}
	update := strings.Replace(planetest.Widget("a", 8), `"metadata":{`, `"metadata":{"resourceVersion":"TIP","labels":{"x":"y"},`, 1)
	options := `{"kind":"DeleteOptions","apiVersion":"v1","propagationPolicy":"Background"}`
	secret := `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s"},"stringData":{"a":"b"}}`
	for _, tc := range []struct {
		code                     int
		method, path, body, want string
		header                   []string
	}{
		{201, "POST", planetest.WidgetsPath, strings.Replace(planetest.Widget("a", 1), `"size":1`, `"size":1,"color":"red"`, 1), "METADATA audit/rules/rest", nil},
		{201, "POST", planetest.WidgetsPath, planetest.Widget("b", 1), "METADATA audit/rules/rest application/json " + planetest.Widget("b", 1), nil}, // its defaults differ
		{201, "POST", planetest.WidgetsPath, strings.Replace(planetest.Widget("c", 1), `"size":1`, `"size":1,"color":"red"`, 1), "NONE audit/rules/none", []string{"Authorization", "Bearer editor-token"}},
		{200, "PATCH", planetest.WidgetsPath + "/a", patch, "REQUEST audit/rules/request application/merge-patch+json " + patch, merge},
		{200, "PUT", planetest.WidgetsPath + "/a", update, "REQUEST audit/rules/request application/json " + update, nil},
		{200, "DELETE", planetest.WidgetsPath + "/a", options, "REQUEST audit/rules/request application/json " + options, nil},
		{200, "DELETE", planetest.WidgetsPath + "/b", "", "REQUEST audit/rules/request", nil},
		{200, "DELETE", planetest.WidgetsPath, options, "REQUEST audit/rules/request application/json " + options, nil},
		{201, "POST", "/api/v1/namespaces/default/secrets", secret, "REQUEST_RESPONSE audit/rules/secrets application/json " + secret + " sensitive", nil},
	} {
		tip := strings.NewReplacer("TIP", fmt.Sprint(p.Committer.Tip().Revision()))
		p.Must(t, tc.code, tc.method, tc.path, tip.Replace(tc.body), tc.header...)
		if got := p.Recorded(t); got != tip.Replace(tc.want) {
			t.Errorf("%s %s: %s, want %s", tc.method, tc.path, got, tc.want)
		}
	}
	a := p.LastEvent(t).Meta.GetDecisions().GetAudit()
	if !regexp.MustCompile(`^bundle\.cue:[0-9]+`).MatchString(a.GetSource()) || a.GetStages() != 15 {
		t.Errorf("%v", a)
	}
	if !regexp.MustCompile(`^([a-z]+=[0-9]+ )*[a-z]+=[0-9]+$`).MatchString(a.GetTimings()) {
		t.Errorf("the timings are %q", a.GetTimings())
	}
}

// The user of an audit rule is the one who sent the request, as in kube-apiserver.
func TestImpersonationDoesNotChangeTheAuditRule(t *testing.T) {
	p := newAudited(t, `
		eddie: {order: 1, level: "None", subjects: [{user: "eddie"}, {group: "editors"}]}
		helper: {order: 2, level: "Metadata", subjects: [{user: "helper"}]}`)
	p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("a", 1), "Authorization", "Bearer helper-token", "Impersonate-User", "eddie", "Impersonate-Group", "editors")
	if got := p.Recorded(t); !strings.HasPrefix(got, "METADATA audit/rules/helper") {
		t.Error(got)
	}
}

func TestWithoutAuditRulesWritesAreRecordedAtMetadata(t *testing.T) {
	p := planetest.NewPlane(t)
	p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("a", 1))
	p.Must(t, 200, "DELETE", planetest.WidgetsPath+"/a", `{"propagationPolicy":"Background"}`)
	if got := p.Recorded(t); got != "METADATA " {
		t.Errorf("%q", got)
	}
	if a := p.LastEvent(t).Meta.GetDecisions().GetAudit(); a.GetStages() != 4 || a.GetSource() != "" {
		t.Errorf("%v", a)
	}
}

// Who reads secrets is recorded, also if nobody has thought of audit rules. Other reads are not.
func TestWithoutAuditRulesReadsOfSecretsAreRecorded(t *testing.T) {
	const secret = "READ answer 200 " // and no rule of the policy
	var store memlog.Store
	p := planetest.StartReplica(t, store.Open(nil), 0)
	p.Bootstrap(t, strings.Replace(planetest.Bundle, "owner?:", "token?: string @stele(sensitive)\n\t\towner?:", 1))
	p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("a", 1))
	p.Must(t, 201, "POST", planetest.SecretsPath, `{"metadata":{"name":"s"}}`)
	for id, tc := range map[string]struct {
		path, want string
	}{
		"get":            {planetest.SecretsPath + "/s", secret},
		"list":           {planetest.SecretsPath, secret},
		"list all":       {"/api/v1/secrets", secret},
		"past":           {"/at/" + fmt.Sprint(p.Committer.Tip().Revision()) + planetest.SecretsPath + "/s", secret},
		"missing":        {planetest.SecretsPath + "/none", "READ answer 404 "},
		"sensitive":      {planetest.WidgetsPath + "/a", secret},
		"sensitive list": {planetest.WidgetsPath, secret},
		"other":          {planetest.ConfigMapsPath, "0 decisions"},
		"discovery":      {"/api/v1", "0 decisions"},
	} {
		code := 200
		if id == "missing" {
			code = 404
		}
		p.Must(t, code, "GET", tc.path, "", "Audit-ID", id)
		if got := decided(p, t, id); got != strings.TrimSpace(tc.want) {
			t.Errorf("%s: %q, want %q", id, got, tc.want)
		}
	}
	p.Must(t, 200, "GET", planetest.SecretsPath+"?watch=true&timeoutSeconds=1", "", "Audit-ID", "watch")
	if found := p.Decisions(t, "watch"); len(found) != 2 {
		t.Errorf("a watch has %d records, want one of its beginning and one of its end", len(found))
	} else if a := found[0].Meta.GetDecisions().GetAudit(); a.GetRule() != "builtin/secret-reads" || a.GetSource() != "" {
		t.Errorf("it is recorded by %v", a)
	}
}

// The controllers of the program read Secrets, too. That nobody sees.
func TestReadsOfTheProgramItselfAreNotRecorded(t *testing.T) {
	p := planetest.NewPlane(t)
	p.Must(t, 201, "POST", planetest.SecretsPath, `{"metadata":{"name":"s"}}`)
	q := httptest.NewRequest("GET", planetest.SecretsPath+"/s", nil)
	q.Header.Set("Audit-ID", "inside")
	p.ServeHTTP(httptest.NewRecorder(), q.WithContext(authn.WithUser(q.Context(), &user.DefaultInfo{Name: "system:serviceaccount:kube-system:x", Groups: []string{"system:masters"}})))
	if found := p.Decisions(t, "inside"); len(found) > 0 {
		t.Errorf("%v", found)
	}
}

func TestANewPolicyDecidesWhatIsRecorded(t *testing.T) {
	p := newAudited(t, `rest: {order: 9, level: "Metadata"}`)
	p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("a", 1))
	p.Bootstrap(t, planetest.Audited(`rest: {order: 9, level: "None"}`))
	if e := p.LastEvent(t); e.Meta.GetDecisions().GetAudit().GetRule() != "audit/rules/rest" {
		t.Errorf("the activation has %v", e.Meta.GetDecisions())
	}
	p.Must(t, 201, "POST", planetest.WidgetsPath, strings.Replace(planetest.Widget("b", 1), `"size":1`, `"size":1,"color":"red"`, 1))
	if got := p.Recorded(t); got != "NONE audit/rules/rest" {
		t.Error(got)
	}
}

// The server's own writes have a rule as well.
func TestTheServersOwnWritesAreClassified(t *testing.T) {
	p := newAudited(t, `
		own: {order: 1, level: "None", subjects: [{user: "system:stele"}], apiGroups: [""], resources: ["namespaces"], verbs: ["create"]}
		rest: {order: 2, level: "Metadata"}`)
	found := map[string]string{}
	for _, e := range p.Events(t, 0) {
		if o := e.Meta.GetObject(); o.GetResource() == "namespaces" {
			found[o.GetName()] = e.Meta.GetDecisions().GetAudit().GetRule()
		}
	}
	if found["default"] != "audit/rules/own" || found["kube-system"] != "audit/rules/own" {
		t.Errorf("the namespaces were recorded by %v", found)
	}
}
