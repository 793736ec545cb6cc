package read_test

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"stele.dev/stele/core/run/plane/planetest"
	"stele.dev/stele/eventlog/memlog"
)

// times is a plane at which resourceVersions of all kinds can be asked for: expired is of
// what has been dropped, past of what is still known, now is current. In the past there
// were w00 to w04; now w01 is gone.
type times struct {
	*planetest.Replica
	expired, past, now      uint64
	expiredToken, pastToken string // to go on behind two objects
}

func newTimes(t testing.TB) *times {
	t.Helper()
	var store memlog.Store
	p := &times{Replica: planetest.StartReplica(t, store.Open(nil), 4<<10)}
	p.Bootstrap(t, planetest.Bundle)
	planetest.Fill(t, p.Replica, 5)
	at := func() (uint64, string) {
		page := p.Must(t, 200, "GET", planetest.WidgetsPath+"?limit=2", "")
		return planetest.Revision(t, page), page.Field("metadata", "continue").(string)
	}
	p.expired, p.expiredToken = at()
	for i := range 50 {
		p.Patch("w00", "merge", fmt.Sprintf(`{"spec":{"size":%d}}`, 100+i))
	}
	p.past, p.pastToken = at()
	p.Must(t, 200, "DELETE", planetest.WidgetsPath+"/w01", "")
	p.now, _ = at()
	return p
}

// summary is the names of a list, its revision, and what remains.
func (p *times) summary(a planetest.Answer) string {
	if a.Code != 200 {
		return fmt.Sprint(a.Code)
	}
	at := map[string]string{fmt.Sprint(p.expired): "expired", fmt.Sprint(p.past): "past", fmt.Sprint(p.now): "now"}[fmt.Sprint(a.Field("metadata", "resourceVersion"))]
	text := at + ":"
	for _, name := range a.Names() {
		text += " " + name
	}
	if a.Field("metadata", "continue") != nil {
		text += fmt.Sprintf(" +%v", a.Field("metadata", "remainingItemCount"))
	}
	return text
}

// The table of Kubernetes' API concepts, "Semantics for get and list", and what
// kube-apiserver does where that is silent.
func TestListsByResourceVersion(t *testing.T) {
	p := newTimes(t)
	versions := []string{"", "0", fmt.Sprint(p.past), fmt.Sprint(p.now + 1), fmt.Sprint(p.expired), "x", "-1", "99999999999999999999"}
	const (
		now, nowPage                   = "now: w00 w02 w03 w04", "now: w00 w02 +2"
		past, pastPage, pastMore, rest = "past: w00 w01 w02 w03 w04", "past: w00 w01 +3", "past: w02 w03 +1", "past: w02 w03 w04"
		dropped, droppedPage           = "expired: w00 w01 w02 w03 w04", "expired: w00 w01 +3" // from history
	)
	for _, row := range []struct {
		match, paging                                                  string
		unset, any, past, future, expired, garbage, negative, toolarge string
	}{
		{"", "", now, now, now, "504", now, "400", "400", "400"},
		{"", "limit=2", nowPage, now, pastPage, "504", droppedPage, "400", "400", "400"},
		{"", "limit=-1", now, now, now, "504", now, "400", "400", "400"},
		{"", "limit=2&continue=" + p.pastToken, pastMore, rest, "400", "400", "400", "400", "400", "400"},
		{"", "continue=" + p.pastToken, rest, rest, "400", "400", "400", "400", "400", "400"},
		{"Exact", "", "422", "422", past, "504", dropped, "400", "400", "400"},
		{"Exact", "limit=2", "422", "422", pastPage, "504", droppedPage, "400", "400", "400"},
		{"Exact", "limit=2&continue=" + p.pastToken, "422", "422", "422", "422", "422", "422", "422", "422"},
		{"NotOlderThan", "", "422", now, now, "504", now, "400", "400", "400"},
		{"NotOlderThan", "limit=2", "422", now, nowPage, "504", nowPage, "400", "400", "400"},
		{"NotOlderThan", "limit=2&continue=" + p.pastToken, "422", "422", "422", "422", "422", "422", "422", "422"},
		{"Close", "", "422", "422", "422", "422", "422", "422", "422", "422"},
		{"Close", "limit=2", "422", "422", "422", "422", "422", "422", "422", "422"},
	} {
		for i, want := range []string{row.unset, row.any, row.past, row.future, row.expired, row.garbage, row.negative, row.toolarge} {
			query := row.paging
			for name, value := range map[string]string{"resourceVersion": versions[i], "resourceVersionMatch": row.match} {
				if value != "" {
					query += "&" + name + "=" + value
				}
			}
			if got := p.summary(p.Do("GET", planetest.WidgetsPath+"?"+query, "")); got != want {
				t.Errorf("%s: %s, want %s", query, got, want)
			}
		}
	}
}

