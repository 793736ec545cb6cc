package core_test

import (
	"fmt"
	"strings"
	"testing"

	"stele.dev/stele/core/commit"
	"stele.dev/stele/eventlog/memlog"
)

// ruled is the bundle with conditions and rules in CEL.
var ruled = strings.NewReplacer(
	"			additionalPrinterColumns", `			validations: grow: {path: "spec.size", rule: "self >= oldSelf", message: "a widget can only grow"}
				validations: ports: {path: "spec.ports[*]", rule: "self.port != 13", messageExpression: "'port ' + self.name + ' brings bad luck'", reason: "FieldValueForbidden"}
				validations: limits: {path: "spec.limits[*]", rule: "self <= 100"}
				validations: named: {rule: "self.metadata.name != 'nameless' || self.spec.size > 5"}
				additionalPrinterColumns`,
	"bindings: editors:", `clusterRoles: makers: rules: r: {apiGroups: ["example.com"], resources: ["widgets"], verbs: ["create", "update", "patch", "delete"]}
			bindings: small: {clusterRole: "makers", subjects: [{group: "makers"}], namespaces: ["default"]
				when: "(object == null || object.spec.size <= 5) && (oldObject == null || oldObject.spec.size <= 5)"
			}
			clusterRoles: keepers: rules: r: {apiGroups: [""], resources: ["secrets"], verbs: ["patch", "update", "delete"]}
			bindings: own: {clusterRole: "keepers", subjects: [{group: "owners"}], namespaces: ["*"], when: "oldObject.metadata.labels['owner'] == request.userInfo.username"}
			bindings: night: {clusterRole: "reader", subjects: [{group: "makers"}], namespaces: ["*"], when: "request.namespace != 'kube-system'"}
			denies: frozen: {
				subjects: [{group: "system:authenticated"}]
				rules: r: {apiGroups: ["example.com"], resources: ["widgets"], verbs: ["update", "patch"]}
				unless: "!('frozen' in oldObject.metadata.?labels.orValue({})) || request.userInfo.username == 'break-glass'"
				reason: "frozen widgets stay as they are"
			}
			bindings: editors:`,
	"		rbac: {", `		admission: validate: "size-limit": {
			match: {apiGroups: ["example.com"], resources: ["widgets"], conditions: unlabelled: "!('big' in object.metadata.?labels.orValue({}))"}
			params: maxSize: int | *10
			variables: over: "object.spec.size - params.maxSize"
			validations: max: {
				expression:        "variables.over <= 0"
				messageExpression: "'size ' + string(object.spec.size) + ' is over ' + string(params.maxSize)"
			}
			validations: color: {expression: "object.spec.color != 'green'", message: "no green", reason: "Forbidden"}
		}
		admission: validate: "advice": {
			match: {apiGroups: ["example.com"], resources: ["widgets", "widgets/status"], operations: ["*"]}
			validationActions: ["Warn", "Audit"]
			validations: owner: {expression: "object == null || has(object.spec.owner)", message: "say who owns it"}
		}
		admission: validate: "keep": {
			match: {apiGroups: ["example.com"], resources: ["widgets"], operations: ["DELETE"], objectSelector: matchLabels: keep: "true"}
			validations: no: {expression: "authorizer.group('').resource('secrets').check('delete').allowed()", message: "only those who may delete secrets"}
		}
		admission: validate: "closed": {
			match: {apiGroups: ["example.com"], resources: ["widgets"], operations: ["CREATE"], namespaceSelector: matchLabels: closed: "true"}
			validations: no: {expression: "false", messageExpression: "'namespace ' + namespaceObject.metadata.name + ' is closed'"}
		}
		admission: validate: "broken": {
			match: {apiGroups: ["example.com"], resources: ["plains"]}
			validations: no: {expression: "object.spec.a > 1"}
		}
		rbac: {`,
).Replace(bundle)

func newRuledPlane(t *testing.T) *replica {
	t.Helper()
	var store memlog.Store
	r := start(t, store.Open(nil), 0)
	r.bootstrap(t, ruled)
	return r
}

