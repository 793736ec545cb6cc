package core_test

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"stele.dev/stele/core/run/plane/planetest"
	"stele.dev/stele/eventlog/memlog"
)

const tableForm = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"

// served is what was served at a revision: bodies by path.
type served struct {
	revision uint64
	bodies   map[string]string
}

// watched are the paths that moments remember.
var watched = []string{
	widgetsPath, widgetsPath + "?limit=2", widgetsPath + "?labelSelector=mod%3D1", widgetsPath + "?fieldSelector=spec.color%3Dred", widgetsPath + "/w00",
	"/apis/example.com/v1/widgets", rolesPath, bindingsPath, definitionsPath + "/widgets.example.com", "/api/v1/namespaces",
}

// lived is a control plane with some history: writes, deletes, and policies with other defaults
// and fields, of which it remembers what it served.
func lived(t testing.TB, historyBytes int) (*replica, []served) {
	t.Helper()
	var store memlog.Store
	p := start(t, store.Open(nil), historyBytes)
	p.bootstrap(t, bundle)
	var moments []served
	remember := func() {
		m := served{p.committer.Tip().Revision(), map[string]string{}}
		for _, path := range watched {
			if a := p.do("GET", path, ""); a.code == 200 {
				m.bodies[path] = string(a.body)
			}
		}
		moments = append(moments, m)
	}
	fill(t, p, 4)
	remember()
	p.activate(t, graded)
	remember()
	p.patch("w01", "merge", `{"spec":{"size":9,"grade":"b"}}`)
	p.must(t, 200, "DELETE", widgetsPath+"/w02", "")
	p.namespace(t, "later")
	remember()
	p.activate(t, regraded)
	remember()
	p.activate(t, colorless)
	p.patch("w00", "merge", `{"spec":{"size":7}}`)
	remember()
	p.activate(t, bundle)
	p.must(t, 201, "POST", widgetsPath, widget("w02", 3))
	remember()
	p.patch("w03", "merge", `{"spec":{"size":70}}`)
	return p, moments
}

func exactAt(path string, revision uint64) string {
	join := "?"
	if strings.Contains(path, "?") {
		join = "&"
	}
	return fmt.Sprintf("%s%sresourceVersion=%d&resourceVersionMatch=Exact", path, join, revision)
}

func belowAt(moment any, path string) string { return fmt.Sprintf("/at/%v%s", moment, path) }

// What was served is served for ever, in the same bytes: from memory, and from history where that
// does not go back so far; of one revision on the ordinary root, and below /at.
func TestWhatWasServedIsServedForEver(t *testing.T) {
	for name, historyBytes := range map[string]int{"from memory": 0, "from history": 1} {
		t.Run(name, func(t *testing.T) {
			p, moments := lived(t, historyBytes)
			for _, m := range moments {
				for path, want := range m.bodies {
					if !strings.Contains(path, "fieldSelector") { // today's policy may know no such field
						if a := p.must(t, 200, "GET", exactAt(path, m.revision), ""); string(a.body) != want {
							t.Errorf("%s at %d:\n%s\nwas\n%s", path, m.revision, a.body, want)
						}
					}
					a := p.must(t, 200, "GET", belowAt(m.revision, path), "")
					if string(a.body) != want {
						t.Errorf("%s below /at/%d:\n%s\nwas\n%s", path, m.revision, a.body, want)
					}
					if got := a.header.Get("Stele-Revision"); got != fmt.Sprint(m.revision) {
						t.Errorf("%s below /at/%d is of revision %q", path, m.revision, got)
					}
				}
			}
		})
	}
}