// Of a single object the resourceVersion is only how old the answer may be.
func TestGetsByResourceVersion(t *testing.T) {
	p := newTimes(t)
	for _, tc := range []struct {
		name, version string
		code          int
	}{
		{"w00", "0", 200}, {"w00", fmt.Sprint(p.expired), 200}, {"w00", fmt.Sprint(p.past), 200}, {"w00", fmt.Sprint(p.now), 200},
		{"w01", "0", 404}, {"w01", fmt.Sprint(p.past), 404},
		{"w00", fmt.Sprint(p.now + 1), 504}, {"w01", fmt.Sprint(p.now + 1), 504},
		{"w00", "x", 400}, {"w00", "-1", 400}, {"w01", "99999999999999999999", 400},
	} {
		p.Must(t, tc.code, "GET", planetest.WidgetsPath+"/"+tc.name+"?resourceVersion="+tc.version, "")
	}
	a := p.Must(t, 400, "GET", planetest.WidgetsPath+"/w00?export=true", "")
	if a.Field("message") != "the export parameter, deprecated since v1.14, is no longer supported" {
		t.Errorf("%s", a)
	}
	p.Must(t, 200, "GET", planetest.WidgetsPath+"/w00?export=false", "")
}

func TestContinueTokens(t *testing.T) {
	p := newTimes(t)
	p.Must(t, 201, "POST", "/apis/example.com/v1/namespaces/kube-system/widgets", planetest.Widget("elsewhere", 1))
	p.now++
	all := p.Must(t, 200, "GET", "/apis/example.com/v1/widgets?limit=3", "").Field("metadata", "continue").(string)
	plains := fmt.Sprintf(`{"v":"meta.k8s.io/v1","rv":%d,"start":"w02\u0000"}`, p.now)
	for name, tc := range map[string]struct{ path, token, want string }{
		"across namespaces":            {"/apis/example.com/v1/widgets", all, "now: w04 elsewhere"},
		"of another kind":              {planetest.WidgetsPath, planetest.Token(plains), "now: w03 w04"},
		"of another namespace":         {"/apis/example.com/v1/namespaces/kube-system/widgets", planetest.Token(plains), "now:"},
		"of a list in a namespace":     {"/apis/example.com/v1/widgets", planetest.Token(fmt.Sprintf(`{"v":"meta.k8s.io/v1","rv":%d,"start":"e\u0000"}`, p.now)), "now: elsewhere"},
		"behind all":                   {planetest.WidgetsPath, planetest.Token(fmt.Sprintf(`{"v":"meta.k8s.io/v1","rv":%d,"start":"zz"}`, p.now)), "now:"},
		"at whatever is current":       {planetest.WidgetsPath, planetest.Token(`{"v":"meta.k8s.io/v1","rv":-1,"start":"w02\u0000"}`), "now: w03 w04"},
		"at any negative revision":     {planetest.WidgetsPath, planetest.Token(`{"v":"meta.k8s.io/v1","rv":-9223372036854775808,"start":"w02\u0000"}`), "now: w03 w04"},
		"of what left memory":          {planetest.WidgetsPath, p.expiredToken, "expired: w02 w03 w04"},
		"of the future":                {planetest.WidgetsPath, planetest.Token(fmt.Sprintf(`{"v":"meta.k8s.io/v1","rv":%d,"start":"a"}`, p.now+1)), "504"},
		"of the far future":            {planetest.WidgetsPath, planetest.Token(`{"v":"meta.k8s.io/v1","rv":9223372036854775807,"start":"a"}`), "504"},
		"without a revision":           {planetest.WidgetsPath, planetest.Token(`{"v":"meta.k8s.io/v1","start":"a"}`), "400"},
		"with a revision that is none": {planetest.WidgetsPath, planetest.Token(`{"v":"meta.k8s.io/v1","rv":1e99,"start":"a"}`), "400"},
		"without a key":                {planetest.WidgetsPath, planetest.Token(`{"v":"meta.k8s.io/v1","rv":5}`), "400"},
		"out of its place":             {planetest.WidgetsPath, planetest.Token(`{"v":"meta.k8s.io/v1","rv":5,"start":"../secrets/a"}`), "400"},
		"of another version":           {planetest.WidgetsPath, planetest.Token(`{"v":"meta.k8s.io/v2","rv":5,"start":"a"}`), "400"},
		"that is no JSON":              {planetest.WidgetsPath, planetest.Token(`a`), "400"},
		"that is no base64":            {planetest.WidgetsPath, "!", "400"},
	} {
		t.Run(name, func(t *testing.T) {
			a := p.Do("GET", tc.path+"?continue="+url.QueryEscape(tc.token), "")
			if got := p.summary(a); got != tc.want {
				t.Errorf("%s, want %s\n%s", got, tc.want, a)
			}
			if tc.want == "400" && !strings.HasPrefix(fmt.Sprint(a.Field("message")), "invalid continue token: continue key is not valid") {
				t.Errorf("%s", a)
			}
		})
	}
	// The page of a token that goes on regardless is one of the present, and so is the next.
	page := p.Must(t, 200, "GET", planetest.WidgetsPath+"?limit=1&continue="+planetest.Token(`{"v":"meta.k8s.io/v1","rv":-1,"start":"w02\u0000"}`), "")
	if got := p.summary(page); got != "now: w03 +1" {
		t.Errorf("%s", got)
	}
	p.Must(t, 200, "DELETE", planetest.WidgetsPath+"/w04", "")
	if got := p.summary(p.Do("GET", planetest.WidgetsPath+"?limit=1&continue="+page.Field("metadata", "continue").(string), "")); got != "now: w04" {
		t.Errorf("then %s", got)
	}
}

