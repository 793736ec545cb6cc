package core_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/logpb"
	"stele.dev/stele/eventlog/memlog"
)

// audited returns the text of a bundle with audit rules.
func audited(rules string) string {
	return strings.Replace(bundle, `cluster: "test"`, "cluster: \"test\"\n\taudit: rules: {"+rules+"}", 1)
}

// newAudited starts a control plane whose policy has audit rules.
func newAudited(t testing.TB, rules string) *replica {
	t.Helper()
	var store memlog.Store
	r := start(t, store.Open(nil), 0)
	r.bootstrap(t, audited(rules))
	return r
}

// lastEvent returns the newest event of the log.
func (r *replica) lastEvent(t testing.TB) *eventlog.Event {
	t.Helper()
	events := r.events(t, r.committer.Tip().Revision()-1)
	return events[len(events)-1]
}

// recorded is what an event has of the audit rule of its request: level, rule, and the body with its media type.
func (r *replica) recorded(t testing.TB) string {
	t.Helper()
	e := r.lastEvent(t)
	a := e.Meta.GetDecisions().GetAudit()
	text := strings.TrimPrefix(a.GetLevel().String(), "AUDIT_LEVEL_") + " " + a.GetRule()
	for i, p := range e.Meta.GetPayloads() {
		if p.GetRole() == logpb.Role_ROLE_REQUEST {
			text += fmt.Sprintf(" %s %s", p.GetMediaType(), e.Contents[i])
			if p.GetClass().GetSensitive() {
				text += " sensitive"
			}
		}
	}
	return text
}

func TestWritesHaveTheirAuditRule(t *testing.T) {
	p := newAudited(t, `
		none: {order: 1, level: "None", verbs: ["create"], subjects: [{group: "editors"}]}
		request: {order: 2, level: "Request", apiGroups: ["example.com"], resources: ["widgets"], verbs: ["patch", "update", "delete", "deletecollection"]}
		secrets: {order: 3, level: "RequestResponse", apiGroups: [""], resources: ["secrets"]}
		rest: {order: 9, level: "Metadata"}`)
	patch, merge := `{"spec":{"size":7}}`, []string{"Content-Type", "application/merge-patch+json"}
	update := strings.Replace(widget("a", 8), `"metadata":{`, `"metadata":{"resourceVersion":"TIP","labels":{"x":"y"},`, 1)
	options := `{"kind":"DeleteOptions","apiVersion":"v1","propagationPolicy":"Background"}`
	secret := `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s"},"stringData":{"a":"b"}}`
	for _, tc := range []struct {
		code                     int
		method, path, body, want string
		header                   []string
	}{
		{201, "POST", widgetsPath, strings.Replace(widget("a", 1), `"size":1`, `"size":1,"color":"red"`, 1), "METADATA audit/rules/rest", nil},
		{201, "POST", widgetsPath, widget("b", 1), "METADATA audit/rules/rest application/json " + widget("b", 1), nil}, // its defaults differ
		{201, "POST", widgetsPath, strings.Replace(widget("c", 1), `"size":1`, `"size":1,"color":"red"`, 1), "NONE audit/rules/none", []string{"Authorization", "Bearer editor-token"}},
		{200, "PATCH", widgetsPath + "/a", patch, "REQUEST audit/rules/request application/merge-patch+json " + patch, merge},
		{200, "PUT", widgetsPath + "/a", update, "REQUEST audit/rules/request application/json " + update, nil},
		{200, "DELETE", widgetsPath + "/a", options, "REQUEST audit/rules/request application/json " + options, nil},
		{200, "DELETE", widgetsPath + "/b", "", "REQUEST audit/rules/request", nil},
		{200, "DELETE", widgetsPath, options, "REQUEST audit/rules/request application/json " + options, nil},
		{201, "POST", "/api/v1/namespaces/default/secrets", secret, "REQUEST_RESPONSE audit/rules/secrets application/json " + secret + " sensitive", nil},
	} {
		tip := strings.NewReplacer("TIP", fmt.Sprint(p.committer.Tip().Revision()))
		p.must(t, tc.code, tc.method, tc.path, tip.Replace(tc.body), tc.header...)
		if got := p.recorded(t); got != tip.Replace(tc.want) {
			t.Errorf("%s %s: %s, want %s", tc.method, tc.path, got, tc.want)
		}
	}
	a := p.lastEvent(t).Meta.GetDecisions().GetAudit()
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
	p.must(t, 201, "POST", widgetsPath, widget("a", 1), "Authorization", "Bearer helper-token", "Impersonate-User", "eddie", "Impersonate-Group", "editors")
	if got := p.recorded(t); !strings.HasPrefix(got, "METADATA audit/rules/helper") {
		t.Error(got)
	}
}

func TestWithoutAuditRulesWritesAreRecordedAtMetadata(t *testing.T) {
	p := newPlane(t)
	p.must(t, 201, "POST", widgetsPath, widget("a", 1))
	p.must(t, 200, "DELETE", widgetsPath+"/a", `{"propagationPolicy":"Background"}`)
	if got := p.recorded(t); got != "METADATA " {
		t.Errorf("%q", got)
	}
	if a := p.lastEvent(t).Meta.GetDecisions().GetAudit(); a.GetStages() != 4 || a.GetSource() != "" {
		t.Errorf("%v", a)
	}
}

func TestANewPolicyDecidesWhatIsRecorded(t *testing.T) {
	p := newAudited(t, `rest: {order: 9, level: "Metadata"}`)
	p.must(t, 201, "POST", widgetsPath, widget("a", 1))
	p.bootstrap(t, audited(`rest: {order: 9, level: "None"}`))
	if e := p.lastEvent(t); e.Meta.GetDecisions().GetAudit().GetRule() != "audit/rules/rest" {
		t.Errorf("the activation has %v", e.Meta.GetDecisions())
	}
	p.must(t, 201, "POST", widgetsPath, strings.Replace(widget("b", 1), `"size":1`, `"size":1,"color":"red"`, 1))
	if got := p.recorded(t); got != "NONE audit/rules/rest" {
		t.Error(got)
	}
}

// The server's own writes have a rule as well.
func TestTheServersOwnWritesAreClassified(t *testing.T) {
	p := newAudited(t, `
		own: {order: 1, level: "None", subjects: [{user: "system:stele"}], apiGroups: [""], resources: ["namespaces"], verbs: ["create"]}
		rest: {order: 2, level: "Metadata"}`)
	found := map[string]string{}
	for _, e := range p.events(t, 0) {
		if o := e.Meta.GetObject(); o.GetResource() == "namespaces" {
			found[o.GetName()] = e.Meta.GetDecisions().GetAudit().GetRule()
		}
	}
	if found["default"] != "audit/rules/own" || found["kube-system"] != "audit/rules/own" {
		t.Errorf("the namespaces were recorded by %v", found)
	}
}