// The pages of a list add up to it, below /at and on the ordinary root, whatever has left memory.
func TestPagesOfThePastAddUp(t *testing.T) {
	p, moments := lived(t, 1)
	for _, m := range moments {
		for _, root := range []string{"", belowAt(m.revision, "")} {
			query := "limit=1"
			if root == "" {
				query += fmt.Sprintf("&resourceVersionMatch=Exact&resourceVersion=%d", m.revision)
			}
			var names []string
			for {
				page := p.must(t, 200, "GET", root+widgetsPath+"?"+query, "")
				names = append(names, page.names()...)
				if got := revision(t, page); got != m.revision {
					t.Fatalf("a page of %d, want %d", got, m.revision)
				}
				next, more := page.field("metadata", "continue").(string)
				if !more {
					break
				}
				query = "limit=1&continue=" + url.QueryEscape(next)
			}
			if want := p.must(t, 200, "GET", exactAt(widgetsPath, m.revision), "").names(); strings.Join(names, " ") != strings.Join(want, " ") {
				t.Errorf("%s: pages have %v, want %v", root, names, want)
			}
		}
	}
}

// Exact is checked on a get as it is on a list.
func TestExactGets(t *testing.T) {
	p, moments := lived(t, 1)
	first, last := moments[0].revision, p.committer.Tip().Revision()
	for query, code := range map[string]int{
		fmt.Sprintf("/w02?resourceVersionMatch=Exact&resourceVersion=%d", first):               200,
		fmt.Sprintf("/w02?resourceVersionMatch=Exact&resourceVersion=%d", moments[3].revision): 404,
		fmt.Sprintf("/w02?resourceVersionMatch=NotOlderThan&resourceVersion=%d", first):        200,
		fmt.Sprintf("/w00?resourceVersionMatch=Exact&resourceVersion=%d", last+1):              504,
		"/w00?resourceVersionMatch=Exact":                                                      422,
		"/w00?resourceVersionMatch=Exact&resourceVersion=0":                                    422,
		"/w00?resourceVersionMatch=Exact&resourceVersion=x":                                    400,
		"/w00?resourceVersionMatch=Close&resourceVersion=5":                                    422,
		"/w00/status?resourceVersionMatch=Exact&resourceVersion=" + fmt.Sprint(first):          200,
	} {
		p.must(t, code, "GET", widgetsPath+query, "")
	}
}

// An answer of one revision has an ETag, and who has it already is told so.
func TestAnswersOfOneRevisionHaveAnETag(t *testing.T) {
	p, moments := lived(t, 1)
	m := moments[1].revision
	tags := map[string]string{}
	for _, path := range []string{
		exactAt(widgetsPath, m), exactAt(widgetsPath, m+1), exactAt(widgetsPath+"/w00", m), exactAt(rolesPath, m),
		belowAt(m, widgetsPath), belowAt(m, widgetsPath+"?limit=2"), belowAt(m, widgetsPath+"/w00"), belowAt(m, bindingsPath), belowAt(m, "/apis"),
	} {
		for _, accept := range []string{"application/json", tableForm, "application/yaml"} {
			if strings.HasSuffix(path, "/apis") && accept != "application/json" {
				continue
			}
			a := p.must(t, 200, "GET", path, "", "Accept", accept)
			tag := a.header.Get("ETag")
			if tag == "" || tags[tag] != "" {
				t.Errorf("%s as %s has the ETag %q, as %s", path, accept, tag, tags[tag])
			}
			tags[tag] = path + " " + accept
			again := p.must(t, 304, "GET", path, "", "Accept", accept, "If-None-Match", tag)
			if len(again.body) > 0 || again.header.Get("ETag") != tag || again.header.Get("Vary") != "Accept, Accept-Encoding" {
				t.Errorf("%s again: %v %s", path, again.header, again)
			}
			p.must(t, 200, "GET", path, "", "Accept", accept, "If-None-Match", `"another"`)
		}
	}
	if a := p.must(t, 200, "GET", widgetsPath, ""); a.header.Get("ETag") != "" {
		t.Error("what may change has an ETag")
	}
	if a := p.must(t, 404, "GET", belowAt(m, widgetsPath+"/none"), ""); a.header.Get("ETag") != "" {
		t.Error("an error has an ETag")
	}
	// Where today's policy decides how the past looks, another one makes it another answer.
	before := p.must(t, 200, "GET", exactAt(widgetsPath, m), "").header.Get("ETag")
	p.activate(t, graded)
	p.must(t, 200, "GET", exactAt(widgetsPath, m), "", "If-None-Match", before)
	for tag, what := range tags {
		if path, accept, _ := strings.Cut(what, " "); strings.HasPrefix(path, "/at/") {
			p.must(t, 304, "GET", path, "", "Accept", accept, "If-None-Match", tag)
		}
	}
}

