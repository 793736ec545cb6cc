package conformance_test

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var (
	from   = flag.Uint64("conformance.from", 1, "first seed of the streams of requests")
	seeds  = flag.Uint64("conformance.seeds", 12, "how many streams")
	length = flag.Int("conformance.length", 200, "how many requests a stream has")
	most   = flag.Int("conformance.most", 1, "how many differences of a stream are told")
)

// What a client sees of stele is what it would see of upstream's server: the same requests,
// one after the other, get the same answers, and watches the same events.
func TestTheSameAnswers(t *testing.T) {
	judge, judged := startUpstream(t, ""), startStele(t, nil)
	for seed := *from; seed < *from+*seeds; seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { compareStream(t, seed, judge, judged) })
	}
}

// compares counts the requests whose answers were compared.
var compares int

func compareStream(t *testing.T, seed uint64, judge, judged *peer) {
	peers := []*peer{judge, judged}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var running [2][]*watching
	for i, p := range peers {
		p.begin(t)
		for _, w := range watches() {
			started, err := p.watch(ctx, w, p.base)
			if err != nil {
				t.Fatal(err)
			}
			running[i] = append(running[i], started)
		}
	}

	s := newStream(seed, judge)
	told := 0
	for n := range *length {
		q := s.next()
		if q.fresh {
			judge.catchUp(t)
		}
		var answers [2]*answer
		for i, p := range peers {
			answers[i] = p.send(t, q)
		}
		if (more(answers[0]) || more(answers[1])) && more(answers[0]) != more(answers[1]) {
			judge.token, judged.token = "", "" // one of the intended differences
		}
		if onlyTimes(judge, judged, q, answers[0], answers[1]) || kindMended(answers[0], answers[1]) {
			told = *most // the revisions are not comparable any more
			break
		}
		compares++
		if diff := difference(judge, judged, q, answers[0], answers[1]); diff != "" {
			t.Errorf("request %d, %s\n(-upstream +stele):\n%s", n, q.describe(judge), diff)
			if told++; told >= *most {
				break
			}
		}
	}

	for _, p := range peers {
		p.clear(t)
		p.end(t)
	}
	for i, w := range watches() {
		if told > 0 {
			break // of which they would tell as well
		}
		for j, p := range peers {
			p.seen(running[j][i].collected(t))
		}
		upstreams, steles := judge.normal(running[0][i].events), judged.normal(running[1][i].events)
		if diff := cmp.Diff(upstreams, steles); diff != "" {
			t.Errorf("watch %s %s\n(-upstream +stele):\n%s", w.path, w.accept, diff)
		}
	}
}

// catchUp has the caches of the peer see all that was written.
func (p *peer) catchUp(t testing.TB) {
	now := p.must(t, http.StatusOK, "GET", kinds[0].path("v1", "")+"?limit=1", nil)
	for _, k := range kinds {
		p.must(t, http.StatusOK, "GET", fmt.Sprintf("%s?resourceVersion=%s&resourceVersionMatch=NotOlderThan", k.path("v1", ""), field(now.body, "metadata", "resourceVersion")), nil)
	}
}

func (p *peer) send(t testing.TB, q *request) *answer {
	t.Helper()
	a := p.do(t, q.method, q.path(p), q.header, q.body(p))
	p.seen(a.body)
	return a
}

func (q *request) describe(p *peer) string {
	out := q.method + " " + q.path(p)
	for name, values := range q.header {
		out += "\n" + name + ": " + strings.Join(values, ", ")
	}
	if body := q.body(p); len(body) > 0 {
		out += "\n" + string(body)
	}
	return out
}

// compared is what of an answer is compared.
type compared struct {
	Code     int
	Form     string
	Warnings []string
	Body     any
}

func (p *peer) compared(a *answer) compared {
	c := compared{Code: a.code, Form: a.form, Body: p.normal(a.body)}
	for _, w := range a.warnings {
		c.Warnings = append(c.Warnings, p.text(w))
	}
	return c
}

// excused returns what of the answers is compared, without the intended differences.
func excused(judge, judged *peer, q *request, upstreams, steles *answer) (want, got compared) {
	want, got = judge.compared(upstreams), judged.compared(steles)
	for i := range intended {
		intended[i].excuse(q, &want, &got)
	}
	return want, got
}

// difference tells how the answers differ where they should not.
func difference(judge, judged *peer, q *request, upstreams, steles *answer) string {
	want, got := excused(judge, judged, q, upstreams, steles)
	if cmp.Equal(want, got) {
		return ""
	}
	return leaves(flat(want), flat(got))
}

// flat is a value as JSON would have it, with the way to each of its leaves.
func flat(c compared) map[string]string {
	out := map[string]string{"code": fmt.Sprint(c.Code), "form": c.Form, "warnings": fmt.Sprintf("%q", c.Warnings)}
	var walk func(at string, v any)
	walk = func(at string, v any) {
		switch v := v.(type) {
		case map[string]any:
			out[at] = "{"
			for name, e := range v {
				walk(at+"."+name, e)
			}
		case []any:
			out[at] = "["
			for i, e := range v {
				walk(fmt.Sprintf("%s[%d]", at, i), e)
			}
		default:
			out[at] = fmt.Sprintf("%T %v", v, v)
		}
	}
	walk("body", c.Body)
	return out
}

// onlyTimes reports whether upstream wrote what stele answered without a write: an update that brings parts which it cannot
// write, such as one of the status with another spec. Upstream then writes the times of managedFields, and nothing else.
func onlyTimes(judge, judged *peer, q *request, upstreams, steles *answer) bool {
	if q.method != http.MethodPut && q.method != http.MethodPatch || upstreams.code != http.StatusOK || steles.code != http.StatusOK {
		return false
	}
	want, got := excused(judge, judged, q, upstreams, steles)
	a, _ := field(want.Body, "metadata").(map[string]any)
	b, _ := field(got.Body, "metadata").(map[string]any)
	if a == nil || b == nil || a["resourceVersion"] == b["resourceVersion"] {
		return false
	}
	b["resourceVersion"] = a["resourceVersion"]
	return cmp.Equal(want, got)
}

// kindMended reports whether upstream wrote an object of a wrong kind, which its mutations set, and which stele refused.
func kindMended(upstreams, steles *answer) bool {
	causes, _ := field(steles.body, "details", "causes").([]any)
	return upstreams.code < 300 && len(causes) > 0 && field(causes[0], "field") == "kind"
}

// leaves lists where two values differ.
func leaves(upstreams, steles map[string]string) string {
	var out strings.Builder
	all := maps.Clone(upstreams)
	maps.Copy(all, steles)
	for _, at := range slices.Sorted(maps.Keys(all)) {
		a, inA := upstreams[at]
		b, inB := steles[at]
		if a == b && inA == inB {
			continue
		}
		for _, side := range []struct {
			sign, value string
			in          bool
		}{{"-", a, inA}, {"+", b, inB}} {
			if side.in {
				fmt.Fprintf(&out, "%s %s: %s\n", side.sign, at, side.value)
			}
		}
	}
	return out.String()
}

// more tells that a list goes on.
func more(a *answer) bool {
	token, _ := field(a.body, "metadata", "continue").(string)
	return token != ""
}
