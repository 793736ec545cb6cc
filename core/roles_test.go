package core_test

import (
	"fmt"
	"strings"
	"testing"

	"stele.dev/stele/eventlog/memlog"
)

// viewing is the tests' bundle in which somebody may view a namespace, and somebody everything.
var viewing = strings.Replace(bundle, "bindings: editors:", `
			bindings: one: {clusterRole: "view", subjects: [{user: "viewer"}], namespaces: ["team"]}
			bindings: all: {clusterRole: "view", subjects: [{user: "overseer"}], namespaces: ["*"]}
			bindings: editors:`, 1)

const configsPath = "/api/v1/namespaces/%s/configmaps"

func config(name string) string {
	return `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"` + name + `"}}`
}

// Who may view objects may see how they came to be: in a namespace if it is there, and only of what
// they may read.
func TestWhoViewsANamespaceSeesItsChanges(t *testing.T) {
	var store memlog.Store
	p := start(t, store.Open(nil), 0)
	p.bootstrap(t, viewing)
	p.namespace(t, "team")
	first := p.committer.Tip().Revision()
	p.must(t, 201, "POST", fmt.Sprintf(configsPath, "team"), config("a"))
	p.must(t, 201, "POST", fmt.Sprintf(configsPath, "default"), config("b"))
	p.must(t, 201, "POST", "/api/v1/namespaces/team/secrets", `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s"}}`)
	own, others := fmt.Sprintf("%d Created", first+1), fmt.Sprintf("%d Created", first+2)
	since := fmt.Sprintf("?fieldSelector=since%%3D%d", first+1)
	const inTeam, inDefault = "/apis/log.stele.dev/v1/namespaces/team/changes", "/apis/log.stele.dev/v1/namespaces/default/changes"
	if got := p.must(t, 200, "GET", inTeam+since, "", as("viewer")...).revisions(); fmt.Sprint(got) != fmt.Sprint([]string{own}) {
		t.Errorf("in a namespace: %v, want %s alone", got, own)
	}
	p.must(t, 403, "GET", inDefault, "", as("viewer")...)
	p.must(t, 403, "GET", changesPath, "", as("viewer")...)
	if got := p.must(t, 200, "GET", changesPath+since, "", as("overseer")...).revisions(); fmt.Sprint(got) != fmt.Sprint([]string{others, own}) {
		t.Errorf("everywhere: %v, want %s and %s", got, others, own)
	}
	w := p.watch(t, inTeam+fmt.Sprintf("?watch=1&resourceVersion=%d", first), as("viewer")...)
	if e := w.next(t); e.Object["metadata"].(map[string]any)["name"] != fmt.Sprint(first+1) {
		t.Errorf("a watch: %v", e)
	}
	w.stop()
	p.must(t, 403, "GET", inTeam, "", as("nobody")...)
}

// Everybody may ask who gave the fields of an object their values, if they may get that.
func TestWhoGetsAnObjectMayBlameIt(t *testing.T) {
	p := newPlane(t)
	p.must(t, 201, "POST", widgetsPath, widget("a", 1))
	if a := p.must(t, 201, "POST", blamesPath, blameOf("a", ""), "Authorization", "Bearer reader-token"); len(a.blamed(0)) == 0 {
		t.Errorf("nothing is blamed: %s", a)
	}
	a := p.must(t, 403, "POST", blamesPath, blameOf("a", ""), "Authorization", "Bearer nobody-token")
	if want := `User "nobody" cannot get resource "widgets"`; !strings.Contains(fmt.Sprint(a.field("message")), want) {
		t.Errorf("%s, want %q", a, want)
	}
	p.must(t, 401, "POST", blamesPath, blameOf("a", ""), "Authorization", "")
}
