package explain_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"stele.dev/stele/core/resources/explain"
	"stele.dev/stele/core/run/plane/planetest"
)

func TestExplanations(t *testing.T) {
	p := planetest.NewRuledPlane(t)
	p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("precious", 1))
	revision := p.Committer.Tip().Revision()

	spec := planetest.WidgetSpec("delete", "eddie", "editors")
	spec.Name = "precious"
	e := p.Explain(t, spec)
	s := planetest.Stage(t, e, "authorization")
	if e.Status.Allowed || e.Status.Code != 403 || s.Verdict != "refused" || s.Rule != "t/denies/keep-precious" || !strings.HasPrefix(s.Source, "bundle.cue:") || !strings.Contains(e.Status.Message, "precious things stay") {
		t.Errorf("a deny: %+v", e.Status)
	}
	considered := fmt.Sprint(s.Considered)
	for _, want := range []string{"{t/denies/keep-precious bundle.cue:", "denies ", "{t/bindings/editors bundle.cue:", "allows "} {
		if !strings.Contains(considered, want) {
			t.Errorf("considered %s, lacks %s", considered, want)
		}
	}

	spec = planetest.WidgetSpec("create", "eddie", "editors")
	if e = p.Explain(t, spec); !e.Status.Allowed || e.Status.Code != 0 || len(e.Status.Stages) != 5 {
		t.Errorf("without an object: %+v", e.Status)
	}
	spec.Object = json.RawMessage(`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"a"},"spec":{"size":11}}`)
	e = p.Explain(t, spec)
	if s = planetest.Stage(t, e, "validation"); e.Status.Code != 422 || s.Rule != "t/validate/size-limit/max" || !strings.Contains(fmt.Sprint(s.Considered), "t/validate/size-limit/color") || !strings.Contains(fmt.Sprint(s.Considered), "holds") {
		t.Errorf("a rule of admission: %+v", e.Status)
	}
	spec.Object = json.RawMessage(`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"a"},"spec":{"size":-1}}`)
	if e = p.Explain(t, spec); e.Status.Code != 422 || planetest.Stage(t, e, "schema").Verdict != "refused" {
		t.Errorf("the schema: %+v", e.Status)
	}
	spec.Object = json.RawMessage(`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"a"},"spec":{"size":1}}`)
	if e = p.Explain(t, spec); e.Status.Code != 201 || planetest.Stage(t, e, "commit").Verdict != "passed" {
		t.Errorf("allowed: %+v", e.Status)
	}

	spec = planetest.WidgetSpec("create", "mia", "makers")
	if e = p.Explain(t, spec); e.Status.Allowed || planetest.Stage(t, e, "authorization").Verdict != "open" {
		t.Errorf("what depends on the object: %+v", e.Status)
	}
	spec = planetest.WidgetSpec("list", "mia", "makers")
	spec.Namespace = "kube-system"
	if s = planetest.Stage(t, p.Explain(t, spec), "authorization"); !strings.Contains(fmt.Sprint(s.Considered), "{t/bindings/night bundle.cue:") || !strings.Contains(fmt.Sprint(s.Considered), "its condition does not hold ") {
		t.Errorf("a condition that does not hold: %+v", s)
	}
	if e = p.Explain(t, explain.Spec{Verb: "get", Path: "/metrics", User: "x"}); e.Status.Code != 403 {
		t.Errorf("a path: %+v", e.Status)
	}
	if e = p.Explain(t, explain.Spec{Verb: "impersonate", Version: "v1", Resource: "users", Name: "eddie", User: "helper"}); !e.Status.Allowed || planetest.Stage(t, e, "authorization").Rule != "t/bindings/helpers" {
		t.Errorf("a verb that is none of HTTP's: %+v", e.Status)
	}
	if e = p.Explain(t, planetest.WidgetSpec("watch", "reader")); !e.Status.Allowed || e.Status.Code != 0 {
		t.Errorf("a watch: %+v", e.Status)
	}
	if p.Committer.Tip().Revision() != revision {
		t.Error("an explanation changed something")
	}
}

