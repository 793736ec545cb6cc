package blame_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"stele.dev/stele/core/run/plane/planetest"
	"stele.dev/stele/eventlog/memlog"
)

// blameOf asks about a widget, with more in the spec.
func blameOf(name, more string) string {
	return fmt.Sprintf(`{"apiVersion":"log.stele.dev/v1","kind":"Blame","spec":{"group":"example.com","version":"v1","resource":"widgets","namespace":"default","name":%q%s}}`, name, more)
}

// blamed are the fields of an answer, each as a line: path, value, type, revision behind first, and what
// else is asked for.
func blamed(a planetest.Answer, first uint64, more ...string) []string {
	var lines []string
	list, _ := a.Field("status", "fields").([]any)
	for _, x := range list {
		f := x.(map[string]any)
		value, _ := json.Marshal(f["value"])
		line := fmt.Sprintf("%v %s %v", f["path"], value, f["type"])
		if revision, ok := f["revision"].(float64); ok {
			line += fmt.Sprintf(" +%d", int64(revision)-int64(first))
		}
		for _, name := range more {
			line += fmt.Sprintf(" %v", f[name])
		}
		lines = append(lines, line)
	}
	return lines
}

// about are those of the lines that are not about metadata.
func about(lines []string) []string {
	return slices.DeleteFunc(lines, func(l string) bool { return strings.HasPrefix(l, "metadata.") })
}

func TestBlameNamesWhoGaveAFieldItsValue(t *testing.T) {
	p := planetest.NewPlane(t)
	first := p.Committer.Tip().Revision()
	p.Must(t, 201, "POST", planetest.WidgetsPath+"?fieldManager=maker", `{"metadata":{"name":"a","labels":{"x/y":"z"}},"spec":{"size":1,"color":"red","owner":"a@example.com","ports":[{"name":"a","port":1},{"name":"b","port":2}],"limits":{}}}`)
	p.Must(t, 200, "PATCH", planetest.WidgetsPath+"/a?fieldManager=tuner", `{"spec":{"size":2}}`, "Content-Type", "application/merge-patch+json", "Authorization", "Bearer editor-token")
	p.Must(t, 200, "PATCH", planetest.WidgetsPath+"/a", `[{"op":"add","path":"/spec/ports/0","value":{"name":"new","port":9}}]`, "Content-Type", "application/json-patch+json")
	p.Must(t, 200, "PATCH", planetest.WidgetsPath+"/a", `{"spec":{"size":3}}`, "Content-Type", "application/merge-patch+json")
	p.Must(t, 200, "PATCH", planetest.WidgetsPath+"/a?fieldManager=tuner", `{"spec":{"size":2}}`, "Content-Type", "application/merge-patch+json", "Impersonate-User", "eddie", "Impersonate-Group", "system:masters")
	a := p.Must(t, 201, "POST", planetest.BlamesPath, blameOf("a", ""))
	planetest.ExpectLines(t, about(blamed(a, first, "actor", "verb", "fieldManager", "impersonator")),
		`spec.color "red" Created +1 admin create maker <nil>`,
		`spec.limits {} Created +1 admin create maker <nil>`,
		`spec.owner "a@example.com" Created +1 admin create maker <nil>`,
		`spec.ports[0].name "new" Updated +3 admin patch <nil> <nil>`,
		`spec.ports[0].port 9 Updated +3 admin patch <nil> <nil>`,
		`spec.ports[1].name "a" Created +1 admin create maker <nil>`,
		`spec.ports[1].port 1 Created +1 admin create maker <nil>`,
		`spec.ports[2].name "b" Created +1 admin create maker <nil>`,
		`spec.ports[2].port 2 Created +1 admin create maker <nil>`,
		`spec.size 2 Updated +5 eddie patch tuner admin`)
	if a.Field("status", "revision") != float64(first+5) || a.Field("status", "objectRevision") != float64(first+5) || a.Field("kind") != "Blame" ||
		a.Field("status", "uid") != p.Must(t, 200, "GET", planetest.WidgetsPath+"/a", "").Field("metadata", "uid") {
		t.Errorf("%s", a)
	}
	metadata := slices.DeleteFunc(blamed(a, first, "note", "actor"), func(l string) bool {
		return !strings.HasPrefix(l, "metadata.labels") && !strings.HasPrefix(l, "metadata.generation") && !strings.HasPrefix(l, "metadata.name ")
	})
	planetest.ExpectLines(t, metadata, `metadata.generation 5 Server +5 set by the server <nil>`, `metadata.labels["x/y"] "z" Created +1 <nil> admin`, `metadata.name "a" Created +1 <nil> admin`)
	// As it was.
	then := p.Must(t, 201, "POST", planetest.BlamesPath, blameOf("a", fmt.Sprintf(`,"revision":%d`, first+2)))
	if lines := about(blamed(then, first, "actor")); !slices.Contains(lines, `spec.size 2 Updated +2 eddie`) || len(lines) != 8 {
		t.Errorf("at the second revision: %q", lines)
	}
	at := p.Must(t, 200, "GET", fmt.Sprintf("%s/%d", planetest.ChangesPath, first+4), "").Field("time")
	if lines := blamed(p.Must(t, 201, "POST", planetest.BlamesPath, blameOf("a", fmt.Sprintf(`,"time":%q`, at))), first); !slices.Contains(lines, "spec.size 3 Updated +4") {
		t.Errorf("at a time: %q", lines)
	}
}