// What remains is only told of lists that select nothing, as upstream counts without looking.
func TestRemainingItemCount(t *testing.T) {
	p := planetest.NewPlane(t)
	planetest.Fill(t, p, 5)
	for query, want := range map[string]any{
		"": 4.0, "labelSelector=": 4.0, "fieldSelector=": 4.0,
		"labelSelector=mod=1": nil, "labelSelector=mod": nil, "fieldSelector=spec.color!%3Dred": nil, "fieldSelector=metadata.namespace%3Ddefault": nil,
	} {
		a := p.Must(t, 200, "GET", planetest.WidgetsPath+"?limit=1&"+query, "")
		if a.Field("metadata", "continue") == nil || a.Field("metadata", "remainingItemCount") != want {
			t.Errorf("%s: %v, want %v", query, a.Field("metadata"), want)
		}
	}
}

func TestWhatListsSay(t *testing.T) {
	p := planetest.NewPlane(t)
	a := p.Must(t, 200, "GET", planetest.WidgetsPath, "")
	want := fmt.Sprintf(`{"kind":"WidgetList","apiVersion":"example.com/v1","metadata":{"resourceVersion":"%d"},"items":[]}`, p.Committer.Tip().Revision())
	if got := strings.TrimSpace(string(a.Body)); got != want {
		t.Errorf("an empty list is\n%s, want\n%s", got, want)
	}
	created := p.Must(t, 201, "POST", "/api/v1/namespaces/default/configmaps", `{"metadata":{"name":"a"}}`)
	list := p.Must(t, 200, "GET", "/api/v1/configmaps?fieldSelector=metadata.name%3Da", "")
	if list.Field("kind") != "ConfigMapList" || strings.Contains(string(list.Body), "selfLink") {
		t.Errorf("%s", list)
	}
	// Items of built-in kinds do not repeat what the list says, those of others do.
	item := created.Object()
	delete(item, "kind")
	delete(item, "apiVersion")
	if diff := cmp.Diff([]any{item}, list.Field("items")); diff != "" {
		t.Errorf("(-created +listed):\n%s", diff)
	}
	own := p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("a", 1))
	if diff := cmp.Diff([]any{own.Object()}, p.Must(t, 200, "GET", planetest.WidgetsPath, "").Field("items")); diff != "" {
		t.Errorf("(-created +listed):\n%s", diff)
	}
}