// Who asks needs the permission to ask, and to be who they ask about.
func TestExplanationsAreAuthorized(t *testing.T) {
	p := planetest.NewRuledPlane(t)
	p.Do("POST", planetest.ExplanationsPath, `{"apiVersion":"policy.stele.dev/v1","kind":"Explanation","spec":{"verb":"get","path":"/version"}}`, "Authorization", "Bearer editor-token").Refuses(t, 403, `cannot create resource \"explanations\"`)
	p.Do("GET", planetest.ExplanationsPath+"/x", "", "Authorization", "Bearer editor-token").Refuses(t, 403, `cannot get resource \"explanations\"`)
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
		a := p.Do("POST", planetest.ExplanationsPath, `{"apiVersion":"policy.stele.dev/v1","kind":"Explanation","spec":`+body+`}`)
		if a.Code < 400 || a.Code >= 500 || !strings.Contains(string(a.Body), want) {
			t.Errorf("%s: %s\nwant %s", body, a, want)
		}
	}
}

// What was refused, and what was written, can be explained by its audit id.
func TestExplanationsByAuditID(t *testing.T) {
	p := planetest.NewRuledPlane(t)
	p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("a", 1), "Audit-ID", "written", "Impersonate-User", "eddie", "Impersonate-Group", "editors")
	p.Must(t, 422, "POST", planetest.WidgetsPath, planetest.Widget("b", 11), "Audit-ID", "refused")
	for i := range 3 {
		p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget(fmt.Sprintf("c%d", i), 1))
	}
	get := func(id string) *explain.Explanation {
		e := new(explain.Explanation)
		if err := json.Unmarshal(p.Must(t, 200, "GET", planetest.ExplanationsPath+"/"+id, "").Body, e); err != nil {
			t.Fatal(err)
		}
		return e
	}
	e := get("written")
	if s := planetest.Stage(t, e, "authorization"); e.Status.Written == 0 || e.Spec.User != "eddie" || s.Rule != "t/bindings/editors" || !strings.HasPrefix(s.Source, "bundle.cue:") {
		t.Errorf("%+v", e)
	}
	if s := planetest.Stage(t, e, "validation"); !strings.Contains(fmt.Sprint(s.Considered), "t/validate/advice/owner") {
		t.Errorf("%+v", s)
	}
	e = get("refused")
	if s := planetest.Stage(t, e, "validation"); e.Status.Code != 422 || e.Spec.User != "admin" || s.Rule != "t/validate/size-limit/max" || s.Source == "" {
		t.Errorf("%+v", e)
	}
	p.Do("GET", planetest.ExplanationsPath+"/unheard-of", "").Refuses(t, 404, "no write in the log has the audit id")
}

// Whatever is asked, what explains it says what becomes of it.
func TestAnExplanationIsWhatHappens(t *testing.T) {
	p := planetest.NewRuledPlane(t)
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
		path := strings.Replace(planetest.WidgetsPath, "default", s.Namespace, 1)
		method, body := "GET", ""
		switch s.Verb {
		case "list":
			s.Name = ""
		case "create":
			method, body, s.Name = "POST", object, ""
		case "update":
			method, body = "PUT", strings.Replace(object, `"metadata":{`, fmt.Sprintf(`"metadata":{"resourceVersion":%q,`, versionOf(p, s.Namespace, s.Name)), 1)
		case "patch":
			method, body = "PATCH", `{"spec":{"size":`+pick("2", "5", "7", "12")+`}}`
		case "delete":
			method = "DELETE"
		}
		if s.Name != "" {
			path += "/" + s.Name
		}
		s.Object = json.RawMessage(body)
		e := p.Explain(t, s)
		header := []string{"Impersonate-User", s.User}
		if body != "" {
			header = append(header, "Content-Type", map[bool]string{true: "application/merge-patch+json", false: "application/json"}[method == "PATCH"])
		}
		q := planetest.Request(method, path, body, header...)
		for _, g := range s.Groups {
			q.Header.Add("Impersonate-Group", g)
		}
		a := p.Serve(q)
		if a.Code != e.Status.Code || e.Status.Allowed != (a.Code < 300) {
			t.Fatalf("%+v\nexplained as %+v\nbecame %s", s, e.Status, a)
		}
		if a.Code >= 300 && a.Field("message") != e.Status.Message {
			t.Fatalf("%+v\nexplained as %s\nbecame %s", s, e.Status.Message, a.Field("message"))
		}
		codes[a.Code]++
	}
	for _, code := range []int{200, 201, 403, 404, 409, 422} {
		if codes[code] < 10 {
			t.Errorf("%d became %d: the test asks too little", codes[code], code)
		}
	}
}

