package core_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"stele.dev/stele/core/resources/explain"
)

const explanationsPath = "/apis/policy.stele.dev/v1/explanations"

// explain asks for an explanation.
func (r *replica) explain(t *testing.T, spec explain.Spec, header ...string) *explain.Explanation {
	t.Helper()
	e := &explain.Explanation{Spec: spec}
	e.APIVersion, e.Kind = "policy.stele.dev/v1", "Explanation"
	text, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	a := r.must(t, 201, "POST", explanationsPath, string(text), header...)
	if err := json.Unmarshal(a.body, e); err != nil {
		t.Fatal(err)
	}
	return e
}

// stage returns what a stage said.
func stage(t *testing.T, e *explain.Explanation, name string) explain.Stage {
	t.Helper()
	for _, s := range e.Status.Stages {
		if s.Name == name {
			return s
		}
	}
	t.Fatalf("the stage %s said nothing: %+v", name, e.Status)
	return explain.Stage{}
}

func widgetSpec(verb, user string, groups ...string) explain.Spec {
	return explain.Spec{Verb: verb, Group: "example.com", Version: "v1", Resource: "widgets", Namespace: "default", User: user, Groups: groups}
}

func TestExplanations(t *testing.T) {
	p := newRuledPlane(t)
	p.must(t, 201, "POST", widgetsPath, widget("precious", 1))
	revision := p.committer.Tip().Revision()

	spec := widgetSpec("delete", "eddie", "editors")
	spec.Name = "precious"
	e := p.explain(t, spec)
	s := stage(t, e, "authorization")
	if e.Status.Allowed || e.Status.Code != 403 || s.Verdict != "refused" || s.Rule != "t/denies/keep-precious" || !strings.HasPrefix(s.Source, "bundle.cue:") || !strings.Contains(e.Status.Message, "precious things stay") {
		t.Errorf("a deny: %+v", e.Status)
	}
	considered := fmt.Sprint(s.Considered)
	for _, want := range []string{"{t/denies/keep-precious bundle.cue:", "denies ", "{t/bindings/editors bundle.cue:", "allows "} {
		if !strings.Contains(considered, want) {
			t.Errorf("considered %s, lacks %s", considered, want)
		}
	}

	spec = widgetSpec("create", "eddie", "editors")
	if e = p.explain(t, spec); !e.Status.Allowed || e.Status.Code != 0 || len(e.Status.Stages) != 5 {
		t.Errorf("without an object: %+v", e.Status)
	}
	spec.Object = json.RawMessage(`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"a"},"spec":{"size":11}}`)
	e = p.explain(t, spec)
	if s = stage(t, e, "validation"); e.Status.Code != 422 || s.Rule != "t/validate/size-limit/max" || !strings.Contains(fmt.Sprint(s.Considered), "t/validate/size-limit/color") || !strings.Contains(fmt.Sprint(s.Considered), "holds") {
		t.Errorf("a rule of admission: %+v", e.Status)
	}
	spec.Object = json.RawMessage(`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"a"},"spec":{"size":-1}}`)
	if e = p.explain(t, spec); e.Status.Code != 422 || stage(t, e, "schema").Verdict != "refused" {
		t.Errorf("the schema: %+v", e.Status)
	}
	spec.Object = json.RawMessage(`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"a"},"spec":{"size":1}}`)
	if e = p.explain(t, spec); e.Status.Code != 201 || stage(t, e, "commit").Verdict != "passed" {
		t.Errorf("allowed: %+v", e.Status)
	}

	spec = widgetSpec("create", "mia", "makers")
	if e = p.explain(t, spec); e.Status.Allowed || stage(t, e, "authorization").Verdict != "open" {
		t.Errorf("what depends on the object: %+v", e.Status)
	}
	spec = widgetSpec("list", "mia", "makers")
	spec.Namespace = "kube-system"
	if s = stage(t, p.explain(t, spec), "authorization"); !strings.Contains(fmt.Sprint(s.Considered), "{t/bindings/night bundle.cue:") || !strings.Contains(fmt.Sprint(s.Considered), "its condition does not hold ") {
		t.Errorf("a condition that does not hold: %+v", s)
	}
	if e = p.explain(t, explain.Spec{Verb: "get", Path: "/metrics", User: "x"}); e.Status.Code != 403 {
		t.Errorf("a path: %+v", e.Status)
	}
	if e = p.explain(t, explain.Spec{Verb: "impersonate", Version: "v1", Resource: "users", Name: "eddie", User: "helper"}); !e.Status.Allowed || stage(t, e, "authorization").Rule != "t/bindings/helpers" {
		t.Errorf("a verb that is none of HTTP's: %+v", e.Status)
	}
	if e = p.explain(t, widgetSpec("watch", "reader")); !e.Status.Allowed || e.Status.Code != 0 {
		t.Errorf("a watch: %+v", e.Status)
	}
	if p.committer.Tip().Revision() != revision {
		t.Error("an explanation changed something")
	}
}