// Each refusal to the letter, but for numbers.
func TestRefusalsByResourceVersion(t *testing.T) {
	p := newTimes(t)
	future := fmt.Sprint(p.now + 1)
	tooLarge := map[string]any{
		"kind": "Status", "apiVersion": "v1", "metadata": map[string]any{}, "status": "Failure", "code": 504.0, "reason": "Timeout",
		"message": fmt.Sprintf("Timeout: Too large resource version: %s, current: %d", future, p.now),
		"details": map[string]any{"retryAfterSeconds": 1.0, "causes": []any{map[string]any{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}}},
	}
	for query, want := range map[string]map[string]any{
		"?resourceVersion=" + future:                            tooLarge,
		"?resourceVersionMatch=Exact&resourceVersion=" + future: tooLarge,
		"/w00?resourceVersion=" + future:                        tooLarge,
		"?watch=1&resourceVersion=" + future:                    tooLarge,
		"?watch=1&sendInitialEvents=false&resourceVersionMatch=NotOlderThan&resourceVersion=" + future: tooLarge,
	} {
		a := p.Do("GET", planetest.WidgetsPath+query, "")
		if diff := cmp.Diff(want, a.Object()); diff != "" || float64(a.Code) != want["code"] {
			t.Errorf("%s: %d (-want +got):\n%s", query, a.Code, diff)
		}
		if retry := a.Header.Get("Retry-After"); (a.Code == 504) != (retry == "1") {
			t.Errorf("%s: Retry-After %q", query, retry)
		}
	}
	for query, want := range map[string]string{
		"?continue=" + p.pastToken + "&resourceVersion=5":                              "specifying resource version is not allowed when using continue",
		"?resourceVersion=x":                                                           `invalid resource version: resourceVersion: Invalid value: "x": strconv.ParseUint: parsing "x": invalid syntax`,
		"?watch=1&resourceVersion=x":                                                   `invalid resource version: resourceVersion: Invalid value: "x": strconv.ParseUint: parsing "x": invalid syntax`,
		"?resourceVersionMatch=Exact":                                                  `ListOptions.meta.k8s.io "" is invalid: resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided`,
		"?resourceVersionMatch=Exact&resourceVersion=0":                                `ListOptions.meta.k8s.io "" is invalid: resourceVersionMatch: Forbidden: resourceVersionMatch "exact" is forbidden for resourceVersion "0"`,
		"?resourceVersionMatch=Close&resourceVersion=1":                                `ListOptions.meta.k8s.io "" is invalid: resourceVersionMatch: Unsupported value: "Close": supported values: "Exact", "NotOlderThan", ""`,
		"?sendInitialEvents=true":                                                      `ListOptions.meta.k8s.io "" is invalid: sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list`,
		"?watch=1&sendInitialEvents=true":                                              `ListOptions.meta.k8s.io "" is invalid: resourceVersionMatch: Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan`,
		"?watch=1&resourceVersionMatch=NotOlderThan&resourceVersion=1":                 `ListOptions.meta.k8s.io "" is invalid: resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided`,
		"?watch=1&sendInitialEvents=true&resourceVersionMatch=Exact&resourceVersion=1": `ListOptions.meta.k8s.io "" is invalid: [resourceVersionMatch: Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan, resourceVersionMatch: Unsupported value: "Exact": supported values: "NotOlderThan"]`,
		"?labelSelector=a%3D%3D%3Db":                                                   "unable to parse requirement: found '=', expected: identifier",
		"?labelSelector=a+in+()b":                                                      "found 'b', expected: ',' or 'end of string'",
		"?labelSelector=a+gt+1":                                                        "unable to parse requirement: found 'gt', expected: in, notin, =, ==, !=, gt, lt",
		"?fieldSelector=a":                                                             "invalid selector: 'a'; can't understand 'a'",
		"?fieldSelector=spec.size%3D1":                                                 "field label not supported: spec.size",
		"?limit=x":                                                                     `strconv.ParseInt: parsing "x": invalid syntax`,
		"?timeoutSeconds=x":                                                            `strconv.ParseInt: parsing "x": invalid syntax`,
	} {
		if a := p.Do("GET", planetest.WidgetsPath+query, ""); a.Field("message") != want {
			t.Errorf("%s: %s, want %s", query, a, want)
		}
	}
	for path, want := range map[string]string{
		"/api/v1/configmaps?fieldSelector=data.a%3D1":            `"data.a" is not a known field selector: only "metadata.name", "metadata.namespace"`,
		"/api/v1/secrets?fieldSelector=data.a%3D1":               "field label not supported: data.a",
		"/api/v1/namespaces?fieldSelector=metadata.namespace%3D": "field label not supported: metadata.namespace",
	} {
		if a := p.Must(t, 400, "GET", path, ""); a.Field("message") != want {
			t.Errorf("%s: %s, want %s", path, a, want)
		}
	}
}

