package core_test

import (
	"fmt"
	"net/url"
	"testing"
)

const changesPath = "/apis/log.stele.dev/v1/changes"

// revisions of a list of changes, in its order.
func (a answer) revisions() (list []string) {
	items, _ := a.field("items").([]any)
	for _, item := range items {
		c := item.(map[string]any)
		list = append(list, fmt.Sprintf("%v %v", c["metadata"].(map[string]any)["name"], c["type"]))
	}
	return list
}

func TestChangesAreTheLog(t *testing.T) {
	p := newPlane(t)
	first := p.committer.Tip().Revision()
	p.must(t, 201, "POST", widgetsPath, widget("a", 1))
	p.patch("a", "merge", `{"spec":{"size":2}}`)
	p.must(t, 201, "POST", widgetsPath, widget("b", 1), "Authorization", "Bearer editor-token")
	p.must(t, 200, "DELETE", widgetsPath+"/a", "")
	name := func(n uint64, kind string) string { return fmt.Sprintf("%d %s", first+n, kind) }

	for query, want := range map[string][]string{
		"/apis/log.stele.dev/v1/namespaces/default/changes":                                                {name(4, "Deleted"), name(3, "Created"), name(2, "Updated"), name(1, "Created")},
		changesPath + "?limit=2":                                                                           {name(4, "Deleted"), name(3, "Created")},
		changesPath + "?fieldSelector=" + url.QueryEscape("object.name=a,type=Updated"):                    {name(2, "Updated")},
		changesPath + "?fieldSelector=" + url.QueryEscape("actor.user=eddie"):                              {name(3, "Created")},
		"/apis/log.stele.dev/v1/namespaces/default/changes?limit=1&continue=" + fmt.Sprint(first+2):        {name(2, "Updated")},
		"/apis/log.stele.dev/v1/namespaces/kube-system/changes":                                            nil,
		"/apis/log.stele.dev/v1/namespaces/default/changes?fieldSelector=" + url.QueryEscape("type!=Gone"): {name(4, "Deleted"), name(3, "Created"), name(2, "Updated"), name(1, "Created")},
	} {
		if got := p.must(t, 200, "GET", query, "").revisions(); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: %v, want %v", query, got, want)
		}
	}
	one := p.must(t, 200, "GET", fmt.Sprintf("%s/%d", changesPath, first+2), "")
	if one.field("type") != "Updated" || one.field("previousRevision") != float64(first+1) || one.field("kind") != "Change" {
		t.Errorf("%s", one)
	}
	table := p.must(t, 200, "GET", changesPath+"?limit=1", "", "Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
	if cells := table.field("rows").([]any)[0].(map[string]any)["cells"].([]any); cells[0] != fmt.Sprint(first+4) || cells[2] != "admin" || cells[5] != "a" {
		t.Errorf("%v", cells)
	}
	for query, code := range map[string]int{
		fmt.Sprintf("%s/%d", changesPath, first+5):       404,
		changesPath + "/x":                               404,
		changesPath + "?fieldSelector=spec.size%3D1":     400,
		changesPath + "?labelSelector=a%3Db":             400,
		changesPath + "?continue=x":                      400,
		changesPath + "/1/status":                        404,
		"/apis/log.stele.dev/v1/namespaces/none/changes": 200,
		"/apis/log.stele.dev/v1/changes?limit=-1":        200,
	} {
		if a := p.do("GET", query, ""); a.code != code {
			t.Errorf("%s: %s, want %d", query, a, code)
		}
	}
	p.must(t, 405, "DELETE", fmt.Sprintf("%s/%d", changesPath, first+1), "")
	p.must(t, 405, "POST", changesPath, `{}`)
	p.must(t, 403, "GET", changesPath, "", "Authorization", "Bearer nobody-token")
}

func TestChangesCanBeFollowed(t *testing.T) {
	p := newPlane(t)
	p.must(t, 201, "POST", widgetsPath, widget("a", 1))
	at := p.committer.Tip().Revision()
	p.must(t, 201, "POST", widgetsPath, widget("b", 1))
	w := p.watch(t, fmt.Sprintf("%s?watch=1&resourceVersion=%d&fieldSelector=%s", changesPath, at, url.QueryEscape("object.name!=c")))
	if e := w.next(t); e.Type != "ADDED" || e.Object["object"].(map[string]any)["name"] != "b" {
		t.Errorf("what was there: %v", e)
	}
	p.must(t, 201, "POST", widgetsPath, widget("c", 1))
	p.must(t, 200, "DELETE", widgetsPath+"/a", "")
	if e := w.next(t); e.Object["type"] != "Deleted" || e.Object["metadata"].(map[string]any)["resourceVersion"] != fmt.Sprint(p.committer.Tip().Revision()) {
		t.Errorf("then: %v", e)
	}
}