// Ages are relative to the revision, and so what was printed then is printed for ever.
func TestAgesAreRelativeToTheRevision(t *testing.T) {
	planetest.Compile(t, bundle)
	synctest.Test(t, func(t *testing.T) {
		var store memlog.Store
		p := start(t, store.Open(nil), 1)
		p.bootstrap(t, bundle)
		p.must(t, 201, "POST", configMapsPath, `{"metadata":{"name":"a"}}`)
		time.Sleep(90 * time.Second)
		p.must(t, 201, "POST", configMapsPath, `{"metadata":{"name":"b"}}`)
		then := p.committer.Tip().Revision()
		before := p.must(t, 200, "GET", configMapsPath, "", "Accept", tableForm)
		time.Sleep(5 * time.Hour)
		p.must(t, 201, "POST", configMapsPath, `{"metadata":{"name":"c"}}`)
		for _, path := range []string{exactAt(configMapsPath, then), belowAt(then, configMapsPath)} {
			if got := p.must(t, 200, "GET", path, "", "Accept", tableForm); string(got.body) != string(before.body) {
				t.Errorf("%s prints\n%s\nand it was\n%s", path, got, before)
			}
		}
		one := p.must(t, 200, "GET", exactAt(configMapsPath+"/a", then), "", "Accept", tableForm)
		if row := one.field("rows").([]any)[0].(map[string]any)["cells"].([]any); row[len(row)-1] != "90s" {
			t.Errorf("a is %v old", row)
		}
	})
}

// A time means the last revision up to then, and will always mean that one.
func TestTimesAreMoments(t *testing.T) {
	planetest.Compile(t, bundle)
	synctest.Test(t, func(t *testing.T) {
		var store memlog.Store
		p := start(t, store.Open(nil), 1)
		began := time.Now()
		time.Sleep(time.Hour)
		p.bootstrap(t, bundle)
		time.Sleep(time.Hour)
		p.must(t, 201, "POST", configMapsPath, `{"metadata":{"name":"a"}}`)
		then, written := p.committer.Tip().Revision(), time.Now()
		time.Sleep(time.Hour)
		ask := func(when time.Time) string {
			a := p.must(t, 200, "GET", belowAt(when.Format(time.RFC3339Nano), configMapsPath), "")
			return a.header.Get("Stele-Revision")
		}
		recent := time.Now().Add(-time.Minute)
		for range 2 {
			for when, want := range map[time.Time]uint64{
				written: then, written.Add(-1): then - 1, written.Add(time.Minute): then, recent: then,
				written.In(time.FixedZone("", 2*3600)): then,
			} {
				if got := ask(when); got != fmt.Sprint(want) {
					t.Errorf("%s is revision %s, want %d", when, got, want)
				}
			}
			p.must(t, 201, "POST", configMapsPath, fmt.Sprintf(`{"metadata":{"name":"b%d"}}`, p.committer.Tip().Revision()))
		}
		newest := strconv.FormatUint(p.committer.Tip().Revision(), 10)
		for when, want := range map[time.Time]string{
			began.Add(-time.Second):     "the first revision is 1,",
			time.Now().Add(time.Second): "the newest revision is " + newest + ",",
		} {
			code := 410
			if when.After(time.Now()) {
				code = 400
			}
			a := p.must(t, code, "GET", belowAt(when.Format(time.RFC3339), configMapsPath), "")
			if text := fmt.Sprint(a.field("message")); !strings.Contains(text, want) {
				t.Errorf("%s: %q does not say %q", when, text, want)
			}
		}
	})
}
