package core_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"stele.dev/stele/core/commit"
	"stele.dev/stele/core/run/plane/planetest"
)

// A write that breaks a rule of admission is refused with the rule's message, its id and
// its line, and all that is wrong is said at once.
func TestAdmissionRulesRefuse(t *testing.T) {
	p := planetest.NewRuledPlane(t)
	a := p.Do("POST", planetest.WidgetsPath, planetest.Widget("a", 11))
	a.Refuses(t, 422, `"reason":"Invalid"`, `widgets.example.com \"a\" is forbidden: rule t/validate/size-limit/max (bundle.cue:`, `denied the request: size 11 is over 10"`,
		`"causes":[{"reason":"t/validate/size-limit/max","message":"size 11 is over 10 (rule t/validate/size-limit/max)","field":"bundle.cue:`)
	a = p.Do("POST", planetest.WidgetsPath, `{"metadata":{"name":"a"},"spec":{"size":11,"color":"green"}}`)
	a.Refuses(t, 403, "no green", "; rule t/validate/size-limit/max", "size 11 is over 10")
	p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("a", 10))
	patch := []string{"Content-Type", "application/merge-patch+json"}
	p.Do("PATCH", planetest.WidgetsPath+"/a", `{"spec":{"size":12}}`, patch...).Refuses(t, 422, "size 12 is over 10")
	p.Do("PATCH", planetest.WidgetsPath+"/a?dryRun=All", `{"spec":{"size":12}}`, patch...).Refuses(t, 422, "size 12 is over 10")
	// The match's condition is not met.
	p.Must(t, 200, "PATCH", planetest.WidgetsPath+"/a", `{"metadata":{"labels":{"big":""}},"spec":{"size":12}}`, patch...)
	// Another kind, whose rule cannot be evaluated.
	p.Do("POST", "/apis/example.com/v1/plains", `{"metadata":{"name":"p"},"spec":{}}`).Refuses(t, 422, "expression 'object.spec.a > 1' resulted in error: no such key: a")
}

func TestAdmissionRulesSelect(t *testing.T) {
	p := planetest.NewRuledPlane(t)
	p.Must(t, 201, "POST", "/api/v1/namespaces", `{"metadata":{"name":"shut","labels":{"closed":"true"}}}`)
	p.Do("POST", "/apis/example.com/v1/namespaces/shut/widgets", planetest.Widget("a", 1)).Refuses(t, 422, "namespace shut is closed")
	p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("a", 1))
	p.Must(t, 201, "POST", planetest.WidgetsPath, `{"metadata":{"name":"kept","labels":{"keep":"true"}},"spec":{"size":1}}`)
	p.Do("DELETE", planetest.WidgetsPath+"/kept", "", "Authorization", "Bearer editor-token").Refuses(t, 422, "only those who may delete secrets")
	p.Must(t, 200, "DELETE", planetest.WidgetsPath+"/a", "", "Authorization", "Bearer editor-token")
	p.Must(t, 200, "DELETE", planetest.WidgetsPath+"/kept", "")
}

// What only warns or audits is in the answer and in the event.
func TestAdmissionRulesWarnAndAudit(t *testing.T) {
	p := planetest.NewRuledPlane(t)
	a := p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("a", 1))
	if w := a.Header.Get("Warning"); !strings.Contains(w, "validation failed for rule t/validate/advice/owner (bundle.cue:") || !strings.Contains(w, "say who owns it") {
		t.Errorf("Warning %q", w)
	}
	change := p.Must(t, 200, "GET", planetest.ChangesPath+"?limit=1", "").Field("items").([]any)[0]
	if text := fmt.Sprint(change); !strings.Contains(text, "t/validate/advice/owner") || !strings.Contains(text, "say who owns it") {
		t.Errorf("the event has %s", text)
	}
	a = p.Must(t, 201, "POST", planetest.WidgetsPath, `{"metadata":{"name":"b"},"spec":{"size":1,"owner":"a@example.com"}}`)
	if w := a.Header.Get("Warning"); w != "" {
		t.Errorf("Warning %q", w)
	}
	a = p.Must(t, 200, "PATCH", planetest.WidgetsPath+"/a/status", `{"status":{"ready":true}}`, "Content-Type", "application/merge-patch+json")
	if w := a.Header.Get("Warning"); !strings.Contains(w, "say who owns it") {
		t.Errorf("Warning %q", w)
	}
}

