package past_test

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
	planetest.WidgetsPath, planetest.WidgetsPath + "?limit=2", planetest.WidgetsPath + "?labelSelector=mod%3D1", planetest.WidgetsPath + "?fieldSelector=spec.color%3Dred", planetest.WidgetsPath + "/w00",
	"/apis/example.com/v1/widgets", planetest.RolesPath, planetest.BindingsPath, planetest.DefinitionsPath + "/widgets.example.com", "/api/v1/namespaces",
}

// lived is a control plane with some history: writes, deletes, and policies with other defaults
// and fields, of which it remembers what it served.
func lived(t testing.TB, historyBytes int) (*planetest.Replica, []served) {
	t.Helper()
	var store memlog.Store
	p := planetest.StartReplica(t, store.Open(nil), historyBytes)
	p.Bootstrap(t, planetest.Bundle)
	var moments []served
	remember := func() {
		m := served{p.Committer.Tip().Revision(), map[string]string{}}
		for _, path := range watched {
			if a := p.Do("GET", path, ""); a.Code == 200 {
				m.bodies[path] = string(a.Body)
			}
		}
		moments = append(moments, m)
	}
	planetest.Fill(t, p, 4)
	remember()
	p.Activate(t, planetest.Graded)
	remember()
	p.Patch("w01", "merge", `{"spec":{"size":9,"grade":"b"}}`)
	p.Must(t, 200, "DELETE", planetest.WidgetsPath+"/w02", "")
	p.Namespace(t, "later")
	remember()
	p.Activate(t, planetest.Regraded)
	remember()
	p.Activate(t, planetest.Colorless)
	p.Patch("w00", "merge", `{"spec":{"size":7}}`)
	remember()
	p.Activate(t, planetest.Bundle)
	p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("w02", 3))
	remember()
	p.Patch("w03", "merge", `{"spec":{"size":70}}`)
	return p, moments
}

