package core_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"stele.dev/stele/eventlog/memlog"
)

const blamesPath = "/apis/log.stele.dev/v1/blames"

// blameOf asks about a widget, with more in the spec.
func blameOf(name, more string) string {
	return fmt.Sprintf(`{"apiVersion":"log.stele.dev/v1","kind":"Blame","spec":{"group":"example.com","version":"v1","resource":"widgets","namespace":"default","name":%q%s}}`, name, more)
}

// blamed are the fields of an answer, each as a line: path, value, type, revision behind first, and what
// else is asked for.
func (a answer) blamed(first uint64, more ...string) []string {
	var lines []string
	list, _ := a.field("status", "fields").([]any)
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

func expectLines(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestBlameNamesWhoGaveAFieldItsValue(t *testing.T) {
	p := newPlane(t)
	first := p.committer.Tip().Revision()
	p.must(t, 201, "POST", widgetsPath+"?fieldManager=maker", `{"metadata":{"name":"a","labels":{"x/y":"z"}},"spec":{"size":1,"color":"red","owner":"a@example.com","ports":[{"name":"a","port":1},{"name":"b","port":2}],"limits":{}}}`)
	p.must(t, 200, "PATCH", widgetsPath+"/a?fieldManager=tuner", `{"spec":{"size":2}}`, "Content-Type", "application/merge-patch+json", "Authorization", "Bearer editor-token")
	p.must(t, 200, "PATCH", widgetsPath+"/a", `[{"op":"add","path":"/spec/ports/0","value":{"name":"new","port":9}}]`, "Content-Type", "application/json-patch+json")
	p.must(t, 200, "PATCH", widgetsPath+"/a", `{"spec":{"size":3}}`, "Content-Type", "application/merge-patch+json")
	p.must(t, 200, "PATCH", widgetsPath+"/a?fieldManager=tuner", `{"spec":{"size":2}}`, "Content-Type", "application/merge-patch+json", "Impersonate-User", "eddie", "Impersonate-Group", "system:masters")
	a := p.must(t, 201, "POST", blamesPath, blameOf("a", ""))
	expectLines(t, about(a.blamed(first, "actor", "verb", "fieldManager", "impersonator")),
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
	if a.field("status", "revision") != float64(first+5) || a.field("status", "objectRevision") != float64(first+5) || a.field("kind") != "Blame" ||
		a.field("status", "uid") != p.must(t, 200, "GET", widgetsPath+"/a", "").field("metadata", "uid") {
		t.Errorf("%s", a)
	}
	metadata := slices.DeleteFunc(a.blamed(first, "note", "actor"), func(l string) bool {
		return !strings.HasPrefix(l, "metadata.labels") && !strings.HasPrefix(l, "metadata.generation") && !strings.HasPrefix(l, "metadata.name ")
	})
	expectLines(t, metadata, `metadata.generation 5 Server +5 set by the server <nil>`, `metadata.labels["x/y"] "z" Created +1 <nil> admin`, `metadata.name "a" Created +1 <nil> admin`)
	// As it was.
	then := p.must(t, 201, "POST", blamesPath, blameOf("a", fmt.Sprintf(`,"revision":%d`, first+2)))
	if lines := about(then.blamed(first, "actor")); !slices.Contains(lines, `spec.size 2 Updated +2 eddie`) || len(lines) != 8 {
		t.Errorf("at the second revision: %q", lines)
	}
	at := p.must(t, 200, "GET", fmt.Sprintf("%s/%d", changesPath, first+4), "").field("time")
	if lines := p.must(t, 201, "POST", blamesPath, blameOf("a", fmt.Sprintf(`,"time":%q`, at))).blamed(first); !slices.Contains(lines, "spec.size 3 Updated +4") {
		t.Errorf("at a time: %q", lines)
	}
}

func TestBlameNamesTheDefault(t *testing.T) {
	p := newPlane(t)
	for name, tc := range map[string]struct{ method, path, body, mediaType string }{
		"post":  {"POST", widgetsPath, widget("post", 1), "application/json"},
		"yaml":  {"POST", widgetsPath, "apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: yaml}\nspec: {size: 1}", "application/yaml"},
		"apply": {"PATCH", widgetsPath + "/apply?fieldManager=m", "apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: apply}\nspec: {size: 1}", "application/apply-patch+yaml"},
	} {
		p.must(t, 201, tc.method, tc.path, tc.body, "Content-Type", tc.mediaType)
		lines := about(p.must(t, 201, "POST", blamesPath, blameOf(name, "")).blamed(p.committer.Tip().Revision(), "rule", "source"))
		expectLines(t, lines, `spec.color "blue" Defaulted +0 widgets.example.com bundle.cue:8`, `spec.size 1 Created +0 <nil> <nil>`)
	}
	// Who says the default has said it.
	p.must(t, 201, "POST", widgetsPath, `{"metadata":{"name":"said"},"spec":{"size":1,"color":"blue"}}`)
	expectLines(t, about(p.must(t, 201, "POST", blamesPath, blameOf("said", "")).blamed(p.committer.Tip().Revision())), `spec.color "blue" Created +0`, `spec.size 1 Created +0`)
	// A default that a patch brings about is not what the patch says.
	p.must(t, 200, "PATCH", widgetsPath+"/said/status", `[{"op":"add","path":"/status","value":{"ready":true}}]`, "Content-Type", "application/json-patch+json")
	lines := about(p.must(t, 201, "POST", blamesPath, blameOf("said", "")).blamed(p.committer.Tip().Revision(), "subresource"))
	expectLines(t, lines, `spec.color "blue" Created +-1 <nil>`, `spec.size 1 Created +-1 <nil>`, `status.note "none" Defaulted +0 status`, `status.ready true Updated +0 status`)
}

// A policy that gives objects another default changes what is shown, and nobody wrote it.
func TestBlameNamesThePolicyThatRenderedAField(t *testing.T) {
	p := newPlane(t)
	p.must(t, 201, "POST", widgetsPath, widget("a", 1))
	created := p.committer.Tip().Revision()
	p.bootstrap(t, strings.Replace(bundle, `free?: {...}`, `free?: {...}
		grade: *"plain" | string`, 1))
	activated := p.committer.Tip().PolicyRevision()
	want := []string{`spec.color "blue" Defaulted`, fmt.Sprintf(`spec.grade "plain" Rendered +%d widgets.example.com bundle.cue:13 test`, activated-created), `spec.size 1 Created`}
	check := func(more string) {
		t.Helper()
		lines := about(p.must(t, 201, "POST", blamesPath, blameOf("a", more)).blamed(created, "rule", "source", "actor"))
		if len(lines) != 3 || !strings.HasPrefix(lines[0], want[0]) || lines[1] != want[1] {
			t.Errorf("got\n%s\nwant\n%s", strings.Join(lines, "\n"), strings.Join(want, "\n"))
		}
	}
	check("")
	p.patch("a", "merge", `{"spec":{"size":2}}`)
	check("")
	p.bootstrap(t, strings.Replace(bundle, `free?: {...}`, `free?: {...}
		other?: string
		grade: *"plain" | string`, 1))
	if lines := about(p.must(t, 201, "POST", blamesPath, blameOf("a", "")).blamed(created)); !slices.Contains(lines, fmt.Sprintf(`spec.grade "plain" Rendered +%d`, activated-created)) {
		t.Errorf("%q", lines)
	}
	if lines := about(p.must(t, 201, "POST", blamesPath, blameOf("a", fmt.Sprintf(`,"revision":%d`, activated-1))).blamed(created)); len(lines) != 2 {
		t.Errorf("before: %q", lines)
	}
}

// What was re-created is another object.
func TestBlameEndsWhereTheObjectWasCreated(t *testing.T) {
	p := newPlane(t)
	p.must(t, 201, "POST", widgetsPath, widget("a", 1))
	gone := p.committer.Tip().Revision()
	p.must(t, 200, "DELETE", widgetsPath+"/a", "")
	p.must(t, 404, "POST", blamesPath, blameOf("a", ""))
	p.must(t, 201, "POST", widgetsPath, widget("a", 1))
	expectLines(t, about(p.must(t, 201, "POST", blamesPath, blameOf("a", "")).blamed(gone)), `spec.color "blue" Defaulted +2`, `spec.size 1 Created +2`)
	expectLines(t, about(p.must(t, 201, "POST", blamesPath, blameOf("a", fmt.Sprintf(`,"revision":%d`, gone))).blamed(gone)), `spec.color "blue" Defaulted +0`, `spec.size 1 Created +0`)
}

// Below /at a blame is of that moment.
func TestBlameOfThePast(t *testing.T) {
	p := newPlane(t)
	p.must(t, 201, "POST", widgetsPath, widget("a", 1))
	then := p.committer.Tip().Revision()
	p.patch("a", "merge", `{"spec":{"size":2}}`)
	at := fmt.Sprintf("/at/%d", then)
	expectLines(t, about(p.must(t, 201, "POST", at+blamesPath, blameOf("a", "")).blamed(then)), `spec.color "blue" Defaulted +0`, `spec.size 1 Created +0`)
	p.must(t, 504, "POST", at+blamesPath, blameOf("a", fmt.Sprintf(`,"revision":%d`, then+1)))
	p.must(t, 405, "GET", at+blamesPath, "")
}

func TestBlameBeyondAWindow(t *testing.T) {
	var store memlog.Store
	p := start(t, store.Open(nil), 0)
	p.bootstrap(t, strings.Replace(sighted, `cluster: "test"`, `cluster: "test", history: windows: configmaps: "0s"`, 1))
	const configs = "/api/v1/namespaces/default/configmaps"
	p.must(t, 201, "POST", configs, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"old":"1","new":"1"}}`)
	first := p.committer.Tip().Revision()
	p.must(t, 200, "PATCH", configs+"/a", `{"data":{"new":"2"}}`, "Content-Type", "application/merge-patch+json")
	ask := func(more string) string {
		return `{"spec":{"resource":"configmaps","namespace":"default","name":"a"` + more + `}}`
	}
	editor := []string{"Authorization", "Bearer editor-token"}
	expectLines(t, about(p.must(t, 201, "POST", blamesPath, ask(""), editor...).blamed(first, "note", "actor")),
		`data.new "2" Updated +1 <nil> admin`, `data.old "1" Earlier before the window <nil>`)
	expectLines(t, about(p.must(t, 201, "POST", blamesPath, ask("")).blamed(first, "actor")), `data.new "2" Updated +1 admin`, `data.old "1" Created +0 admin`)
	p.must(t, 410, "POST", blamesPath, ask(fmt.Sprintf(`,"revision":%d`, first)), editor...)
	p.must(t, 201, "POST", blamesPath, ask(fmt.Sprintf(`,"revision":%d`, first)))
}

func TestBlamesThatCannotBeAnswered(t *testing.T) {
	p := newPlane(t)
	p.must(t, 201, "POST", widgetsPath, widget("a", 1))
	now := p.committer.Tip().Revision()
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
		if a := p.do("POST", blamesPath, body); a.code != want.code || !strings.Contains(fmt.Sprint(a.field("message")), want.text) {
			t.Errorf("%s: %s, want %d %q", body, a, want.code, want.text)
		}
	}
	p.must(t, 405, "GET", blamesPath, "")
	p.must(t, 404, "POST", blamesPath+"/a/status", "{}")
	p.must(t, 404, "POST", "/apis/log.stele.dev/v1/namespaces/default/blames", "{}")
	// Everybody may ask; whoever does must be allowed to get the object.
	var store memlog.Store
	q := start(t, store.Open(nil), 0)
	q.bootstrap(t, sighted)
	if a := q.must(t, 403, "POST", blamesPath, `{"spec":{"resource":"secrets","namespace":"default","name":"a"}}`, "Authorization", "Bearer editor-token"); !strings.Contains(a.String(), `cannot get resource \"secrets\"`) {
		t.Errorf("%s", a)
	}
	q.must(t, 404, "POST", blamesPath, `{"spec":{"resource":"configmaps","namespace":"default","name":"a"}}`, "Authorization", "Bearer editor-token")
}

// An object that was written a thousand times.
func BenchmarkBlame(b *testing.B) {
	p := newPlane(b)
	p.must(b, 201, "POST", widgetsPath, `{"metadata":{"name":"a"},"spec":{"size":1,"ports":[{"name":"a","port":1},{"name":"b","port":2}],"limits":{"a":1,"b":2,"c":3,"d":4}}}`)
	for i := range 1000 {
		p.patch("a", "merge", fmt.Sprintf(`{"spec":{"size":%d}}`, 1+(i+1)%1000))
	}
	for b.Loop() {
		p.must(b, 201, "POST", blamesPath, blameOf("a", ""))
	}
}

func FuzzBlame(f *testing.F) {
	for _, body := range []string{`{}`, blameOf("a", ""), blameOf("a", `,"revision":18446744073709551615`), `{"spec":{"resource":"namespaces","name":"default"}}`, `{"spec":{"group":"rbac.authorization.k8s.io","resource":"roles","name":"x","namespace":"y"}}`} {
		f.Add(body)
	}
	p := newPlane(f)
	p.must(f, 201, "POST", widgetsPath, widget("a", 1))
	f.Fuzz(func(t *testing.T, body string) {
		if a := p.do("POST", blamesPath, body); a.code >= 500 && a.code != 504 {
			t.Errorf("%q: %s", body, a)
		}
	})
}