// Rules in CEL of a schema name the field, and compare with what was there.
func TestRulesOfASchema(t *testing.T) {
	p := planetest.NewRuledPlane(t)
	patch := []string{"Content-Type", "application/merge-patch+json"}
	p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("a", 5))
	p.Do("PATCH", planetest.WidgetsPath+"/a", `{"spec":{"size":4}}`, patch...).Refuses(t, 422,
		`Widget.example.com \"a\" is invalid: spec.size: Invalid value: 4: a widget can only grow (bundle.cue:`, `"field":"spec.size"`)
	p.Must(t, 200, "PATCH", planetest.WidgetsPath+"/a", `{"spec":{"size":6}}`, patch...)
	p.Do("PATCH", planetest.WidgetsPath+"/a", `{"spec":{"ports":[{"name":"x","port":12},{"name":"y","port":13}],"limits":{"a":1,"b":101}}}`, patch...).Refuses(t, 422,
		"spec.ports[1]: Forbidden: port y brings bad luck (bundle.cue:", "spec.limits[b]: Invalid value: 101: failed rule: self <= 100")
	p.Do("POST", planetest.WidgetsPath, planetest.Widget("nameless", 5)).Refuses(t, 422, "failed rule: self.metadata.name != 'nameless'")
	p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("nameless", 6))
	// Where the object is not sound they are not evaluated.
	p.Do("POST", planetest.WidgetsPath, `{"metadata":{"name":"c"},"spec":{}}`).Refuses(t, 422, "spec.size: Required value", "some validation rules were not checked because the object was invalid")
}

// A grant on a condition holds where the condition does: for requests at once, for objects
// once they are known.
func TestGrantsOnConditions(t *testing.T) {
	p := planetest.NewRuledPlane(t)
	patch := append(planetest.Makers(), "Content-Type", "application/merge-patch+json")
	p.Must(t, 200, "GET", planetest.WidgetsPath, "", planetest.Makers()...)
	p.Do("GET", "/apis/example.com/v1/namespaces/kube-system/widgets", "", planetest.Makers()...).Refuses(t, 403, `User \"mia\" cannot list resource \"widgets\"`)
	p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("a", 5), planetest.Makers()...)
	p.Do("POST", planetest.WidgetsPath, planetest.Widget("b", 6), planetest.Makers()...).Refuses(t, 403,
		`User \"mia\" cannot create resource \"widgets\"`, `: \"t/bindings/small\" (bundle.cue:`, `would allow it, but its condition does not hold: (object == null || object.spec.size <= 5)`)
	p.Do("PATCH", planetest.WidgetsPath+"/a", `{"spec":{"size":6}}`, patch...).Refuses(t, 403, "its condition does not hold")
	p.Do("PATCH", planetest.WidgetsPath+"/a?dryRun=All", `{"spec":{"size":6}}`, patch...).Refuses(t, 403, "its condition does not hold")
	p.Must(t, 200, "PATCH", planetest.WidgetsPath+"/a", `{"spec":{"size":6}}`, patch[4:]...)
	p.Do("PATCH", planetest.WidgetsPath+"/a", `{"metadata":{"labels":{"x":"y"}}}`, patch...).Refuses(t, 403, "its condition does not hold")
	p.Do("DELETE", planetest.WidgetsPath+"/a", "", planetest.Makers()...).Refuses(t, 403, "its condition does not hold")
	p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("c", 5), planetest.Makers()...)
	p.Must(t, 200, "DELETE", planetest.WidgetsPath+"/c", "", planetest.Makers()...)

	change := p.Must(t, 200, "GET", planetest.ChangesPath+"?limit=1", "").Field("items").([]any)[0].(map[string]any)
	if d := change["decision"].(map[string]any); d["rule"] != "t/bindings/small" || !strings.HasPrefix(fmt.Sprint(d["source"]), "bundle.cue:") {
		t.Errorf("decision %v", d)
	}
	a := p.Must(t, 201, "POST", planetest.Authorization+"selfsubjectaccessreviews", `{"spec":{"resourceAttributes":{"namespace":"default","verb":"create","group":"example.com","resource":"widgets"}}}`, planetest.Makers()...)
	if a.Field("status", "allowed") != false || !strings.Contains(fmt.Sprint(a.Field("status", "reason")), "it depends on the object") {
		t.Errorf("%s", a)
	}
	a = p.Must(t, 201, "POST", planetest.Authorization+"selfsubjectrulesreviews", `{"spec":{"namespace":"default"}}`, planetest.Makers()...)
	if a.Field("status", "incomplete") != true || !strings.Contains(fmt.Sprint(a.Field("status", "evaluationError")), "t/bindings/small") || strings.Contains(fmt.Sprint(a.Field("status", "resourceRules")), "widgets") {
		t.Errorf("%s", a)
	}
}

