package blame_test

import (
	"fmt"
	"strings"
	"testing"

	"stele.dev/stele/core/run/plane/planetest"
	"stele.dev/stele/eventlog/memlog"
)

// viewing is the tests' bundle in which somebody may view a namespace, and somebody everything.
var viewing = strings.Replace(planetest.Bundle, "bindings: editors:", `
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
	p := planetest.StartReplica(t, store.Open(nil), 0)
	p.Bootstrap(t, viewing)
	p.Namespace(t, "team")
	first := p.Committer.Tip().Revision()
	p.Must(t, 201, "POST", fmt.Sprintf(configsPath, "team"), config("a"))
	p.Must(t, 201, "POST", fmt.Sprintf(configsPath, "default"), config("b"))
	p.Must(t, 201, "POST", "/api/v1/namespaces/team/secrets", `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s"}}`)
	own, others := fmt.Sprintf("%d Created", first+1), fmt.Sprintf("%d Created", first+2)
	since := fmt.Sprintf("?fieldSelector=since%%3D%d", first+1)
	const inTeam, inDefault = "/apis/log.stele.dev/v1/namespaces/team/changes", "/apis/log.stele.dev/v1/namespaces/default/changes"
	if got := p.Must(t, 200, "GET", inTeam+since, "", planetest.As("viewer")...).Revisions(); fmt.Sprint(got) != fmt.Sprint([]string{own}) {
		t.Errorf("in a namespace: %v, want %s alone", got, own)
	}
	p.Must(t, 403, "GET", inDefault, "", planetest.As("viewer")...)
	p.Must(t, 403, "GET", planetest.ChangesPath, "", planetest.As("viewer")...)
	if got := p.Must(t, 200, "GET", planetest.ChangesPath+since, "", planetest.As("overseer")...).Revisions(); fmt.Sprint(got) != fmt.Sprint([]string{others, own}) {
		t.Errorf("everywhere: %v, want %s and %s", got, others, own)
	}
	w := p.Watch(t, inTeam+fmt.Sprintf("?watch=1&resourceVersion=%d", first), planetest.As("viewer")...)
	if e := w.Next(t); e.Object["metadata"].(map[string]any)["name"] != fmt.Sprint(first+1) {
		t.Errorf("a watch: %v", e)
	}
	w.Stop()
	p.Must(t, 403, "GET", inTeam, "", planetest.As("nobody")...)
}

// Everybody may ask who gave the fields of an object their values, if they may get that.
func TestWhoGetsAnObjectMayBlameIt(t *testing.T) {
	p := planetest.NewPlane(t)
	p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("a", 1))
	if a := p.Must(t, 201, "POST", planetest.BlamesPath, blameOf("a", ""), "Authorization", "Bearer reader-token"); len(blamed(a, 0)) == 0 {
		t.Errorf("nothing is blamed: %s", a)
	}
	a := p.Must(t, 403, "POST", planetest.BlamesPath, blameOf("a", ""), "Authorization", "Bearer nobody-token")
	if want := `User "nobody" cannot get resource "widgets"`; !strings.Contains(fmt.Sprint(a.Field("message")), want) {
		t.Errorf("%s, want %q", a, want)
	}
	p.Must(t, 401, "POST", planetest.BlamesPath, blameOf("a", ""), "Authorization", "")
}
