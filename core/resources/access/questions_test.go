package access_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"stele.dev/stele/core/run/plane/planetest"
	"stele.dev/stele/eventlog/memlog"
)

const (
	whoCanPath     = "/apis/policy.stele.dev/v1/resourceaccessreviews"
	differencePath = "/apis/policy.stele.dev/v1/accessdifferences"
)

func questionOf(kind, spec string) string {
	return fmt.Sprintf(`{"apiVersion":"policy.stele.dev/v1","kind":%q,"spec":%s}`, kind, spec)
}

// can are the holders of an answer, each as a line: who, by which binding, in which namespaces, and
// what else there is to say.
func can(a planetest.Answer) []string {
	var lines []string
	list, _ := a.Field("status", "holders").([]any)
	for _, x := range list {
		h := x.(map[string]any)
		s := h["subject"].(map[string]any)
		line := fmt.Sprintf("%v%v by %v in %v", s["user"], s["group"], h["binding"].(map[string]any)["id"], h["namespaces"])
		line = strings.ReplaceAll(line, "<nil>", "")
		for _, name := range []string{"names", "when", "denied"} {
			if h[name] != nil {
				line += fmt.Sprintf(" %s %v", name, h[name])
			}
		}
		if since, ok := h["since"].(map[string]any); ok {
			line += fmt.Sprintf(" since %v", since["revision"])
		}
		lines = append(lines, line)
	}
	return lines
}

// inHistory is a plane with three policies one after the other, and the revisions from which on they were
// in force.
func inHistory(t *testing.T) (*planetest.Replica, []uint64) {
	t.Helper()
	var store memlog.Store
	p := planetest.StartReplica(t, store.Open(nil), 0)
	var since []uint64
	for i, text := range []string{
		planetest.Bundle,
		strings.Replace(strings.Replace(planetest.Bundle, "bindings: editors:", "bindings: writers:", 1), `[{group: "editors"}]`, `[{group: "editors"}, {user: "carol"}]`, 1),
		strings.Replace(strings.Replace(planetest.Bundle, `namespaces: ["default"]`, `namespaces: ["def*"], when: "request.name != 'x'"`, 1), `verbs: ["delete", "deletecollection"]`, `verbs: ["*"]`, 1),
	} {
		if i == 0 {
			p.Bootstrap(t, text)
		} else {
			p.Push(t, planetest.PolicyBody(t, text, nil))
		}
		since = append(since, p.Committer.Tip().PolicyRevision())
	}
	return p, since
}

func TestWhoCanNamesEverybodyAndSinceWhen(t *testing.T) {
	p, since := inHistory(t)
	ask := func(spec string) []string {
		return can(p.Must(t, 201, "POST", whoCanPath, questionOf("ResourceAccessReview", spec)))
	}
	const get = `{"verb":"update","group":"example.com","resource":"widgets","namespace":"default","revision":%d}`
	masters := fmt.Sprintf("system:masters by system:masters in [*] since %d", since[0])
	planetest.ExpectLines(t, ask(fmt.Sprintf(get, since[0])), masters, fmt.Sprintf("editors by t/bindings/editors in [default] since %d", since[0]))
	// They are granted it by another binding, which is no interruption.
	planetest.ExpectLines(t, ask(fmt.Sprintf(get, since[1])), masters, fmt.Sprintf("editors by t/bindings/writers in [default] since %d", since[0]), fmt.Sprintf("carol by t/bindings/writers in [default] since %d", since[1]))
	// A condition that was not there is less than what they had, so they have had this for as long.
	planetest.ExpectLines(t, ask(fmt.Sprintf(get, since[2])), masters, fmt.Sprintf("editors by t/bindings/editors in [def*] when request.name != 'x' since %d", since[0]))
	planetest.ExpectLines(t, ask(`{"verb":"update","group":"example.com","resource":"widgets","anyNamespace":true}`), masters, fmt.Sprintf("editors by t/bindings/editors in [def*] when request.name != 'x' since %d", since[2]))
	// In the end nobody can, whoever grants it.
	planetest.ExpectLines(t, ask(`{"verb":"update","group":"example.com","resource":"widgets","namespace":"default","name":"precious"}`), "system:masters by system:masters in [*] denied true",
		"editors by t/bindings/editors in [def*] when request.name != 'x' denied true")
	planetest.ExpectLines(t, ask(`{"verb":"get","path":"/metrics"}`), masters)
	planetest.ExpectLines(t, ask(`{"verb":"get","path":"/version"}`), masters,
		fmt.Sprintf("system:authenticated by builtin/bindings/system:discovery in  since %d", since[0]),
		fmt.Sprintf("system:authenticated by builtin/bindings/system:public-info-viewer in  since %d", since[0]),
		fmt.Sprintf("system:unauthenticated by builtin/bindings/system:public-info-viewer in  since %d", since[0]))
	planetest.ExpectLines(t, ask(`{"verb":"impersonate","resource":"users"}`), masters, fmt.Sprintf("helper by t/bindings/helpers in [*] names [eddie] since %d", since[0]))
	// As of a revision is below /at, too.
	a := p.Must(t, 201, "POST", fmt.Sprintf("/at/%d%s", since[1], whoCanPath), questionOf("ResourceAccessReview", `{"verb":"update","group":"example.com","resource":"widgets","namespace":"default"}`))
	if len(can(a)) != 3 || a.Field("status", "revision") != float64(since[1]) {
		t.Errorf("%s", a)
	}
}