// A grant on a condition is less than a binding says, and is not shown as one.
func TestGrantsOnConditionsAreNotShownAsBindings(t *testing.T) {
	p := planetest.NewRuledPlane(t)
	const bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/"
	p.Must(t, 200, "GET", bindings+"t:readers", "")
	p.Must(t, 404, "GET", bindings+"t:night", "")
	p.Must(t, 404, "GET", "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings/t:small", "")
}

// Who may write some objects, which depends on the object, does not learn from errors what
// is in those that they may neither write nor read.
func TestConditionsOnTheObjectKeepIt(t *testing.T) {
	p := planetest.NewRuledPlane(t)
	p.Must(t, 201, "POST", "/api/v1/namespaces/default/secrets", `{"metadata":{"name":"s","labels":{"owner":"sam"}},"stringData":{"password":"hunter2"}}`)
	p.Must(t, 201, "POST", "/api/v1/namespaces/default/secrets", `{"metadata":{"name":"mine","labels":{"owner":"mia"}},"stringData":{"password":"x"}}`)
	const path = "/api/v1/namespaces/default/secrets/"
	who := []string{"Impersonate-User", "mia", "Impersonate-Group", "owners"}
	jsonPatch, mergePatch := append(who[:4:4], "Content-Type", "application/json-patch+json"), append(who[:4:4], "Content-Type", "application/merge-patch+json")
	// Whatever becomes of it, before it is known whether they may, is one refusal: also for
	// one that is not there.
	for name, ask := range map[string]func(secret string) planetest.Answer{
		"a patch that is none": func(s string) planetest.Answer { return p.Do("PATCH", path+s, `{"kind":5}`, mergePatch...) },
		"a patch that would do": func(s string) planetest.Answer {
			return p.Do("PATCH", path+s, `{"metadata":{"labels":{"x":"y"}}}`, mergePatch...)
		},
		"a test that is right": func(s string) planetest.Answer {
			return p.Do("PATCH", path+s, `[{"op":"test","path":"/data/password","value":"aHVudGVyMg=="}]`, jsonPatch...)
		},
		"a test that is wrong": func(s string) planetest.Answer {
			return p.Do("PATCH", path+s, `[{"op":"test","path":"/data/password","value":"eA=="}]`, jsonPatch...)
		},
		"a copy to where it is named": func(s string) planetest.Answer {
			return p.Do("PATCH", path+s, `[{"op":"copy","from":"/data","path":"/metadata"},{"op":"add","path":"/metadata/name","value":"s"}]`, jsonPatch...)
		},
		"a delete": func(s string) planetest.Answer { return p.Do("DELETE", path+s, "", who...) },
		"a delete of another": func(s string) planetest.Answer {
			return p.Do("DELETE", path+s, `{"preconditions":{"uid":"x"}}`, who...)
		},
		"a dry run": func(s string) planetest.Answer {
			return p.Do("PATCH", path+s+"?dryRun=All", `{"data":{"x":"!"}}`, mergePatch...)
		},
	} {
		for _, secret := range []string{"s", "none"} {
			a := ask(secret)
			a.Refuses(t, 403, "it depends on the object")
			if stage, warning := a.Header.Get("X-Stele-Stage"), a.Header.Get("Warning"); stage != "conditions" || warning != "" || strings.Contains(string(a.Body), "password") {
				t.Errorf("%s of %s: stage %q, warning %q: %s", name, secret, stage, warning, a)
			}
		}
	}
	p.Must(t, 200, "PATCH", path+"mine", `{"metadata":{"labels":{"x":"y"}}}`, mergePatch...)
}

// A condition holds for the version that a write replaces, and not for one that was there when the request came.
func TestAConditionHoldsForTheVersionThatIsReplaced(t *testing.T) {
	p := planetest.NewRuledPlane(t)
	const path, enough = "/api/v1/namespaces/default/secrets/s", 20
	merge := []string{"Content-Type", "application/merge-patch+json"}
	p.Must(t, 201, "POST", "/api/v1/namespaces/default/secrets", `{"metadata":{"name":"s","labels":{"owner":"mia"}}}`)
	before := p.Committer.Tip().Revision()
	var flipping sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	flipping.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			p.Do("PATCH", path, `{"metadata":{"labels":{"owner":"`+[]string{"sam", "mia"}[i%2]+`"}}}`, merge...)
		}
	})
	for i, answers := 0, map[int]int{}; answers[200] < enough || answers[403] < enough; i++ {
		a := p.Do("PATCH", path, fmt.Sprintf(`{"data":{"n":"%04d"}}`, i%10000), append(merge, "Impersonate-User", "mia", "Impersonate-Group", "owners")...)
		if answers[a.Code]++; a.Code != 200 && a.Code != 403 {
			t.Fatalf("%s", a)
		}
	}
	stop()
	flipping.Wait()
	for _, e := range p.Events(t, before) {
		if e.Meta.GetActor().GetUser() != "mia" {
			continue
		}
		replaced := p.Must(t, 200, "GET", planetest.BelowAt(e.Revision-1, path), "")
		if owner := replaced.Field("metadata", "labels", "owner"); owner != "mia" {
			t.Errorf("revision %d by mia replaces a version that is %v's", e.Revision, owner)
		}
	}
}