// Who asks needs the permission to ask, and to be who they ask about.
func TestExplanationsAreAuthorized(t *testing.T) {
	p := newRuledPlane(t)
	p.do("POST", explanationsPath, `{"apiVersion":"policy.stele.dev/v1","kind":"Explanation","spec":{"verb":"get","path":"/version"}}`, "Authorization", "Bearer editor-token").refuses(t, 403, `cannot create resource \"explanations\"`)
	p.do("GET", explanationsPath+"/x", "", "Authorization", "Bearer editor-token").refuses(t, 403, `cannot get resource \"explanations\"`)
	for body, want := range map[string]string{
		`{"verb":"get"}`:                                                    "exactly one of resource or path must be specified",
		`{"verb":"get","resource":"widgets"}`:                               "spec.version: Required value",
		`{"verb":"get","version":"v1","resource":"../x"}`:                   "must be a segment of a path",
		`{"verb":"get","path":"x"}`:                                         "must begin with /",
		`{"verb":"get","version":"v1","resource":"watch","name":"secrets"}`: "its path is that of another one",
		`{"verb":"get","version":"v1","resource":"namespaces","name":"default","subresource":"secrets"}`: "its path is that of another one",
		`{"verb":"watch","path":"/x"}`:                       `spec.verb: Unsupported value: \"watch\"`,
		`{"verb":"GET","version":"v1","resource":"widgets"}`: "must be in lower case",
		`{"verb":"get","version":"v1","resource":"widgets"}`: "spec.name: Required value",
		`{"path":"/x"}`:                                    "spec.verb: Required value",
		`{"verb":"get","path":"/x","who":"x"}`:             `unknown field \"spec.who\"`,
		`{"verb":"get","path":"/x"},"metadata":{"name":1}`: "cannot be handled as a Explanation",
	} {
		a := p.do("POST", explanationsPath, `{"apiVersion":"policy.stele.dev/v1","kind":"Explanation","spec":`+body+`}`)
		if a.code < 400 || a.code >= 500 || !strings.Contains(string(a.body), want) {
			t.Errorf("%s: %s\nwant %s", body, a, want)
		}
	}
}

// What was refused, and what was written, can be explained by its audit id.
func TestExplanationsByAuditID(t *testing.T) {
	p := newRuledPlane(t)
	p.must(t, 201, "POST", widgetsPath, widget("a", 1), "Audit-ID", "written", "Impersonate-User", "eddie", "Impersonate-Group", "editors")
	p.must(t, 422, "POST", widgetsPath, widget("b", 11), "Audit-ID", "refused")
	for i := range 3 {
		p.must(t, 201, "POST", widgetsPath, widget(fmt.Sprintf("c%d", i), 1))
	}
	get := func(id string) *explain.Explanation {
		e := new(explain.Explanation)
		if err := json.Unmarshal(p.must(t, 200, "GET", explanationsPath+"/"+id, "").body, e); err != nil {
			t.Fatal(err)
		}
		return e
	}
	e := get("written")
	if s := stage(t, e, "authorization"); e.Status.Written == 0 || e.Spec.User != "eddie" || s.Rule != "t/bindings/editors" || !strings.HasPrefix(s.Source, "bundle.cue:") {
		t.Errorf("%+v", e)
	}
	if s := stage(t, e, "validation"); !strings.Contains(fmt.Sprint(s.Considered), "t/validate/advice/owner") {
		t.Errorf("%+v", s)
	}
	e = get("refused")
	if s := stage(t, e, "validation"); e.Status.Code != 422 || e.Spec.User != "admin" || s.Rule != "t/validate/size-limit/max" || s.Source == "" {
		t.Errorf("%+v", e)
	}
	p.do("GET", explanationsPath+"/unheard-of", "").refuses(t, 404, "no write in the log has the audit id")
}

