package changes_test

import (
	"encoding/base64"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	"stele.dev/stele/core/run/plane/planetest"
	"stele.dev/stele/eventlog/memlog"
)

func TestChangesAreTheLog(t *testing.T) {
	p := planetest.NewPlane(t)
	first := p.Committer.Tip().Revision()
	p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("a", 1))
	p.Patch("a", "merge", `{"spec":{"size":2}}`)
	p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("b", 1), "Authorization", "Bearer editor-token")
	p.Must(t, 200, "DELETE", planetest.WidgetsPath+"/a", "")
	name := func(n uint64, kind string) string { return fmt.Sprintf("%d %s", first+n, kind) }

	for query, want := range map[string][]string{
		"/apis/log.stele.dev/v1/namespaces/default/changes":                                                    {name(4, "Deleted"), name(3, "Created"), name(2, "Updated"), name(1, "Created")},
		planetest.ChangesPath + "?limit=2":                                                                     {name(4, "Deleted"), name(3, "Created")},
		planetest.ChangesPath + "?fieldSelector=" + url.QueryEscape("object.name=a,type=Updated"):              {name(2, "Updated")},
		planetest.ChangesPath + "?fieldSelector=" + url.QueryEscape("actor.user=eddie"):                        {name(3, "Created")},
		planetest.ChangesPath + "?fieldSelector=" + url.QueryEscape("object.name=a,difference.path=spec.size"): {name(4, "Deleted"), name(2, "Updated"), name(1, "Created")},
		planetest.ChangesPath + "?fieldSelector=" + url.QueryEscape("type=Updated,difference.path=spec"):       {name(2, "Updated")},
		planetest.ChangesPath + "?fieldSelector=" + url.QueryEscape("object.name=a,difference.path=spec.siz"):  nil,
		planetest.ChangesPath + "?labelSelector=" + url.QueryEscape("tier=x"):                                  nil,
		"/apis/log.stele.dev/v1/namespaces/kube-system/changes":                                                nil,
		"/apis/log.stele.dev/v1/namespaces/default/changes?fieldSelector=" + url.QueryEscape("type!=Gone"):     {name(4, "Deleted"), name(3, "Created"), name(2, "Updated"), name(1, "Created")},
	} {
		if got := p.Must(t, 200, "GET", query, "").Revisions(); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: %v, want %v", query, got, want)
		}
	}
	one := p.Must(t, 200, "GET", fmt.Sprintf("%s/%d", planetest.ChangesPath, first+2), "")
	if one.Field("type") != "Updated" || one.Field("previousRevision") != float64(first+1) || one.Field("kind") != "Change" {
		t.Errorf("%s", one)
	}
	table := p.Must(t, 200, "GET", planetest.ChangesPath+"?limit=1", "", "Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
	if cells := table.Field("rows").([]any)[0].(map[string]any)["cells"].([]any); cells[0] != fmt.Sprint(first+4) || cells[2] != "admin" || cells[5] != "a" || cells[6] != "default" || cells[7] != "delete" || cells[8] != float64(first+2) || cells[9] != float64(1) {
		t.Errorf("%v", cells)
	}
	for query, code := range map[string]int{
		fmt.Sprintf("%s/%d", planetest.ChangesPath, first+5):               404,
		planetest.ChangesPath + "/x":                                       404,
		planetest.ChangesPath + "?fieldSelector=spec.size%3D1":             400,
		planetest.ChangesPath + "?labelSelector=a%3Db":                     200,
		planetest.ChangesPath + "?labelSelector=a%3D%3D%3Db":               400,
		planetest.ChangesPath + "?fieldSelector=difference.path%21%3Dspec": 400,
		planetest.ChangesPath + "?continue=x":                              400,
		planetest.ChangesPath + "/1/status":                                404,
		"/apis/log.stele.dev/v1/namespaces/none/changes":                   200,
		"/apis/log.stele.dev/v1/changes?limit=-1":                          200,
	} {
		if a := p.Do("GET", query, ""); a.Code != code {
			t.Errorf("%s: %s, want %d", query, a, code)
		}
	}
	p.Must(t, 405, "DELETE", fmt.Sprintf("%s/%d", planetest.ChangesPath, first+1), "")
	p.Must(t, 405, "POST", planetest.ChangesPath, `{}`)
	p.Must(t, 403, "GET", planetest.ChangesPath, "", "Authorization", "Bearer nobody-token")
}