func TestBlameNamesTheDefault(t *testing.T) {
	p := planetest.NewPlane(t)
	for name, tc := range map[string]struct{ method, path, body, mediaType string }{
		"post":  {"POST", planetest.WidgetsPath, planetest.Widget("post", 1), "application/json"},
		"yaml":  {"POST", planetest.WidgetsPath, "apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: yaml}\nspec: {size: 1}", "application/yaml"},
		"apply": {"PATCH", planetest.WidgetsPath + "/apply?fieldManager=m", "apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: apply}\nspec: {size: 1}", "application/apply-patch+yaml"},
	} {
		p.Must(t, 201, tc.method, tc.path, tc.body, "Content-Type", tc.mediaType)
		lines := about(blamed(p.Must(t, 201, "POST", planetest.BlamesPath, blameOf(name, "")), p.Committer.Tip().Revision(), "rule", "source"))
		planetest.ExpectLines(t, lines, `spec.color "blue" Defaulted +0 widgets.example.com bundle.cue:8`, `spec.size 1 Created +0 <nil> <nil>`)
	}
	// Who says the default has said it.
	p.Must(t, 201, "POST", planetest.WidgetsPath, `{"metadata":{"name":"said"},"spec":{"size":1,"color":"blue"}}`)
	planetest.ExpectLines(t, about(blamed(p.Must(t, 201, "POST", planetest.BlamesPath, blameOf("said", "")), p.Committer.Tip().Revision())), `spec.color "blue" Created +0`, `spec.size 1 Created +0`)
	// A default that a patch brings about is not what the patch says.
	p.Must(t, 200, "PATCH", planetest.WidgetsPath+"/said/status", `[{"op":"add","path":"/status","value":{"ready":true}}]`, "Content-Type", "application/json-patch+json")
	lines := about(blamed(p.Must(t, 201, "POST", planetest.BlamesPath, blameOf("said", "")), p.Committer.Tip().Revision(), "subresource"))
	planetest.ExpectLines(t, lines, `spec.color "blue" Created +-1 <nil>`, `spec.size 1 Created +-1 <nil>`, `status.note "none" Defaulted +0 status`, `status.ready true Updated +0 status`)
}

// A policy that gives objects another default changes what is shown, and nobody wrote it.
func TestBlameNamesThePolicyThatRenderedAField(t *testing.T) {
	p := planetest.NewPlane(t)
	p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("a", 1))
	created := p.Committer.Tip().Revision()
	p.Bootstrap(t, strings.Replace(planetest.Bundle, `free?: {...}`, `free?: {...}
		grade: *"plain" | string`, 1))
	activated := p.Committer.Tip().PolicyRevision()
	want := []string{`spec.color "blue" Defaulted`, fmt.Sprintf(`spec.grade "plain" Rendered +%d widgets.example.com bundle.cue:13 test`, activated-created), `spec.size 1 Created`}
	check := func(more string) {
		t.Helper()
		lines := about(blamed(p.Must(t, 201, "POST", planetest.BlamesPath, blameOf("a", more)), created, "rule", "source", "actor"))
		if len(lines) != 3 || !strings.HasPrefix(lines[0], want[0]) || lines[1] != want[1] {
			t.Errorf("got\n%s\nwant\n%s", strings.Join(lines, "\n"), strings.Join(want, "\n"))
		}
	}
	check("")
	p.Patch("a", "merge", `{"spec":{"size":2}}`)
	check("")
	p.Bootstrap(t, strings.Replace(planetest.Bundle, `free?: {...}`, `free?: {...}
		other?: string
		grade: *"plain" | string`, 1))
	if lines := about(blamed(p.Must(t, 201, "POST", planetest.BlamesPath, blameOf("a", "")), created)); !slices.Contains(lines, fmt.Sprintf(`spec.grade "plain" Rendered +%d`, activated-created)) {
		t.Errorf("%q", lines)
	}
	if lines := about(blamed(p.Must(t, 201, "POST", planetest.BlamesPath, blameOf("a", fmt.Sprintf(`,"revision":%d`, activated-1))), created)); len(lines) != 2 {
		t.Errorf("before: %q", lines)
	}
}