// Whatever is asked, what explains it says what becomes of it.
func TestAnExplanationIsWhatHappens(t *testing.T) {
	p := newRuledPlane(t)
	rng := rand.New(rand.NewPCG(3, 7))
	pick := func(of ...string) string { return of[rng.IntN(len(of))] }
	codes := map[int]int{}
	for range 1500 {
		s := explain.Spec{
			Verb: pick("get", "list", "create", "create", "update", "patch", "delete"), Group: "example.com", Version: "v1", Resource: "widgets",
			Namespace: pick("default", "default", "kube-system"), Name: pick("a", "b", "precious"),
			User: pick("eddie", "mia", "reader", "helper", "x"), Groups: [][]string{nil, {"editors"}, {"makers"}, {"makers", "editors"}, {"system:masters"}}[rng.IntN(5)],
		}
		labels := pick(``, `,"labels":{"frozen":""}`, `,"labels":{"big":""}`, `,"labels":{"keep":"true"}`)
		object := fmt.Sprintf(`{"apiVersion":"example.com/v1","kind":"Widget","apiVersion":"example.com/v1","metadata":{"name":%q%s},"spec":{"size":%s,"color":%q}}`,
			s.Name, labels, pick("1", "4", "6", "11", "0"), pick("red", "blue", "green", "pink"))
		path := strings.Replace(widgetsPath, "default", s.Namespace, 1)
		method, body := "GET", ""
		switch s.Verb {
		case "list":
			s.Name = ""
		case "create":
			method, body, s.Name = "POST", object, ""
		case "update":
			method, body = "PUT", strings.Replace(object, `"metadata":{`, fmt.Sprintf(`"metadata":{"resourceVersion":%q,`, p.versionOf(s.Namespace, s.Name)), 1)
		case "patch":
			method, body = "PATCH", `{"spec":{"size":`+pick("2", "5", "7", "12")+`}}`
		case "delete":
			method = "DELETE"
		}
		if s.Name != "" {
			path += "/" + s.Name
		}
		s.Object = json.RawMessage(body)
		e := p.explain(t, s)
		header := []string{"Impersonate-User", s.User}
		if body != "" {
			header = append(header, "Content-Type", map[bool]string{true: "application/merge-patch+json", false: "application/json"}[method == "PATCH"])
		}
		q := request(method, path, body, header...)
		for _, g := range s.Groups {
			q.Header.Add("Impersonate-Group", g)
		}
		a := p.serve(q)
		if a.code != e.Status.Code || e.Status.Allowed != (a.code < 300) {
			t.Fatalf("%+v\nexplained as %+v\nbecame %s", s, e.Status, a)
		}
		if a.code >= 300 && a.field("message") != e.Status.Message {
			t.Fatalf("%+v\nexplained as %s\nbecame %s", s, e.Status.Message, a.field("message"))
		}
		codes[a.code]++
	}
	for _, code := range []int{200, 201, 403, 404, 409, 422} {
		if codes[code] < 10 {
			t.Errorf("%d became %d: the test asks too little", codes[code], code)
		}
	}
}

// versionOf is the resourceVersion of a widget, if there is one.
func (r *replica) versionOf(namespace, name string) string {
	a := r.do("GET", strings.Replace(widgetsPath, "default", namespace, 1)+"/"+name, "")
	if v, ok := a.field("metadata", "resourceVersion").(string); ok {
		return v
	}
	return "1"
}

// An explanation writes nothing, whatever it is asked about.
func TestExplanationsWriteNothing(t *testing.T) {
	p := newRuledPlane(t)
	p.must(t, 201, "POST", widgetsPath, widget("a", 1))
	revision := p.committer.Tip().Revision()
	for _, spec := range []string{
		`{"verb":"delete","path":"` + widgetsPath + `/a"}`,
		`{"verb":"post","path":"` + widgetsPath + `","object":` + widget("b", 1) + `}`,
		`{"verb":"post","path":"/apis/policy.stele.dev/v1/policies","object":{}}`,
	} {
		p.do("POST", explanationsPath, `{"apiVersion":"policy.stele.dev/v1","kind":"Explanation","spec":`+spec+`}`).refuses(t, 422, "is that of a resource: name it as one")
	}
	for _, verb := range []string{"delete", "patch"} {
		s := widgetSpec(verb, "eddie", "editors")
		s.Name = "a"
		s.Object = json.RawMessage(`{}`)
		if e := p.explain(t, s); !e.Status.Allowed {
			t.Errorf("%s: %+v", verb, e.Status)
		}
	}
	policies := explain.Spec{Verb: "create", Group: "policy.stele.dev", Version: "v1", Resource: "policies", Object: json.RawMessage(policyBody(t, narrower, nil))}
	if e := p.explain(t, policies); !e.Status.Allowed || e.Status.Code != 201 {
		t.Errorf("a policy: %+v", e.Status)
	}
	if got := p.committer.Tip().Revision(); got != revision {
		t.Errorf("the log went from %d to %d", revision, got)
	}
}

// What is remembered of a refusal is no larger than what people read of it.
func TestRefusalsAreRememberedBriefly(t *testing.T) {
	p := newRuledPlane(t)
	long := strings.Repeat("x", 1<<20)
	p.must(t, 403, "GET", widgetsPath+"/"+long, "", "Authorization", "Bearer nobody-token", "Audit-ID", "name")
	p.must(t, 400, "POST", authorization+"selfsubjectaccessreviews", `{"kind":"`+long+`"}`, "Authorization", "Bearer nobody-token", "Audit-ID", "body")
	for _, id := range []string{"name", "body"} {
		if a := p.must(t, 200, "GET", explanationsPath+"/"+id, ""); len(a.body) > 20<<10 {
			t.Errorf("%s: %d bytes", id, len(a.body))
		}
	}
}

// A refusal with the id of somebody's write does not hide that.
func TestAWriteIsToldOfRatherThanARefusal(t *testing.T) {
	p := newRuledPlane(t)
	p.must(t, 201, "POST", widgetsPath, widget("a", 1), "Audit-ID", "same")
	p.must(t, 403, "DELETE", widgetsPath+"/a", "", "Authorization", "Bearer nobody-token", "Audit-ID", "same")
	if a := p.must(t, 200, "GET", explanationsPath+"/same", ""); a.field("spec", "user") != "admin" || a.field("status", "allowed") != true {
		t.Errorf("%s", a)
	}
}