// Labels are those of the object before a change or after it; user agents have a beginning that is enough.
func TestChangesAreSelectedByLabelsAndClients(t *testing.T) {
	p := planetest.NewPlane(t)
	first := p.Committer.Tip().Revision()
	p.Must(t, 201, "POST", planetest.WidgetsPath+"?fieldManager=maker", `{"metadata":{"name":"a","labels":{"app":"web"}},"spec":{"size":1}}`, "User-Agent", "cleanup.py/0.1 (x)")
	p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("b", 1), "User-Agent", "cleanup")
	p.Patch("a", "merge", `{"metadata":{"labels":null}}`)
	p.Patch("a", "merge", `{"spec":{"size":2}}`)
	p.Must(t, 200, "DELETE", planetest.WidgetsPath+"/b", "")
	w := p.Watch(t, fmt.Sprintf("%s?watch=1&resourceVersion=%d&labelSelector=app", planetest.ChangesPath, first+1))
	if e := w.Next(t); e.Object["metadata"].(map[string]any)["name"] != fmt.Sprint(first+3) {
		t.Errorf("the watch has %v", e)
	}
	for query, want := range map[string][]uint64{
		"labelSelector=" + url.QueryEscape("app in (web,api)"):                                           {3, 1},
		"labelSelector=app&fieldSelector=" + url.QueryEscape("type=Created"):                             {1},
		"difference=false&fieldSelector=" + url.QueryEscape("difference.path=metadata.labels.app"):       {3, 1},
		"fieldSelector=" + url.QueryEscape("request.userAgent=cleanup*"):                                 {2, 1},
		"fieldSelector=" + url.QueryEscape("request.userAgent=cleanup.py/*"):                             {1},
		"fieldSelector=" + url.QueryEscape("request.userAgent=cleanup"):                                  {2},
		"fieldSelector=" + url.QueryEscape("request.userAgent!=cleanup*,since="+fmt.Sprint(first+1)):     {5, 4, 3},
		"fieldSelector=" + url.QueryEscape("request.fieldManager=maker"):                                 {1},
		"limit=1&fieldSelector=" + url.QueryEscape("object.name=a,difference.path=spec,type!=Created"):   {4},
		"fieldSelector=" + url.QueryEscape("difference.path=spec,type=Updated,since="+fmt.Sprint(first)): {4},
	} {
		var got []uint64
		list := p.Must(t, 200, "GET", planetest.ChangesPath+"?"+query, "")
		for _, item := range list.Field("items").([]any) {
			c := item.(map[string]any)
			got = append(got, uint64(c["revision"].(float64))-first)
			if strings.HasPrefix(query, "difference=false") && c["difference"] != nil {
				t.Errorf("%s: it has %v", query, c["difference"])
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", query, got, want)
		}
	}
}

func TestChangesCanBeFollowed(t *testing.T) {
	p := planetest.NewPlane(t)
	p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("a", 1))
	at := p.Committer.Tip().Revision()
	p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("b", 1))
	w := p.Watch(t, fmt.Sprintf("%s?watch=1&resourceVersion=%d&fieldSelector=%s", planetest.ChangesPath, at, url.QueryEscape("object.name!=c")))
	if e := w.Next(t); e.Type != "ADDED" || e.Object["object"].(map[string]any)["name"] != "b" {
		t.Errorf("what was there: %v", e)
	}
	p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("c", 1))
	p.Must(t, 200, "DELETE", planetest.WidgetsPath+"/a", "")
	if e := w.Next(t); e.Object["type"] != "Deleted" || e.Object["metadata"].(map[string]any)["resourceVersion"] != fmt.Sprint(p.Committer.Tip().Revision()) {
		t.Errorf("then: %v", e)
	}
}

// different is what a change says that differs.
func different(c map[string]any) (lines []string) {
	list, _ := c["difference"].([]any)
	for _, x := range list {
		e := x.(map[string]any)
		lines = append(lines, fmt.Sprintf("%v %v %v %v", e["op"], e["path"], e["from"], e["to"]))
	}
	return lines
}