// A replica that starts from the log goes on with the lists of the one before.
func TestPagesGoOnAfterARestart(t *testing.T) {
	var store memlog.Store
	p := planetest.StartReplica(t, store.Open(nil), 0)
	p.Bootstrap(t, planetest.Bundle)
	planetest.Fill(t, p, 4)
	whole := p.Must(t, 200, "GET", planetest.WidgetsPath, "")
	page := p.Must(t, 200, "GET", planetest.WidgetsPath+"?limit=2", "")
	p.Must(t, 200, "DELETE", planetest.WidgetsPath+"/w02", "")
	p.Close()
	p = planetest.StartReplica(t, store.Open(nil), 0)
	rest := p.Must(t, 200, "GET", planetest.WidgetsPath+"?continue="+page.Field("metadata", "continue").(string), "")
	if diff := cmp.Diff(whole.Field("items").([]any)[2:], rest.Field("items")); diff != "" {
		t.Errorf("(-before +after):\n%s", diff)
	}
	exact := p.Must(t, 200, "GET", fmt.Sprintf("%s?resourceVersionMatch=Exact&resourceVersion=%d", planetest.WidgetsPath, planetest.Revision(t, whole)), "")
	if string(exact.Body) != string(whole.Body) {
		t.Errorf("then\n%s\nnow\n%s", whole.Body, exact.Body)
	}
}

// Whatever lists begin and are not read to their end: their revisions are answered as long
// as the changes since are in memory, and from history after that.
func TestManyPagedListsAreContinued(t *testing.T) {
	var store memlog.Store
	p := planetest.StartReplica(t, store.Open(nil), 256<<10)
	p.Bootstrap(t, planetest.Bundle)
	planetest.Fill(t, p, 4)
	var tokens []string
	for i := range 200 { // more than states are pinned
		tokens = append(tokens, p.Must(t, 200, "GET", planetest.WidgetsPath+"?limit=1", "").Field("metadata", "continue").(string))
		p.Patch("w03", "merge", fmt.Sprintf(`{"spec":{"size":%d}}`, 10+i))
	}
	check := func() {
		t.Helper()
		for i, next := range tokens {
			a := p.Must(t, 200, "GET", planetest.WidgetsPath+"?continue="+next, "")
			want := 4 // as it was then
			if i > 0 {
				want = 9 + i
			}
			if got := a.Field("items").([]any)[2].(map[string]any)["spec"].(map[string]any)["size"]; got != float64(want) {
				t.Fatalf("list %d goes on with a w03 of size %v, want %d", i, got, want)
			}
		}
	}
	check()
	for i := range 1000 {
		p.Patch("w03", "merge", fmt.Sprintf(`{"spec":{"size":%d}}`, 1+i%900))
	}
	check()
}