// What was served is served for ever, in the same bytes: from memory, and from history where that
// does not go back so far; of one revision on the ordinary root, and below /at.
func TestWhatWasServedIsServedForEver(t *testing.T) {
	for name, historyBytes := range map[string]int{"from memory": 0, "from history": 1} {
		t.Run(name, func(t *testing.T) {
			p, moments := lived(t, historyBytes)
			for _, m := range moments {
				for path, want := range m.bodies {
					if !strings.Contains(path, "fieldSelector") { // today's policy may know no such field
						if a := p.Must(t, 200, "GET", planetest.ExactAt(path, m.revision), ""); string(a.Body) != want {
							t.Errorf("%s at %d:\n%s\nwas\n%s", path, m.revision, a.Body, want)
						}
					}
					a := p.Must(t, 200, "GET", planetest.BelowAt(m.revision, path), "")
					if string(a.Body) != want {
						t.Errorf("%s below /at/%d:\n%s\nwas\n%s", path, m.revision, a.Body, want)
					}
					if got := a.Header.Get("Stele-Revision"); got != fmt.Sprint(m.revision) {
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
		for _, root := range []string{"", planetest.BelowAt(m.revision, "")} {
			query := "limit=1"
			if root == "" {
				query += fmt.Sprintf("&resourceVersionMatch=Exact&resourceVersion=%d", m.revision)
			}
			var names []string
			for {
				page := p.Must(t, 200, "GET", root+planetest.WidgetsPath+"?"+query, "")
				names = append(names, page.Names()...)
				if got := planetest.Revision(t, page); got != m.revision {
					t.Fatalf("a page of %d, want %d", got, m.revision)
				}
				next, more := page.Field("metadata", "continue").(string)
				if !more {
					break
				}
				query = "limit=1&continue=" + url.QueryEscape(next)
			}
			if want := p.Must(t, 200, "GET", planetest.ExactAt(planetest.WidgetsPath, m.revision), "").Names(); strings.Join(names, " ") != strings.Join(want, " ") {
				t.Errorf("%s: pages have %v, want %v", root, names, want)
			}
		}
	}
}

// Exact is checked on a get as it is on a list.
func TestExactGets(t *testing.T) {
	p, moments := lived(t, 1)
	first, last := moments[0].revision, p.Committer.Tip().Revision()
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
		p.Must(t, code, "GET", planetest.WidgetsPath+query, "")
	}
}

// An answer of one revision has an ETag, and who has it already is told so.
func TestAnswersOfOneRevisionHaveAnETag(t *testing.T) {
	p, moments := lived(t, 1)
	m := moments[1].revision
	tags := map[string]string{}
	for _, path := range []string{
		planetest.ExactAt(planetest.WidgetsPath, m), planetest.ExactAt(planetest.WidgetsPath, m+1), planetest.ExactAt(planetest.WidgetsPath+"/w00", m), planetest.ExactAt(planetest.RolesPath, m),
		planetest.BelowAt(m, planetest.WidgetsPath), planetest.BelowAt(m, planetest.WidgetsPath+"?limit=2"), planetest.BelowAt(m, planetest.WidgetsPath+"/w00"), planetest.BelowAt(m, planetest.BindingsPath), planetest.BelowAt(m, "/apis"),
	} {
		for _, accept := range []string{"application/json", tableForm, "application/yaml"} {
			if strings.HasSuffix(path, "/apis") && accept != "application/json" {
				continue
			}
			a := p.Must(t, 200, "GET", path, "", "Accept", accept)
			tag := a.Header.Get("ETag")
			if tag == "" || tags[tag] != "" {
				t.Errorf("%s as %s has the ETag %q, as %s", path, accept, tag, tags[tag])
			}
			tags[tag] = path + " " + accept
			again := p.Must(t, 304, "GET", path, "", "Accept", accept, "If-None-Match", tag)
			if len(again.Body) > 0 || again.Header.Get("ETag") != tag || again.Header.Get("Vary") != "Accept, Accept-Encoding" {
				t.Errorf("%s again: %v %s", path, again.Header, again)
			}
			p.Must(t, 200, "GET", path, "", "Accept", accept, "If-None-Match", `"another"`)
		}
	}
	if a := p.Must(t, 200, "GET", planetest.WidgetsPath, ""); a.Header.Get("ETag") != "" {
		t.Error("what may change has an ETag")
	}
	if a := p.Must(t, 404, "GET", planetest.BelowAt(m, planetest.WidgetsPath+"/none"), ""); a.Header.Get("ETag") != "" {
		t.Error("an error has an ETag")
	}
	// Where today's policy decides how the past looks, another one makes it another answer.
	before := p.Must(t, 200, "GET", planetest.ExactAt(planetest.WidgetsPath, m), "").Header.Get("ETag")
	p.Activate(t, planetest.Graded)
	p.Must(t, 200, "GET", planetest.ExactAt(planetest.WidgetsPath, m), "", "If-None-Match", before)
	for tag, what := range tags {
		if path, accept, _ := strings.Cut(what, " "); strings.HasPrefix(path, "/at/") {
			p.Must(t, 304, "GET", path, "", "Accept", accept, "If-None-Match", tag)
		}
	}
}

// Ages are relative to the revision, and so what was printed then is printed for ever.
func TestAgesAreRelativeToTheRevision(t *testing.T) {
	planetest.Compile(t, planetest.Bundle)
	synctest.Test(t, func(t *testing.T) {
		var store memlog.Store
		p := planetest.StartReplica(t, store.Open(nil), 1)
		p.Bootstrap(t, planetest.Bundle)
		p.Must(t, 201, "POST", planetest.ConfigMapsPath, `{"metadata":{"name":"a"}}`)
		time.Sleep(90 * time.Second)
		p.Must(t, 201, "POST", planetest.ConfigMapsPath, `{"metadata":{"name":"b"}}`)
		then := p.Committer.Tip().Revision()
		before := p.Must(t, 200, "GET", planetest.ConfigMapsPath, "", "Accept", tableForm)
		time.Sleep(5 * time.Hour)
		p.Must(t, 201, "POST", planetest.ConfigMapsPath, `{"metadata":{"name":"c"}}`)
		for _, path := range []string{planetest.ExactAt(planetest.ConfigMapsPath, then), planetest.BelowAt(then, planetest.ConfigMapsPath)} {
			if got := p.Must(t, 200, "GET", path, "", "Accept", tableForm); string(got.Body) != string(before.Body) {
				t.Errorf("%s prints\n%s\nand it was\n%s", path, got, before)
			}
		}
		one := p.Must(t, 200, "GET", planetest.ExactAt(planetest.ConfigMapsPath+"/a", then), "", "Accept", tableForm)
		if row := one.Field("rows").([]any)[0].(map[string]any)["cells"].([]any); row[len(row)-1] != "90s" {
			t.Errorf("a is %v old", row)
		}
	})
}

// A time means the last revision up to then, and will always mean that one.
func TestTimesAreMoments(t *testing.T) {
	planetest.Compile(t, planetest.Bundle)
	synctest.Test(t, func(t *testing.T) {
		var store memlog.Store
		p := planetest.StartReplica(t, store.Open(nil), 1)
		began := time.Now()
		time.Sleep(time.Hour)
		p.Bootstrap(t, planetest.Bundle)
		time.Sleep(time.Hour)
		p.Must(t, 201, "POST", planetest.ConfigMapsPath, `{"metadata":{"name":"a"}}`)
		then, written := p.Committer.Tip().Revision(), time.Now()
		time.Sleep(time.Hour)
		ask := func(when time.Time) string {
			a := p.Must(t, 200, "GET", planetest.BelowAt(when.Format(time.RFC3339Nano), planetest.ConfigMapsPath), "")
			return a.Header.Get("Stele-Revision")
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
			p.Must(t, 201, "POST", planetest.ConfigMapsPath, fmt.Sprintf(`{"metadata":{"name":"b%d"}}`, p.Committer.Tip().Revision()))
		}
		newest := strconv.FormatUint(p.Committer.Tip().Revision(), 10)
		for when, want := range map[time.Time]string{
			began.Add(-time.Second):     "the first revision is 1,",
			time.Now().Add(time.Second): "the newest revision is " + newest + ",",
		} {
			code := 410
			if when.After(time.Now()) {
				code = 400
			}
			a := p.Must(t, code, "GET", planetest.BelowAt(when.Format(time.RFC3339), planetest.ConfigMapsPath), "")
			if text := fmt.Sprint(a.Field("message")); !strings.Contains(text, want) {
				t.Errorf("%s: %q does not say %q", when, text, want)
			}
		}
	})
}