func makers() []string { return []string{"Impersonate-User", "mia", "Impersonate-Group", "makers"} }

// refuses fails the test unless the answer is a refusal that says all this.
func (a answer) refuses(t *testing.T, code int, texts ...string) {
	t.Helper()
	if a.code != code {
		t.Fatalf("%s\nwant %d", a, code)
	}
	said := strings.NewReplacer(`\u003c`, "<", `\u003e`, ">").Replace(string(a.body))
	for _, text := range texts {
		if !strings.Contains(said, text) {
			t.Errorf("%s\nlacks %s", a, text)
		}
	}
}

// A write that breaks a rule of admission is refused with the rule's message, its id and
// its line, and all that is wrong is said at once.
func TestAdmissionRulesRefuse(t *testing.T) {
	p := newRuledPlane(t)
	a := p.do("POST", widgetsPath, widget("a", 11))
	a.refuses(t, 422, `"reason":"Invalid"`, `widgets.example.com \"a\" is forbidden: rule t/validate/size-limit/max (bundle.cue:`, `denied the request: size 11 is over 10"`,
		`"causes":[{"reason":"t/validate/size-limit/max","message":"size 11 is over 10 (rule t/validate/size-limit/max)","field":"bundle.cue:`)
	a = p.do("POST", widgetsPath, `{"metadata":{"name":"a"},"spec":{"size":11,"color":"green"}}`)
	a.refuses(t, 403, "no green", "; rule t/validate/size-limit/max", "size 11 is over 10")
	p.must(t, 201, "POST", widgetsPath, widget("a", 10))
	patch := []string{"Content-Type", "application/merge-patch+json"}
	p.do("PATCH", widgetsPath+"/a", `{"spec":{"size":12}}`, patch...).refuses(t, 422, "size 12 is over 10")
	p.do("PATCH", widgetsPath+"/a?dryRun=All", `{"spec":{"size":12}}`, patch...).refuses(t, 422, "size 12 is over 10")
	// The match's condition is not met.
	p.must(t, 200, "PATCH", widgetsPath+"/a", `{"metadata":{"labels":{"big":""}},"spec":{"size":12}}`, patch...)
	// Another kind, whose rule cannot be evaluated.
	p.do("POST", "/apis/example.com/v1/plains", `{"metadata":{"name":"p"},"spec":{}}`).refuses(t, 422, "expression 'object.spec.a > 1' resulted in error: no such key: a")
}

func TestAdmissionRulesSelect(t *testing.T) {
	p := newRuledPlane(t)
	p.must(t, 201, "POST", "/api/v1/namespaces", `{"metadata":{"name":"shut","labels":{"closed":"true"}}}`)
	p.do("POST", "/apis/example.com/v1/namespaces/shut/widgets", widget("a", 1)).refuses(t, 422, "namespace shut is closed")
	p.must(t, 201, "POST", widgetsPath, widget("a", 1))
	p.must(t, 201, "POST", widgetsPath, `{"metadata":{"name":"kept","labels":{"keep":"true"}},"spec":{"size":1}}`)
	p.do("DELETE", widgetsPath+"/kept", "", "Authorization", "Bearer editor-token").refuses(t, 422, "only those who may delete secrets")
	p.must(t, 200, "DELETE", widgetsPath+"/a", "", "Authorization", "Bearer editor-token")
	p.must(t, 200, "DELETE", widgetsPath+"/kept", "")
}

// What only warns or audits is in the answer and in the event.
func TestAdmissionRulesWarnAndAudit(t *testing.T) {
	p := newRuledPlane(t)
	a := p.must(t, 201, "POST", widgetsPath, widget("a", 1))
	if w := a.header.Get("Warning"); !strings.Contains(w, "validation failed for rule t/validate/advice/owner (bundle.cue:") || !strings.Contains(w, "say who owns it") {
		t.Errorf("Warning %q", w)
	}
	change := p.must(t, 200, "GET", changesPath+"?limit=1", "").field("items").([]any)[0]
	if text := fmt.Sprint(change); !strings.Contains(text, "t/validate/advice/owner") || !strings.Contains(text, "say who owns it") {
		t.Errorf("the event has %s", text)
	}
	a = p.must(t, 201, "POST", widgetsPath, `{"metadata":{"name":"b"},"spec":{"size":1,"owner":"a@example.com"}}`)
	if w := a.header.Get("Warning"); w != "" {
		t.Errorf("Warning %q", w)
	}
	a = p.must(t, 200, "PATCH", widgetsPath+"/a/status", `{"status":{"ready":true}}`, "Content-Type", "application/merge-patch+json")
	if w := a.header.Get("Warning"); !strings.Contains(w, "say who owns it") {
		t.Errorf("Warning %q", w)
	}
}

