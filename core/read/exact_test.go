package read_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"stele.dev/stele/core/run/plane/planetest"
	"stele.dev/stele/eventlog/memlog"
)

// warned are the warnings of an answer.
func warned(a planetest.Answer) string { return strings.Join(a.Header.Values("Warning"), "\n") }

// An exact read is asked in terms of today: it selects by what can be selected by today, in whatever
// there was then. What only the policy of then could select by is asked below /at.
func TestExactReadsSelectByFieldsOfToday(t *testing.T) {
	bySize := strings.Replace(planetest.Bundle, `[".spec.color"]`, `[".spec.size"]`, 1)
	planetest.EveryMemory(t, planetest.Bundle, func(t *testing.T, p *planetest.Replica) {
		p.Must(t, 201, "POST", planetest.WidgetsPath, `{"metadata":{"name":"red"},"spec":{"size":1,"color":"red"}}`)
		p.Must(t, 201, "POST", planetest.WidgetsPath, `{"metadata":{"name":"green"},"spec":{"size":2,"color":"green"}}`)
		then := p.Committer.Tip().Revision()
		p.Activate(t, bySize)
		p.Patch("red", "merge", `{"spec":{"size":2,"color":"green"}}`)
		const byColor, bySize = planetest.WidgetsPath + "?fieldSelector=spec.color%3Dred", planetest.WidgetsPath + "?fieldSelector=spec.size%3D1"
		for path, want := range map[string][]string{planetest.ExactAt(bySize, then): {"red"}, planetest.ExactAt(bySize+",metadata.name!%3Dred", then): nil, planetest.BelowAt(then, byColor): {"red"}} {
			if got := p.Must(t, 200, "GET", path, "").Names(); !slices.Equal(got, want) {
				t.Errorf("%s: %v, want %v", path, got, want)
			}
		}
		p.Do("GET", planetest.ExactAt(byColor, then), "").Refuses(t, 400, "field label not supported: spec.color")
		p.Do("GET", planetest.BelowAt(then, bySize), "").Refuses(t, 400, "field label not supported: spec.size")
	})
}

// What is asked for in a version or kind that was not served then is marked so.
func TestExactReadsOfWhatWasNotServedAreMarked(t *testing.T) {
	planetest.EveryMemory(t, planetest.Versioned("v1beta1"), func(t *testing.T, p *planetest.Replica) {
		p.Must(t, 201, "POST", planetest.BetaPath, `{"metadata":{"name":"w"},"spec":{"size":1}}`)
		then := p.Committer.Tip().Revision()
		p.Activate(t, planetest.Both)
		p.Must(t, 200, "PATCH", planetest.BetaPath+"/w", `{"spec":{"size":2}}`, "Content-Type", planetest.MergePatch)
		want := fmt.Sprintf("example.com/v1 was not served at revision %d: converted now", then)
		for _, path := range []string{planetest.WidgetsPath, planetest.WidgetsPath + "/w", planetest.WidgetsPath + "/w/status"} {
			a := p.Must(t, 200, "GET", planetest.ExactAt(path, then), "")
			if !strings.Contains(warned(a), want) || !strings.Contains(string(a.Body), `"size":1`) || !strings.Contains(string(a.Body), `"apiVersion":"example.com/v1"`) {
				t.Errorf("%s: %q %s, want %q", path, warned(a), a, want)
			}
		}
		for _, path := range []string{planetest.ExactAt(planetest.BetaPath, then), planetest.ExactAt(planetest.BetaPath+"/w", then), planetest.ExactAt(planetest.WidgetsPath, p.Committer.Tip().Revision()), planetest.WidgetsPath} {
			if a := p.Must(t, 200, "GET", path, ""); strings.Contains(warned(a), "converted") {
				t.Errorf("%s: %q", path, warned(a))
			}
		}
	})
}

// A kind that is new has no objects of before, and a list says why.
func TestExactReadsOfAKindThatCameLater(t *testing.T) {
	without, _, _ := strings.Cut(planetest.Bundle, `		kinds: "plains.example.com"`)
	_, rest, _ := strings.Cut(planetest.Bundle, `versions: v1: #schema: {spec?: {a?: int}}`+"\n\t\t}\n")
	planetest.EveryMemory(t, without+rest, func(t *testing.T, p *planetest.Replica) {
		then := p.Committer.Tip().Revision()
		p.Activate(t, planetest.Bundle)
		p.Must(t, 201, "POST", "/apis/example.com/v1/plains", `{"metadata":{"name":"a"}}`)
		a := p.Must(t, 200, "GET", planetest.ExactAt("/apis/example.com/v1/plains", then), "")
		if want := fmt.Sprintf("plains.example.com was not served at revision %d: there was none", then); len(a.Names()) > 0 || !strings.Contains(warned(a), want) {
			t.Errorf("%q %s, want %q", warned(a), a, want)
		}
		p.Must(t, 404, "GET", planetest.ExactAt("/apis/example.com/v1/plains/a", then), "")
	})
}

// Namespaces that were not there are named by exact reads as they are below /at.
func TestExactReadsInNamespacesThatWereNotThere(t *testing.T) {
	var store memlog.Store
	p := planetest.StartReplica(t, store.Open(nil), 1)
	p.Bootstrap(t, planetest.Bundle)
	before := p.Committer.Tip().Revision()
	came := p.Namespace(t, "team")
	const path = "/apis/example.com/v1/namespaces/team/widgets"
	want := fmt.Sprintf(`there was no namespace "team" at revision %d: it was created at revision %d`, before, came)
	if a := p.Must(t, 200, "GET", planetest.ExactAt(path, before), ""); !strings.Contains(strings.ReplaceAll(warned(a), `\"`, `"`), want) {
		t.Errorf("a list: %q, want %q", warned(a), want)
	}
	p.Do("GET", planetest.ExactAt(path+"/w", before), "").Refuses(t, 404, strings.ReplaceAll(want, `"`, `\"`))
	for _, path := range []string{planetest.ExactAt(path, came), path, planetest.ExactAt(planetest.WidgetsPath, before)} {
		if a := p.Must(t, 200, "GET", path, ""); warned(a) != "" {
			t.Errorf("%s: %q", path, warned(a))
		}
	}
}