// What was re-created is another object.
func TestBlameEndsWhereTheObjectWasCreated(t *testing.T) {
	p := planetest.NewPlane(t)
	p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("a", 1))
	gone := p.Committer.Tip().Revision()
	p.Must(t, 200, "DELETE", planetest.WidgetsPath+"/a", "")
	p.Must(t, 404, "POST", planetest.BlamesPath, blameOf("a", ""))
	p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("a", 1))
	planetest.ExpectLines(t, about(blamed(p.Must(t, 201, "POST", planetest.BlamesPath, blameOf("a", "")), gone)), `spec.color "blue" Defaulted +2`, `spec.size 1 Created +2`)
	planetest.ExpectLines(t, about(blamed(p.Must(t, 201, "POST", planetest.BlamesPath, blameOf("a", fmt.Sprintf(`,"revision":%d`, gone))), gone)), `spec.color "blue" Defaulted +0`, `spec.size 1 Created +0`)
}

// Below /at a blame is of that moment.
func TestBlameOfThePast(t *testing.T) {
	p := planetest.NewPlane(t)
	p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("a", 1))
	then := p.Committer.Tip().Revision()
	p.Patch("a", "merge", `{"spec":{"size":2}}`)
	at := fmt.Sprintf("/at/%d", then)
	planetest.ExpectLines(t, about(blamed(p.Must(t, 201, "POST", at+planetest.BlamesPath, blameOf("a", "")), then)), `spec.color "blue" Defaulted +0`, `spec.size 1 Created +0`)
	p.Must(t, 504, "POST", at+planetest.BlamesPath, blameOf("a", fmt.Sprintf(`,"revision":%d`, then+1)))
	p.Must(t, 405, "GET", at+planetest.BlamesPath, "")
}

