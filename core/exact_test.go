package core_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"stele.dev/stele/eventlog/memlog"
)

// warned are the warnings of an answer.
func (a answer) warned() string { return strings.Join(a.header.Values("Warning"), "\n") }

// An exact read is asked in terms of today: it selects by what can be selected by today, in whatever
// there was then. What only the policy of then could select by is asked below /at.
func TestExactReadsSelectByFieldsOfToday(t *testing.T) {
	bySize := strings.Replace(bundle, `[".spec.color"]`, `[".spec.size"]`, 1)
	everyMemory(t, bundle, func(t *testing.T, p *replica) {
		p.must(t, 201, "POST", widgetsPath, `{"metadata":{"name":"red"},"spec":{"size":1,"color":"red"}}`)
		p.must(t, 201, "POST", widgetsPath, `{"metadata":{"name":"green"},"spec":{"size":2,"color":"green"}}`)
		then := p.committer.Tip().Revision()
		p.activate(t, bySize)
		p.patch("red", "merge", `{"spec":{"size":2,"color":"green"}}`)
		const byColor, bySize = widgetsPath + "?fieldSelector=spec.color%3Dred", widgetsPath + "?fieldSelector=spec.size%3D1"
		for path, want := range map[string][]string{exactAt(bySize, then): {"red"}, exactAt(bySize+",metadata.name!%3Dred", then): nil, belowAt(then, byColor): {"red"}} {
			if got := p.must(t, 200, "GET", path, "").names(); !slices.Equal(got, want) {
				t.Errorf("%s: %v, want %v", path, got, want)
			}
		}
		p.do("GET", exactAt(byColor, then), "").refuses(t, 400, "field label not supported: spec.color")
		p.do("GET", belowAt(then, bySize), "").refuses(t, 400, "field label not supported: spec.size")
	})
}

// What is asked for in a version or kind that was not served then is marked so.
func TestExactReadsOfWhatWasNotServedAreMarked(t *testing.T) {
	everyMemory(t, versioned("v1beta1"), func(t *testing.T, p *replica) {
		p.must(t, 201, "POST", betaPath, `{"metadata":{"name":"w"},"spec":{"size":1}}`)
		then := p.committer.Tip().Revision()
		p.activate(t, both)
		p.must(t, 200, "PATCH", betaPath+"/w", `{"spec":{"size":2}}`, "Content-Type", mergePatch)
		want := fmt.Sprintf("example.com/v1 was not served at revision %d: converted now", then)
		for _, path := range []string{widgetsPath, widgetsPath + "/w", widgetsPath + "/w/status"} {
			a := p.must(t, 200, "GET", exactAt(path, then), "")
			if !strings.Contains(a.warned(), want) || !strings.Contains(string(a.body), `"size":1`) || !strings.Contains(string(a.body), `"apiVersion":"example.com/v1"`) {
				t.Errorf("%s: %q %s, want %q", path, a.warned(), a, want)
			}
		}
		for _, path := range []string{exactAt(betaPath, then), exactAt(betaPath+"/w", then), exactAt(widgetsPath, p.committer.Tip().Revision()), widgetsPath} {
			if a := p.must(t, 200, "GET", path, ""); strings.Contains(a.warned(), "converted") {
				t.Errorf("%s: %q", path, a.warned())
			}
		}
	})
}

// A kind that is new has no objects of before, and a list says why.
func TestExactReadsOfAKindThatCameLater(t *testing.T) {
	without, _, _ := strings.Cut(bundle, `		kinds: "plains.example.com"`)
	_, rest, _ := strings.Cut(bundle, `versions: v1: #schema: {spec?: {a?: int}}`+"\n\t\t}\n")
	everyMemory(t, without+rest, func(t *testing.T, p *replica) {
		then := p.committer.Tip().Revision()
		p.activate(t, bundle)
		p.must(t, 201, "POST", "/apis/example.com/v1/plains", `{"metadata":{"name":"a"}}`)
		a := p.must(t, 200, "GET", exactAt("/apis/example.com/v1/plains", then), "")
		if want := fmt.Sprintf("plains.example.com was not served at revision %d: there was none", then); len(a.names()) > 0 || !strings.Contains(a.warned(), want) {
			t.Errorf("%q %s, want %q", a.warned(), a, want)
		}
		p.must(t, 404, "GET", exactAt("/apis/example.com/v1/plains/a", then), "")
	})
}

// Namespaces that were not there are named by exact reads as they are below /at.
func TestExactReadsInNamespacesThatWereNotThere(t *testing.T) {
	var store memlog.Store
	p := start(t, store.Open(nil), 1)
	p.bootstrap(t, bundle)
	before := p.committer.Tip().Revision()
	came := p.namespace(t, "team")
	const path = "/apis/example.com/v1/namespaces/team/widgets"
	want := fmt.Sprintf(`there was no namespace "team" at revision %d: it was created at revision %d`, before, came)
	if a := p.must(t, 200, "GET", exactAt(path, before), ""); !strings.Contains(strings.ReplaceAll(a.warned(), `\"`, `"`), want) {
		t.Errorf("a list: %q, want %q", a.warned(), want)
	}
	p.do("GET", exactAt(path+"/w", before), "").refuses(t, 404, strings.ReplaceAll(want, `"`, `\"`))
	for _, path := range []string{exactAt(path, came), path, exactAt(widgetsPath, before)} {
		if a := p.must(t, 200, "GET", path, ""); a.warned() != "" {
			t.Errorf("%s: %q", path, a.warned())
		}
	}
}