// All that is wrong is said up to a point: what a client sends must not take for ever to
// answer.
func TestManyErrorsAreSummedUp(t *testing.T) {
	p := planetest.NewRuledPlane(t)
	ports := strings.TrimSuffix(strings.Repeat(`{"name":"x","port":-1},`, 20_000), ",")
	p.Do("POST", planetest.WidgetsPath, `{"metadata":{"name":"a"},"spec":{"size":1,"ports":[`+ports+`]}}`).Refuses(t, 422, "spec.ports[99].port", "; and 19900 more errors")
	ports = strings.ReplaceAll(ports, "-1", "13")
	a := p.Do("POST", planetest.WidgetsPath, `{"metadata":{"name":"a"},"spec":{"size":1,"ports":[`+ports+`]}}`)
	a.Refuses(t, 422, "spec.ports[99]: Forbidden: port x brings bad luck")
	if strings.Contains(string(a.Body), "spec.ports[100]") {
		t.Error("the rest is looked at, too")
	}
}

// A write that a rule admitted for what its namespace is, is not committed in another one.
func TestRulesAboutNamespacesHoldAtTheCommit(t *testing.T) {
	p := planetest.NewRuledPlane(t)
	tip := p.Committer.Tip()
	now := tip.Objects.Get(commit.Namespaces, "", "default").Revision
	checks := commit.Checks{PolicyRevision: tip.PolicyRevision(), Namespace: "default", NamespaceRevision: now}
	if stale := checks.Evaluate(tip.Objects, tip.Policies); stale != nil {
		t.Error(stale)
	}
	p.Must(t, 200, "PATCH", "/api/v1/namespaces/default", `{"metadata":{"labels":{"closed":"true"}}}`, "Content-Type", "application/merge-patch+json")
	tip = p.Committer.Tip()
	if stale := checks.Evaluate(tip.Objects, tip.Policies); stale == nil {
		t.Error("the namespace has been changed, and nobody minds")
	}
}

// A deny with an exception refuses whom the exception is not about, administrators too.
func TestDeniesWithExceptions(t *testing.T) {
	p := planetest.NewRuledPlane(t)
	patch := []string{"Content-Type", "application/merge-patch+json"}
	p.Must(t, 201, "POST", planetest.WidgetsPath, `{"metadata":{"name":"a","labels":{"frozen":""}},"spec":{"size":1}}`)
	p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("b", 1))
	p.Must(t, 200, "PATCH", planetest.WidgetsPath+"/b", `{"spec":{"size":2}}`, patch...)
	p.Do("PATCH", planetest.WidgetsPath+"/a", `{"spec":{"size":2}}`, patch...).Refuses(t, 403, "frozen widgets stay as they are (bundle.cue:", `"message":"t/denies/frozen"`)
	p.Do("PATCH", planetest.WidgetsPath+"/a", `{"spec":{"size":2}}`, append(patch, "Authorization", "Bearer editor-token")...).Refuses(t, 403, "frozen widgets stay as they are")
	p.Must(t, 200, "PATCH", planetest.WidgetsPath+"/a", `{"spec":{"size":2}}`, append(patch, "Impersonate-User", "break-glass", "Impersonate-Group", "editors")...)
}

// One parameter is another from one revision on, for every request.
func TestAParameterIsChanged(t *testing.T) {
	p := planetest.NewRuledPlane(t)
	p.Do("POST", planetest.WidgetsPath, planetest.Widget("a", 11)).Refuses(t, 422, "size 11 is over 10")
	p.Must(t, 201, "POST", planetest.PoliciesPath, planetest.PolicyBody(t, strings.Replace(planetest.Ruled, "maxSize: int | *10", "maxSize: int | *20", 1), nil))
	p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("a", 11))
	p.Do("POST", planetest.WidgetsPath, planetest.Widget("b", 21)).Refuses(t, 422, "size 21 is over 20")
}