// Rules in CEL of a schema name the field, and compare with what was there.
func TestRulesOfASchema(t *testing.T) {
	p := newRuledPlane(t)
	patch := []string{"Content-Type", "application/merge-patch+json"}
	p.must(t, 201, "POST", widgetsPath, widget("a", 5))
	p.do("PATCH", widgetsPath+"/a", `{"spec":{"size":4}}`, patch...).refuses(t, 422,
		`Widget.example.com \"a\" is invalid: spec.size: Invalid value: 4: a widget can only grow (bundle.cue:`, `"field":"spec.size"`)
	p.must(t, 200, "PATCH", widgetsPath+"/a", `{"spec":{"size":6}}`, patch...)
	p.do("PATCH", widgetsPath+"/a", `{"spec":{"ports":[{"name":"x","port":12},{"name":"y","port":13}],"limits":{"a":1,"b":101}}}`, patch...).refuses(t, 422,
		"spec.ports[1]: Forbidden: port y brings bad luck (bundle.cue:", "spec.limits[b]: Invalid value: 101: failed rule: self <= 100")
	p.do("POST", widgetsPath, widget("nameless", 5)).refuses(t, 422, "failed rule: self.metadata.name != 'nameless'")
	p.must(t, 201, "POST", widgetsPath, widget("nameless", 6))
	// Where the object is not sound they are not evaluated.
	p.do("POST", widgetsPath, `{"metadata":{"name":"c"},"spec":{}}`).refuses(t, 422, "spec.size: Required value", "some validation rules were not checked because the object was invalid")
}

// A grant on a condition holds where the condition does: for requests at once, for objects
// once they are known.
func TestGrantsOnConditions(t *testing.T) {
	p := newRuledPlane(t)
	patch := append(makers(), "Content-Type", "application/merge-patch+json")
	p.must(t, 200, "GET", widgetsPath, "", makers()...)
	p.do("GET", "/apis/example.com/v1/namespaces/kube-system/widgets", "", makers()...).refuses(t, 403, `User \"mia\" cannot list resource \"widgets\"`)
	p.must(t, 201, "POST", widgetsPath, widget("a", 5), makers()...)
	p.do("POST", widgetsPath, widget("b", 6), makers()...).refuses(t, 403,
		`User \"mia\" cannot create resource \"widgets\"`, `: \"t/bindings/small\" (bundle.cue:`, `would allow it, but its condition does not hold: (object == null || object.spec.size <= 5)`)
	p.do("PATCH", widgetsPath+"/a", `{"spec":{"size":6}}`, patch...).refuses(t, 403, "its condition does not hold")
	p.do("PATCH", widgetsPath+"/a?dryRun=All", `{"spec":{"size":6}}`, patch...).refuses(t, 403, "its condition does not hold")
	p.must(t, 200, "PATCH", widgetsPath+"/a", `{"spec":{"size":6}}`, patch[4:]...)
	p.do("PATCH", widgetsPath+"/a", `{"metadata":{"labels":{"x":"y"}}}`, patch...).refuses(t, 403, "its condition does not hold")
	p.do("DELETE", widgetsPath+"/a", "", makers()...).refuses(t, 403, "its condition does not hold")
	p.must(t, 201, "POST", widgetsPath, widget("c", 5), makers()...)
	p.must(t, 200, "DELETE", widgetsPath+"/c", "", makers()...)

	change := p.must(t, 200, "GET", changesPath+"?limit=1", "").field("items").([]any)[0].(map[string]any)
	if d := change["decision"].(map[string]any); d["rule"] != "t/bindings/small" || !strings.HasPrefix(fmt.Sprint(d["source"]), "bundle.cue:") {
		t.Errorf("decision %v", d)
	}
	a := p.must(t, 201, "POST", authorization+"selfsubjectaccessreviews", `{"spec":{"resourceAttributes":{"namespace":"default","verb":"create","group":"example.com","resource":"widgets"}}}`, makers()...)
	if a.field("status", "allowed") != false || !strings.Contains(fmt.Sprint(a.field("status", "reason")), "it depends on the object") {
		t.Errorf("%s", a)
	}
	a = p.must(t, 201, "POST", authorization+"selfsubjectrulesreviews", `{"spec":{"namespace":"default"}}`, makers()...)
	if a.field("status", "incomplete") != true || !strings.Contains(fmt.Sprint(a.field("status", "evaluationError")), "t/bindings/small") || strings.Contains(fmt.Sprint(a.field("status", "resourceRules")), "widgets") {
		t.Errorf("%s", a)
	}
}