func TestAChangeTellsWhatDiffers(t *testing.T) {
	p := planetest.NewPlane(t)
	first := p.Committer.Tip().Revision()
	p.Must(t, 201, "POST", planetest.WidgetsPath, `{"metadata":{"name":"a","labels":{"example.com/tier":"x"}},"spec":{"size":1,"ports":[{"name":"a","port":1}]}}`)
	p.Patch("a", "merge", `{"metadata":{"labels":{"example.com/tier":null}},"spec":{"size":2,"ports":[{"name":"new","port":9},{"name":"a","port":1}]}}`)
	p.Must(t, 200, "DELETE", planetest.WidgetsPath+"/a", "")
	p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("a", 3))
	for n, want := range map[uint64][]string{
		1: {"add metadata.labels <nil> map[example.com/tier:x]", "add spec <nil> map[color:blue ports:[map[name:a port:1]] size:1]"},
		2: {`remove metadata.labels map[example.com/tier:x] <nil>`, "add spec.ports[0] <nil> map[name:new port:9]", "replace spec.size 1 2"},
		3: {"remove spec map[color:blue ports:[map[name:new port:9] map[name:a port:1]] size:2] <nil>"},
		4: {"add spec <nil> map[color:blue size:3]"},
	} {
		path := fmt.Sprintf("%s/%d", planetest.ChangesPath, first+n)
		if got := different(p.Must(t, 200, "GET", path, "").Object()); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("change %d: %q, want %q", n, got, want)
		}
		if c := p.Must(t, 200, "GET", path+"?difference=false", "").Object(); c["difference"] != nil {
			t.Errorf("change %d without: %v", n, c)
		}
	}
	// Objects of a name are one sequence, and each can be told from the others.
	again := p.Must(t, 200, "GET", fmt.Sprintf("%s/%d", planetest.ChangesPath, first+4), "")
	previous := again.Field("object", "previousUID").(string)
	if previous == "" || again.Field("object", "uid") == previous || again.Field("previousRevision") != nil {
		t.Errorf("%s", again)
	}
	list := func(selector string) []string {
		return p.Must(t, 200, "GET", planetest.ChangesPath+"?fieldSelector="+url.QueryEscape("object.group=example.com,object.resource=widgets,object.namespace=default,object.name=a"+selector), "").Revisions()
	}
	if got := list(""); len(got) != 4 {
		t.Errorf("of the name: %v", got)
	}
	if got := list(",object.uid=" + previous); len(got) != 3 || got[0] != fmt.Sprintf("%d Deleted", first+3) {
		t.Errorf("of the first: %v", got)
	}
	p.Must(t, 400, "GET", planetest.ChangesPath+"?difference=maybe", "")
}

func TestChangesAreSelected(t *testing.T) {
	p := planetest.NewPlane(t)
	first := p.Committer.Tip().Revision()
	p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("a", 1), "Audit-Id", "this-one")
	p.Must(t, 200, "PUT", planetest.WidgetsPath+"/a/status", fmt.Sprintf(`{"metadata":{"name":"a","resourceVersion":"%d"},"status":{"ready":true}}`, first+1), "Impersonate-User", "eddie", "Impersonate-Group", "system:masters")
	p.Must(t, 201, "POST", "/apis/example.com/v1/plains", `{"metadata":{"name":"p"}}`)
	times := map[uint64]string{}
	for n := uint64(1); n <= 3; n++ {
		times[n] = p.Must(t, 200, "GET", fmt.Sprintf("%s/%d", planetest.ChangesPath, first+n), "").Field("time").(string)
	}
	all := "since=" + fmt.Sprint(first+1)
	for selector, want := range map[string][]uint64{
		"":                           {3, 2, 1},
		"request.auditID=this-one":   {1},
		"request.verb=update":        {2},
		"request.verb!=create":       {2},
		"request.subresource=status": {2},
		"actor.impersonator=admin":   {2},
		"object.kind=Plain":          {3},
		"object.version=v1,type=Created,object.kind!=Plain":                               {1},
		"object.group=example.com,object.resource=plains":                                 {3},
		"object.group=example.com,object.resource=plains,object.name=p":                   {3},
		"object.group=example.com,object.resource=plains,object.name=p,object.namespace=": {3},
		"metadata.namespace=default":                                                      {2, 1},
		"metadata.namespace!=default":                                                     {3},
		"until=" + fmt.Sprint(first+2):                                                    {2, 1},
		"until=" + times[2]:                                                               {2, 1},
		"until=2999-01-01T00:00:00Z":                                                      {3, 2, 1},
		"until=1999-01-01T00:00:00Z":                                                      nil,
		"until=" + times[2] + ",metadata.namespace=default":                               {2, 1},
		"policy=none":                          nil,
		"metadata.name=" + fmt.Sprint(first+2): {2},
		"metadata.name=x":                      nil,
	} {
		var names []string
		for _, n := range want {
			names = append(names, fmt.Sprint(first+n))
		}
		if selector != "" {
			selector = "," + selector
		}
		var got []string
		for _, x := range p.Must(t, 200, "GET", planetest.ChangesPath+"?fieldSelector="+url.QueryEscape(all+selector), "").Revisions() {
			name, _, _ := strings.Cut(x, " ")
			got = append(got, name)
		}
		if fmt.Sprint(got) != fmt.Sprint(names) {
			t.Errorf("%s: %v, want %v", selector, got, names)
		}
	}
	for n, want := range map[uint64]int{1: 3, 2: 2, 3: 1} {
		if got := p.Must(t, 200, "GET", planetest.ChangesPath+"?fieldSelector="+url.QueryEscape("since="+times[n]), "").Revisions(); len(got) != want {
			t.Errorf("since %s: %v", times[n], got)
		}
	}
	for _, selector := range []string{"since=yesterday", "until=0", "since=-1", "until!=5", "since=1,since=2", "since=", "since=2026-01-01", "until=99999999999999999999"} {
		if a := p.Must(t, 400, "GET", planetest.ChangesPath+"?fieldSelector="+url.QueryEscape(selector), ""); strings.Contains(selector, "yesterday") && !strings.Contains(a.String(), "as 2026-03-01T12:00:00Z") {
			t.Errorf("%s: %s", selector, a)
		}
	}
}