// versionOf is the resourceVersion of a widget, if there is one.
func versionOf(r *planetest.Replica, namespace, name string) string {
	a := r.Do("GET", strings.Replace(planetest.WidgetsPath, "default", namespace, 1)+"/"+name, "")
	if v, ok := a.Field("metadata", "resourceVersion").(string); ok {
		return v
	}
	return "1"
}

// An explanation writes nothing, whatever it is asked about.
func TestExplanationsWriteNothing(t *testing.T) {
	p := planetest.NewRuledPlane(t)
	p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("a", 1))
	revision := p.Committer.Tip().Revision()
	for _, spec := range []string{
		`{"verb":"delete","path":"` + planetest.WidgetsPath + `/a"}`,
		`{"verb":"post","path":"` + planetest.WidgetsPath + `","object":` + planetest.Widget("b", 1) + `}`,
		`{"verb":"post","path":"/apis/policy.stele.dev/v1/policies","object":{}}`,
	} {
		p.Do("POST", planetest.ExplanationsPath, `{"apiVersion":"policy.stele.dev/v1","kind":"Explanation","spec":`+spec+`}`).Refuses(t, 422, "is that of a resource: name it as one")
	}
	for _, verb := range []string{"delete", "patch"} {
		s := planetest.WidgetSpec(verb, "eddie", "editors")
		s.Name = "a"
		s.Object = json.RawMessage(`{}`)
		if e := p.Explain(t, s); !e.Status.Allowed {
			t.Errorf("%s: %+v", verb, e.Status)
		}
	}
	policies := explain.Spec{Verb: "create", Group: "policy.stele.dev", Version: "v1", Resource: "policies", Object: json.RawMessage(planetest.PolicyBody(t, planetest.Narrower, nil))}
	if e := p.Explain(t, policies); !e.Status.Allowed || e.Status.Code != 201 {
		t.Errorf("a policy: %+v", e.Status)
	}
	if got := p.Committer.Tip().Revision(); got != revision {
		t.Errorf("the log went from %d to %d", revision, got)
	}
}

// What is remembered of a refusal is no larger than what people read of it.
func TestRefusalsAreRememberedBriefly(t *testing.T) {
	p := planetest.NewRuledPlane(t)
	long := strings.Repeat("x", 1<<20)
	p.Must(t, 403, "GET", planetest.WidgetsPath+"/"+long, "", "Authorization", "Bearer nobody-token", "Audit-ID", "name")
	p.Must(t, 400, "POST", planetest.Authorization+"selfsubjectaccessreviews", `{"kind":"`+long+`"}`, "Authorization", "Bearer nobody-token", "Audit-ID", "body")
	for _, id := range []string{"name", "body"} {
		if a := p.Must(t, 200, "GET", planetest.ExplanationsPath+"/"+id, ""); len(a.Body) > 20<<10 {
			t.Errorf("%s: %d bytes", id, len(a.Body))
		}
	}
}

// A refusal with the id of somebody's write does not hide that.
func TestAWriteIsToldOfRatherThanARefusal(t *testing.T) {
	p := planetest.NewRuledPlane(t)
	p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("a", 1), "Audit-ID", "same")
	p.Must(t, 403, "DELETE", planetest.WidgetsPath+"/a", "", "Authorization", "Bearer nobody-token", "Audit-ID", "same")
	if a := p.Must(t, 200, "GET", planetest.ExplanationsPath+"/same", ""); a.Field("spec", "user") != "admin" || a.Field("status", "allowed") != true {
		t.Errorf("%s", a)
	}
}