// A grant on a condition is less than a binding says, and is not shown as one.
func TestGrantsOnConditionsAreNotShownAsBindings(t *testing.T) {
	p := newRuledPlane(t)
	const bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/"
	p.must(t, 200, "GET", bindings+"t:readers", "")
	p.must(t, 404, "GET", bindings+"t:night", "")
	p.must(t, 404, "GET", "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings/t:small", "")
}

// Who may write some objects, which depends on the object, does not learn from errors what
// is in those that they may neither write nor read.
func TestConditionsOnTheObjectKeepIt(t *testing.T) {
	p := newRuledPlane(t)
	p.must(t, 201, "POST", "/api/v1/namespaces/default/secrets", `{"metadata":{"name":"s","labels":{"owner":"sam"}},"stringData":{"password":"hunter2"}}`)
	p.must(t, 201, "POST", "/api/v1/namespaces/default/secrets", `{"metadata":{"name":"mine","labels":{"owner":"mia"}},"stringData":{"password":"x"}}`)
	const path = "/api/v1/namespaces/default/secrets/"
	who := []string{"Impersonate-User", "mia", "Impersonate-Group", "owners"}
	jsonPatch, mergePatch := append(who[:4:4], "Content-Type", "application/json-patch+json"), append(who[:4:4], "Content-Type", "application/merge-patch+json")
	// Whatever becomes of it, before it is known whether they may, is one refusal: also for
	// one that is not there.
	for name, ask := range map[string]func(secret string) answer{
		"a patch that is none": func(s string) answer { return p.do("PATCH", path+s, `{"kind":5}`, mergePatch...) },
		"a patch that would do": func(s string) answer {
			return p.do("PATCH", path+s, `{"metadata":{"labels":{"x":"y"}}}`, mergePatch...)
		},
		"a test that is right": func(s string) answer {
			return p.do("PATCH", path+s, `[{"op":"test","path":"/data/password","value":"aHVudGVyMg=="}]`, jsonPatch...)
		},
		"a test that is wrong": func(s string) answer {
			return p.do("PATCH", path+s, `[{"op":"test","path":"/data/password","value":"eA=="}]`, jsonPatch...)
		},
		"a copy to where it is named": func(s string) answer {
			return p.do("PATCH", path+s, `[{"op":"copy","from":"/data","path":"/metadata"},{"op":"add","path":"/metadata/name","value":"s"}]`, jsonPatch...)
		},
		"a delete":            func(s string) answer { return p.do("DELETE", path+s, "", who...) },
		"a delete of another": func(s string) answer { return p.do("DELETE", path+s, `{"preconditions":{"uid":"x"}}`, who...) },
		"a dry run":           func(s string) answer { return p.do("PATCH", path+s+"?dryRun=All", `{"data":{"x":"!"}}`, mergePatch...) },
	} {
		for _, secret := range []string{"s", "none"} {
			a := ask(secret)
			a.refuses(t, 403, "it depends on the object")
			if stage, warning := a.header.Get("X-Stele-Stage"), a.header.Get("Warning"); stage != "conditions" || warning != "" || strings.Contains(string(a.body), "password") {
				t.Errorf("%s of %s: stage %q, warning %q: %s", name, secret, stage, warning, a)
			}
		}
	}
	p.must(t, 200, "PATCH", path+"mine", `{"metadata":{"labels":{"x":"y"}}}`, mergePatch...)
}