func TestPagesOfChangesAreOfOneMoment(t *testing.T) {
	p := planetest.NewPlane(t)
	first := p.Committer.Tip().Revision()
	for _, name := range []string{"a", "b", "c"} {
		p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget(name, 1))
	}
	page := p.Must(t, 200, "GET", planetest.ChangesPath+"?limit=2", "")
	p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("d", 1))
	rest := p.Must(t, 200, "GET", planetest.ChangesPath+"?limit=1&continue="+page.Field("metadata", "continue").(string), "")
	if got := fmt.Sprint(page.Revisions(), rest.Revisions()); got != fmt.Sprintf("[%d Created %d Created] [%d Created]", first+3, first+2, first+1) {
		t.Error(got)
	}
	if page.Field("metadata", "resourceVersion") != rest.Field("metadata", "resourceVersion") {
		t.Errorf("%s, then %s", page, rest)
	}
	exact := p.Must(t, 200, "GET", fmt.Sprintf("%s?limit=1&resourceVersionMatch=Exact&resourceVersion=%d", planetest.ChangesPath, first+2), "")
	if got := exact.Revisions()[0]; got != fmt.Sprintf("%d Created", first+2) || exact.Field("metadata", "resourceVersion") != fmt.Sprint(first+2) {
		t.Errorf("%s", exact)
	}
	newer := p.Must(t, 200, "GET", fmt.Sprintf("%s?limit=1&resourceVersionMatch=NotOlderThan&resourceVersion=%d", planetest.ChangesPath, first+2), "")
	if got := newer.Revisions()[0]; got != fmt.Sprintf("%d Created", first+4) {
		t.Errorf("%s", newer)
	}
	for query, code := range map[string]int{
		"resourceVersionMatch=NotOlderThan&resourceVersion=" + fmt.Sprint(first+5): 504,
		"resourceVersionMatch=Exact&resourceVersion=" + fmt.Sprint(first+5):        504,
		"resourceVersionMatch=Exact":                                                                              422,
		"continue=" + page.Field("metadata", "continue").(string) + "x":                                           400,
		"resourceVersion=3&continue=" + page.Field("metadata", "continue").(string):                               400,
		"continue=" + base64.RawURLEncoding.EncodeToString([]byte(`{"v":"meta.k8s.io/v1","rv":3,"start":"4"}`)):   400,
		"continue=" + base64.RawURLEncoding.EncodeToString([]byte(`{"v":"meta.k8s.io/v1","rv":3,"start":"x"}`)):   400,
		"continue=" + base64.RawURLEncoding.EncodeToString([]byte(`{"v":"meta.k8s.io/v1","rv":999,"start":"4"}`)): 504,
		"continue=" + base64.RawURLEncoding.EncodeToString([]byte(`{"v":"meta.k8s.io/v1","rv":-1,"start":"4"}`)):  400,
	} {
		if a := p.Do("GET", planetest.ChangesPath+"?"+query, ""); a.Code != code {
			t.Errorf("%s: %s, want %d", query, a, code)
		}
	}
}