func TestBlameBeyondAWindow(t *testing.T) {
	var store memlog.Store
	p := planetest.StartReplica(t, store.Open(nil), 0)
	p.Bootstrap(t, strings.Replace(planetest.Sighted, `cluster: "test"`, `cluster: "test", history: windows: configmaps: "0s"`, 1))
	const configs = "/api/v1/namespaces/default/configmaps"
	p.Must(t, 201, "POST", configs, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"old":"1","new":"1"}}`)
	first := p.Committer.Tip().Revision()
	p.Must(t, 200, "PATCH", configs+"/a", `{"data":{"new":"2"}}`, "Content-Type", "application/merge-patch+json")
	ask := func(more string) string {
		return `{"spec":{"resource":"configmaps","namespace":"default","name":"a"` + more + `}}`
	}
	editor := []string{"Authorization", "Bearer editor-token"}
	planetest.ExpectLines(t, about(blamed(p.Must(t, 201, "POST", planetest.BlamesPath, ask(""), editor...), first, "note", "actor")),
		`data.new "2" Updated +1 <nil> admin`, `data.old "1" Earlier before the window <nil>`)
	planetest.ExpectLines(t, about(blamed(p.Must(t, 201, "POST", planetest.BlamesPath, ask("")), first, "actor")), `data.new "2" Updated +1 admin`, `data.old "1" Created +0 admin`)
	p.Must(t, 410, "POST", planetest.BlamesPath, ask(fmt.Sprintf(`,"revision":%d`, first)), editor...)
	p.Must(t, 201, "POST", planetest.BlamesPath, ask(fmt.Sprintf(`,"revision":%d`, first)))
}

func TestBlamesThatCannotBeAnswered(t *testing.T) {
	p := planetest.NewPlane(t)
	p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("a", 1))
	now := p.Committer.Tip().Revision()
	for body, want := range map[string]struct {
		code int
		text string
	}{
		`{}`:                   {422, "spec.resource: Required"},
		`{"spec":7}`:           {400, "cannot unmarshal number"},
		`[]`:                   {400, ""},
		`{"kind":"Change"}`:    {400, "it is a"},
		blameOf("", ""):        {422, "spec.name: Required"},
		blameOf("missing", ""): {404, `widgets.example.com "missing" not found`},
		blameOf("a/b", ""):     {404, ""},
		blameOf("a", `,"revision":1,"time":"2026-01-01T00:00:00Z"`):                                             {422, "may not be given together with a revision"},
		blameOf("a", fmt.Sprintf(`,"revision":%d`, now+1)):                                                      {504, "Too large resource version"},
		blameOf("a", `,"revision":-1`):                                                                          {400, ""},
		blameOf("a", `,"revision":1`):                                                                           {410, "no policy was in force"},
		blameOf("a", `,"time":"yesterday"`):                                                                     {400, "is not a moment"},
		blameOf("a", `,"time":"1999-01-01T00:00:00Z"`):                                                          {410, "is before all that is known"},
		blameOf("a", `,"time":"2999-01-01T00:00:00Z"`):                                                          {400, "has not come yet"},
		`{"spec":{"group":"example.com","resource":"widgets","name":"a"}}`:                                      {422, "widgets.example.com are in namespaces"},
		`{"spec":{"group":"example.com","resource":"plains","name":"a","namespace":"default"}}`:                 {422, "plains.example.com are in no namespace"},
		`{"spec":{"group":"example.com","resource":"nothing","name":"a"}}`:                                      {404, "could not find the requested resource"},
		`{"spec":{"group":"example.com","version":"v9","resource":"widgets","name":"a","namespace":"default"}}`: {404, "could not find the requested resource"},
	} {
		if a := p.Do("POST", planetest.BlamesPath, body); a.Code != want.code || !strings.Contains(fmt.Sprint(a.Field("message")), want.text) {
			t.Errorf("%s: %s, want %d %q", body, a, want.code, want.text)
		}
	}
	p.Must(t, 405, "GET", planetest.BlamesPath, "")
	p.Must(t, 404, "POST", planetest.BlamesPath+"/a/status", "{}")
	p.Must(t, 404, "POST", "/apis/log.stele.dev/v1/namespaces/default/blames", "{}")
	// Everybody may ask; whoever does must be allowed to get the object.
	var store memlog.Store
	q := planetest.StartReplica(t, store.Open(nil), 0)
	q.Bootstrap(t, planetest.Sighted)
	if a := q.Must(t, 403, "POST", planetest.BlamesPath, `{"spec":{"resource":"secrets","namespace":"default","name":"a"}}`, "Authorization", "Bearer editor-token"); !strings.Contains(a.String(), `cannot get resource \"secrets\"`) {
		t.Errorf("%s", a)
	}
	q.Must(t, 404, "POST", planetest.BlamesPath, `{"spec":{"resource":"configmaps","namespace":"default","name":"a"}}`, "Authorization", "Bearer editor-token")
}

// An object that was written a thousand times.
func BenchmarkBlame(b *testing.B) {
	p := planetest.NewPlane(b)
	p.Must(b, 201, "POST", planetest.WidgetsPath, `{"metadata":{"name":"a"},"spec":{"size":1,"ports":[{"name":"a","port":1},{"name":"b","port":2}],"limits":{"a":1,"b":2,"c":3,"d":4}}}`)
	for i := range 1000 {
		p.Patch("a", "merge", fmt.Sprintf(`{"spec":{"size":%d}}`, 1+(i+1)%1000))
	}
	for b.Loop() {
		p.Must(b, 201, "POST", planetest.BlamesPath, blameOf("a", ""))
	}
}

func FuzzBlame(f *testing.F) {
	for _, body := range []string{`{}`, blameOf("a", ""), blameOf("a", `,"revision":18446744073709551615`), `{"spec":{"resource":"namespaces","name":"default"}}`, `{"spec":{"group":"rbac.authorization.k8s.io","resource":"roles","name":"x","namespace":"y"}}`} {
		f.Add(body)
	}
	p := planetest.NewPlane(f)
	p.Must(f, 201, "POST", planetest.WidgetsPath, planetest.Widget("a", 1))
	f.Fuzz(func(t *testing.T, body string) {
		if a := p.Do("POST", planetest.BlamesPath, body); a.Code >= 500 && a.Code != 504 {
			t.Errorf("%q: %s", body, a)
		}
	})
}