// All that is wrong is said up to a point: what a client sends must not take for ever to
// answer.
func TestManyErrorsAreSummedUp(t *testing.T) {
	p := newRuledPlane(t)
	ports := strings.TrimSuffix(strings.Repeat(`{"name":"x","port":-1},`, 20_000), ",")
	p.do("POST", widgetsPath, `{"metadata":{"name":"a"},"spec":{"size":1,"ports":[`+ports+`]}}`).refuses(t, 422, "spec.ports[99].port", "; and 19900 more errors")
	ports = strings.ReplaceAll(ports, "-1", "13")
	a := p.do("POST", widgetsPath, `{"metadata":{"name":"a"},"spec":{"size":1,"ports":[`+ports+`]}}`)
	a.refuses(t, 422, "spec.ports[99]: Forbidden: port x brings bad luck")
	if strings.Contains(string(a.body), "spec.ports[100]") {
		t.Error("the rest is looked at, too")
	}
}

// A write that a rule admitted for what its namespace is, is not committed in another one.
func TestRulesAboutNamespacesHoldAtTheCommit(t *testing.T) {
	p := newRuledPlane(t)
	tip := p.committer.Tip()
	now := tip.Objects.Get(commit.Namespaces, "", "default").Revision
	checks := commit.Checks{PolicyRevision: tip.PolicyRevision(), Namespace: "default", NamespaceRevision: now}
	if stale := checks.Evaluate(tip.Objects, tip.Policies); stale != nil {
		t.Error(stale)
	}
	p.must(t, 200, "PATCH", "/api/v1/namespaces/default", `{"metadata":{"labels":{"closed":"true"}}}`, "Content-Type", "application/merge-patch+json")
	tip = p.committer.Tip()
	if stale := checks.Evaluate(tip.Objects, tip.Policies); stale == nil {
		t.Error("the namespace has been changed, and nobody minds")
	}
}

// A deny with an exception refuses whom the exception is not about, administrators too.
func TestDeniesWithExceptions(t *testing.T) {
	p := newRuledPlane(t)
	patch := []string{"Content-Type", "application/merge-patch+json"}
	p.must(t, 201, "POST", widgetsPath, `{"metadata":{"name":"a","labels":{"frozen":""}},"spec":{"size":1}}`)
	p.must(t, 201, "POST", widgetsPath, widget("b", 1))
	p.must(t, 200, "PATCH", widgetsPath+"/b", `{"spec":{"size":2}}`, patch...)
	p.do("PATCH", widgetsPath+"/a", `{"spec":{"size":2}}`, patch...).refuses(t, 403, "frozen widgets stay as they are (bundle.cue:", `"message":"t/denies/frozen"`)
	p.do("PATCH", widgetsPath+"/a", `{"spec":{"size":2}}`, append(patch, "Authorization", "Bearer editor-token")...).refuses(t, 403, "frozen widgets stay as they are")
	p.must(t, 200, "PATCH", widgetsPath+"/a", `{"spec":{"size":2}}`, append(patch, "Impersonate-User", "break-glass", "Impersonate-Group", "editors")...)
}

// One parameter is another from one revision on, for every request.
func TestAParameterIsChanged(t *testing.T) {
	p := newRuledPlane(t)
	p.do("POST", widgetsPath, widget("a", 11)).refuses(t, 422, "size 11 is over 10")
	p.must(t, 201, "POST", policiesPath, policyBody(t, strings.Replace(ruled, "maxSize: int | *10", "maxSize: int | *20", 1), nil))
	p.must(t, 201, "POST", widgetsPath, widget("a", 11))
	p.do("POST", widgetsPath, widget("b", 21)).refuses(t, 422, "size 21 is over 20")
}