func TestAChangeIsSeenByWhoMayReadTheObject(t *testing.T) {
	var store memlog.Store
	p := planetest.StartReplica(t, store.Open(nil), 0)
	p.Bootstrap(t, planetest.Sighted)
	first := p.Committer.Tip().Revision()
	config := func(namespace, name string) {
		p.Must(t, 201, "POST", "/api/v1/namespaces/"+namespace+"/configmaps", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"`+name+`"},"data":{"a":"b"}}`)
	}
	config("default", "a")
	config("default", "private")
	config("kube-system", "a")
	config("kube-system", "mine")
	p.Must(t, 201, "POST", "/api/v1/namespaces/default/secrets", `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s"}}`)
	config("default", "last")
	for user, want := range map[string][]uint64{"admin": {6, 5, 4, 3, 2, 1}, "editor": {6, 1}, "reader": {4}} {
		var names []string
		for _, n := range want {
			names = append(names, fmt.Sprintf("%d Created", first+n))
		}
		token := []string{"Authorization", "Bearer " + user + "-token"}
		selector := "?fieldSelector=" + url.QueryEscape("since="+fmt.Sprint(first+1))
		if got := p.Must(t, 200, "GET", planetest.ChangesPath+selector, "", token...).Revisions(); fmt.Sprint(got) != fmt.Sprint(names) {
			t.Errorf("%s lists %v, want %v", user, got, names)
		}
		w := p.Watch(t, fmt.Sprintf("%s%s&watch=1&resourceVersion=%d", planetest.ChangesPath, selector, first), token...)
		for n := uint64(1); n <= 6; n++ {
			code := 404
			if slices.Contains(want, n) {
				code = 200
				if e := w.Next(t); e.Object["metadata"].(map[string]any)["name"] != fmt.Sprint(first+n) {
					t.Errorf("%s is sent %v, not change %d", user, e, n)
				}
			}
			p.Must(t, code, "GET", fmt.Sprintf("%s/%d", planetest.ChangesPath, first+n), "", token...)
		}
		w.Stop()
	}
	p.Must(t, 403, "GET", planetest.ChangesPath, "", "Authorization", "Bearer nobody-token")
}

// Beyond the window of a kind, its changes are for those who may look there.
func TestChangesBeyondAWindow(t *testing.T) {
	var store memlog.Store
	p := planetest.StartReplica(t, store.Open(nil), 0)
	p.Bootstrap(t, strings.Replace(planetest.Sighted, `cluster: "test"`, `cluster: "test", history: windows: configmaps: "0s"`, 1))
	first := p.Committer.Tip().Revision()
	for _, name := range []string{"a", "b"} {
		p.Must(t, 201, "POST", "/api/v1/namespaces/default/configmaps", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"`+name+`"}}`)
	}
	editor := []string{"Authorization", "Bearer editor-token"}
	all := planetest.ChangesPath + "?fieldSelector=" + url.QueryEscape("since="+fmt.Sprint(first+1))
	if got := p.Must(t, 200, "GET", all, "", editor...).Revisions(); fmt.Sprint(got) != fmt.Sprintf("[%d Created]", first+2) {
		t.Errorf("of all kinds: %v", got)
	}
	if got := p.Must(t, 200, "GET", all, "").Revisions(); len(got) != 2 {
		t.Errorf("to who may look further: %v", got)
	}
	one := fmt.Sprintf("%s/%d", planetest.ChangesPath, first+1)
	for _, path := range []string{one, all + url.QueryEscape(",object.resource=configmaps"), all + url.QueryEscape(",object.group=,object.resource=configmaps,object.namespace=default,object.name=a")} {
		if a := p.Must(t, 410, "GET", path, "", editor...); !strings.Contains(a.String(), "beyond the window of configmaps") {
			t.Errorf("%s: %s", path, a)
		}
		p.Must(t, 200, "GET", path, "")
	}
	w := p.Watch(t, fmt.Sprintf("%s&watch=1&resourceVersion=%d", all, first), editor...)
	if e := w.Next(t); e.Object["revision"] != float64(first+2) {
		t.Errorf("%v", e)
	}
	w = p.Watch(t, fmt.Sprintf("%s?fieldSelector=object.resource%%3Dconfigmaps&watch=1&resourceVersion=%d", planetest.ChangesPath, first), editor...)
	if e := w.Next(t); e.Type != "ERROR" || e.Object["code"] != float64(410) {
		t.Errorf("%v", e)
	}
}

// What is sent was allowed by the policy in force when it happened, or later.
func TestAWatchOfChangesAsksTheNewPolicy(t *testing.T) {
	var store memlog.Store
	p := planetest.StartReplica(t, store.Open(nil), 0)
	p.Bootstrap(t, planetest.Sighted)
	w := p.Watch(t, fmt.Sprintf("%s?watch=1&resourceVersion=%d", planetest.ChangesPath, p.Committer.Tip().Revision()), "Authorization", "Bearer editor-token")
	config := func(name string) {
		p.Must(t, 201, "POST", "/api/v1/namespaces/default/configmaps", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"`+name+`"}}`)
	}
	config("a")
	if e := w.Next(t); e.Object["object"].(map[string]any)["name"] != "a" {
		t.Errorf("%v", e)
	}
	taken := strings.Replace(planetest.Sighted, `{user: "eddie"}], namespaces: ["default"]`, `{user: "reader"}], namespaces: ["default"]`, 1)
	p.Bootstrap(t, taken)
	config("b")
	p.Bootstrap(t, strings.Replace(taken, "it is private", "it stays private", 1))
	for activations := 0; activations < 2; {
		switch e := w.Next(t); {
		case e.Object["object"] != nil:
			t.Errorf("%v", e.Object)
		case e.Object["type"] == "PolicyActivated":
			activations++
		}
	}
}