func TestAccessDifferenceIsOfWhatIsDecided(t *testing.T) {
	p, since := inHistory(t)
	ask := func(spec string) []string {
		a := p.Must(t, 201, "POST", differencePath, questionOf("AccessDifference", spec))
		var lines []string
		for _, x := range a.Field("status", "changes").([]any) {
			c := x.(map[string]any)
			s := c["subject"].(map[string]any)
			line := fmt.Sprintf("%v %v%v %v but %v %v %v names %v but %v in %v", c["type"], s["user"], s["group"], c["verbs"], c["exceptVerbs"], c["resources"], c["subresources"], c["names"], c["exceptNames"], c["namespaces"])
			if c["after"] != nil {
				line += fmt.Sprintf(" after %v", c["after"])
			}
			lines = append(lines, strings.ReplaceAll(line, "<nil>", ""))
		}
		return lines
	}
	// What was renamed is no difference.
	gained := []string{"Gained carol [*] but [delete deletecollection] [widgets]  names  but  in [default]", "Gained carol [delete deletecollection] but  [widgets]  names [*] but [precious] in [default]"}
	planetest.ExpectLines(t, ask(fmt.Sprintf(`{"from":{"revision":%d},"to":{"revision":%d}}`, since[0], since[1])), gained...)
	planetest.ExpectLines(t, ask(fmt.Sprintf(`{"from":{"revision":%d},"to":{"revision":%d}}`, since[1], since[1])))
	planetest.ExpectLines(t, ask(fmt.Sprintf(`{"from":{"revision":%d},"subjects":[{"user":"carol"}]}`, since[1])),
		"Lost carol [*] but  [widgets]  names [*] but [precious] in [default]", "Lost carol [*] but [delete deletecollection] [widgets]  names [precious] but  in [default]",
		"Denied carol [*] but [delete deletecollection] [widgets]  names [precious] but  in [*]")
	planetest.ExpectLines(t, ask(fmt.Sprintf(`{"from":{"revision":%d},"namespace":"kube-system","subjects":[{"group":"editors"}]}`, since[1])), "Denied editors [*] but [delete deletecollection] [widgets]  names [precious] but  in [kube-system]")
	// A policy that is in force nowhere.
	sent, err := json.Marshal(planetest.Compile(t, planetest.Bundle).Form.Access())
	if err != nil {
		t.Fatal(err)
	}
	planetest.ExpectLines(t, ask(fmt.Sprintf(`{"from":{"revision":%d},"to":{"access":%s}}`, since[0], sent)))
	planetest.ExpectLines(t, ask(fmt.Sprintf(`{"from":{"access":%s},"to":{"revision":%d}}`, sent, since[1])), gained...)
}