// A watch goes on where another one ended, as a bookmark says, and misses nothing.
func TestAWatchOfChangesEndsWithABookmark(t *testing.T) {
	p := planetest.NewPlane(t)
	at := p.Committer.Tip().Revision()
	w := p.Watch(t, fmt.Sprintf("%s?watch=1&allowWatchBookmarks=1&resourceVersion=%d&fieldSelector=object.kind%%3DPlain", planetest.ChangesPath, at))
	p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("a", 1))
	p.Must(t, 201, "POST", "/apis/example.com/v1/plains", `{"metadata":{"name":"p"}}`)
	if e := w.Next(t); e.Type != "ADDED" {
		t.Errorf("%v", e)
	}
	p.Drain()
	if e := w.Next(t); e.Type != "BOOKMARK" || e.Object["kind"] != "Change" || e.Object["metadata"].(map[string]any)["resourceVersion"] != fmt.Sprint(at+2) {
		t.Errorf("%v", e)
	}
	<-w.Ended
}

// Below /at the log ends at that moment.
func TestChangesOfThePast(t *testing.T) {
	p := planetest.NewPlane(t)
	first := p.Committer.Tip().Revision()
	p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("a", 1))
	p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("b", 1))
	at := fmt.Sprintf("/at/%d", first+1) + planetest.ChangesPath
	if got := p.Must(t, 200, "GET", at+"?limit=1", "").Revisions()[0]; got != fmt.Sprintf("%d Created", first+1) {
		t.Error(got)
	}
	p.Must(t, 200, "GET", fmt.Sprintf("%s/%d", at, first+1), "")
	p.Must(t, 404, "GET", fmt.Sprintf("%s/%d", at, first+2), "")
	w := p.Watch(t, fmt.Sprintf("%s?watch=1&allowWatchBookmarks=1&resourceVersion=%d", at, first))
	if e := w.Next(t); e.Object["revision"] != float64(first+1) {
		t.Errorf("%v", e)
	}
	if e := w.Next(t); e.Type != "BOOKMARK" {
		t.Errorf("%v", e)
	}
}

// Whatever is asked for gets an answer.
func FuzzChanges(f *testing.F) {
	for _, query := range []string{
		"fieldSelector=since%3D1%2Cuntil%3D2026-01-01T00:00:00Z", "fieldSelector=actor.user!%3Dx", "difference=maybe", "limit=-1", "limit=9223372036854775807",
		"continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6Mywic3RhcnQiOiI0In0", "resourceVersion=3&resourceVersionMatch=Exact", "fieldSelector=metadata.name%3D18446744073709551616",
		"fieldSelector=since%3D0000-01-01T00:00:00Z", "fieldSelector=until%3D9999-12-31T23:59:59.999999999Z", "resourceVersion=18446744073709551615",
		"fieldSelector=object.group%3D,object.resource%3Dconfigmaps,object.name%3D",
	} {
		f.Add(query)
	}
	p := planetest.NewPlane(f)
	p.Must(f, 201, "POST", planetest.WidgetsPath, planetest.Widget("a", 1))
	f.Fuzz(func(t *testing.T, query string) {
		if !strings.Contains(query, "watch") {
			q := planetest.Request("GET", planetest.ChangesPath, "")
			q.URL.RawQuery = query
			if a := p.Serve(q); a.Code >= 500 && a.Code != 504 {
				t.Errorf("%q: %s", query, a)
			}
		}
	})
}