func TestQuestionsThatHaveNoAnswer(t *testing.T) {
	p, since := inHistory(t)
	const widgets = `"verb":"get","group":"example.com","resource":"widgets"`
	for _, tc := range []struct {
		path, kind, spec string
		code             int
		message          string
	}{
		{whoCanPath, "ResourceAccessReview", `{` + widgets + `,"revision":100000}`, 504, "Too large resource version: 100000"},
		{whoCanPath, "ResourceAccessReview", `{` + widgets + `,"revision":1}`, 410, fmt.Sprintf("no policy was in force at revision 1: the first is since revision %d", since[0])},
		{whoCanPath, "ResourceAccessReview", `{` + widgets + `,"time":"1999-01-01T00:00:00Z"}`, 410, "is before all that is known"},
		{whoCanPath, "ResourceAccessReview", `{` + widgets + `,"time":"lately"}`, 400, `\"lately\" is not a moment`},
		{whoCanPath, "ResourceAccessReview", `{` + widgets + `,"time":"1999-01-01T00:00:00Z","revision":3}`, 422, "spec.time: Forbidden: may not be given together with a revision"},
		{whoCanPath, "ResourceAccessReview", `{"verb":"get","group":"example.com","resource":"widgest"}`, 422, `did you mean \"widgets\"?`},
		{whoCanPath, "ResourceAccessReview", `{"verb":"get","resource":"widgets"}`, 422, `did you mean that of the group \"example.com\"?`},
		{whoCanPath, "ResourceAccessReview", `{"verb":"get","group":"example.com","resource":"widgets","subresource":"statsu"}`, 422, `did you mean \"widgets/status\"?`},
		{whoCanPath, "ResourceAccessReview", `{"resource":"secrets"}`, 422, "spec.verb: Required value"},
		{whoCanPath, "ResourceAccessReview", `{"verb":"get"}`, 422, "exactly one of resource or path must be specified"},
		{whoCanPath, "ResourceAccessReview", `{"verb":"get","path":"metrics"}`, 422, "must begin with /"},
		{whoCanPath, "ResourceAccessReview", `{"verb":"get","path":"/metrics","namespace":"x"}`, 422, "spec.namespace: Forbidden: a path has none"},
		{whoCanPath, "ResourceAccessReview", `{` + widgets + `,"namespace":"x","anyNamespace":true}`, 422, "may not be given together with anyNamespace"},
		{whoCanPath, "ResourceAccessReview", `{"verb":1}`, 400, "cannot be handled as a ResourceAccessReview"},
		{whoCanPath, "AccessDifference", `{}`, 400, "cannot be handled as a ResourceAccessReview"},
		{differencePath, "AccessDifference", `{"from":{"revision":100000}}`, 504, "Too large resource version: 100000"},
		{differencePath, "AccessDifference", `{"from":{"revision":1}}`, 410, "no policy was in force at revision 1"},
		{differencePath, "AccessDifference", `{"subjects":[{}]}`, 422, "exactly one of user or group must be specified"},
		{differencePath, "AccessDifference", `{"to":{"access":{},"revision":3}}`, 422, "spec.to.access: Forbidden"},
		{differencePath, "AccessDifference", `{"to":{"access":{"bindings":[{"id":"b","role":"none"}]}}}`, 422, `binding b names the role \"none\", which does not exist`},
	} {
		p.Do("POST", tc.path, questionOf(tc.kind, tc.spec)).Refuses(t, tc.code, tc.message)
	}
	for _, path := range []string{whoCanPath, differencePath} {
		p.Do("POST", path, "{}", "Authorization", "Bearer reader-token").Refuses(t, 403, "cannot create resource")
		p.Do("POST", path, "{}", "Authorization", "").Refuses(t, 401, "Unauthorized")
		p.Do("GET", path, "").Refuses(t, 405, "")
		p.Do("GET", path+"/x", "").Refuses(t, 404, "")
	}
}

// A question of access ends with its request, whatever the rules that are compared: they come with it.
func TestAQuestionEndsWithItsRequest(t *testing.T) {
	p := planetest.NewPlane(t)
	type object = map[string]any
	var bindings []object
	for i := range 1000 {
		bindings = append(bindings, object{"id": fmt.Sprint("b", i), "role": "r", "subjects": []object{{"group": "devs"}}, "namespaces": []string{fmt.Sprintf("*a%d*b*", i)}})
	}
	role := object{"name": "r", "rules": []object{{"id": "r", "verbs": []string{"get"}, "apiGroups": []string{"example.com"}, "resources": []string{"widgets"}}}}
	spec, err := json.Marshal(object{"from": object{}, "to": object{"access": object{"roles": []object{role}, "bindings": bindings}}})
	if err != nil {
		t.Fatal(err)
	}
	if a := p.Do("POST", differencePath+"?timeout=50ms", questionOf("AccessDifference", string(spec))); a.Code != 504 {
		t.Errorf("%.300s", a)
	}
	p.Must(t, 201, "POST", whoCanPath, questionOf("ResourceAccessReview", `{"verb":"get","group":"example.com","resource":"widgets"}`)) // its turn is over
}

// The answer has the teams that may grant it, with their limits.
func TestWhoMayGrantIsKnownFromTheLimitsOfTeams(t *testing.T) {
	var store memlog.Store
	p := planetest.StartReplica(t, store.Open(nil), 0)
	p.Bootstrap(t, `package test

import "stele.dev/policy"

bundle: policy.#Bundle & {cluster: "test", teams: t: {contact: "#t", groups: ["*"], namespaces: ["default"]}}
`)
	const spec = `{"verb":"get","resource":"secrets","namespace":%q}`
	grantors := func(namespace string) string {
		a := p.Must(t, 201, "POST", whoCanPath, questionOf("ResourceAccessReview", fmt.Sprintf(spec, namespace)))
		text, err := json.Marshal([]any{a.Field("status", "grantors"), a.Field("status", "grantorsUnknown")})
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	for namespace, want := range map[string]string{
		"default": `[[{"by":"namespaces","source":"bundle.cue:`,
		"other":   `[[{"by":"groups","source":"bundle.cue:`,
	} {
		if got := grantors(namespace); !strings.HasPrefix(got, want) || !strings.HasSuffix(got, `],null]`) {
			t.Errorf("in %s: %s, want %s", namespace, got, want)
		}
	}
}
