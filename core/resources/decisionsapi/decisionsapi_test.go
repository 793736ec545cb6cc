package decisionsapi_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/version"
	"stele.dev/stele/core"
	"stele.dev/stele/core/resources/decisionsapi"
	"stele.dev/stele/core/run/plane/planetest"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/logpb"
	"stele.dev/stele/eventlog/memlog"
)

const bundle = `
package test
import "stele.dev/policy"

bundle: policy.#Bundle & {
	cluster: "test"
	teams: t: {
		contact: "#t", groups: ["*"], namespaces: ["*"]
		rbac: {
			clusterRoles: auditor: rules: r: {apiGroups: ["log.stele.dev"], resources: ["decisions"], verbs: ["get", "list", "watch"]}
			clusterRoles: reader: rules: r: {apiGroups: [""], resources: ["configmaps"], verbs: ["get"]}
			bindings: auditors: {clusterRole: "auditor", subjects: [{user: "reader"}, {user: "eddie"}], namespaces: ["*"]}
			bindings: readers: {clusterRole: "reader", subjects: [{user: "eddie"}], namespaces: ["*"]}
			bindings: helper: {clusterRole: "auditor", subjects: [{user: "helper"}], namespaces: ["a"]}
		}
	}
}
`

// site is a plane, and a pipeline with a decision log in memory.
type site struct {
	*planetest.Plane
	pipeline *core.Pipeline
	log      *eventlog.Log
	tip      eventlog.Head
}

// forgetful is a log that does not keep what is before a batch.
type forgetful struct {
	*eventlog.Log
	oldest *eventlog.Head
}

func (f forgetful) Back(ctx context.Context, from uint64, max int) ([]*eventlog.Batch, error) {
	if f.oldest == nil {
		return f.Log.Back(ctx, from, max)
	}
	if from <= f.oldest.Revision {
		return nil, &eventlog.ForgottenError{Oldest: *f.oldest}
	}
	batches, err := f.Log.Back(ctx, from, max)
	return slices.DeleteFunc(batches, func(b *eventlog.Batch) bool { return b.First <= f.oldest.Revision }), err
}

func start(t testing.TB, with func(*core.Options, *site)) *site {
	t.Helper()
	p := planetest.Start(t, planetest.Options{Bundle: bundle})
	log, err := eventlog.Open(t.Context(), new(memlog.Store).Open(nil), eventlog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s := &site{Plane: p, log: log}
	if s.tip, err = log.ReadHead(t.Context()); err != nil {
		t.Fatal(err)
	}
	o := core.Options{
		Committer: p.Committer, Log: p.Log, History: p.History, Authenticator: p.Authenticator, Version: version.Info{Major: "1", Minor: "37"},
		DecisionLog: decisionsapi.Source{Log: log},
	}
	if with != nil {
		with(&o, s)
	}
	s.pipeline = core.New(o)
	return s
}

type answer struct {
	code     int
	warnings []string
	body     []byte
	list     struct {
		Metadata struct{ ResourceVersion, Continue string }
		Items    []decisionsapi.Decision
	}
}

func (a *answer) names() (names []string) {
	for _, x := range a.list.Items {
		names = append(names, x.Name)
	}
	return names
}

const path = "/apis/log.stele.dev/v1/decisions"

func (s *site) do(t testing.TB, user, method, path, body string) *answer {
	t.Helper()
	q := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
	q.Header.Set("Authorization", "Bearer "+user+"-token")
	q.Header.Set("Content-Type", "application/json")
	q.Header.Set("Audit-Id", "write-of-"+user)
	w := httptest.NewRecorder()
	s.pipeline.ServeHTTP(w, q)
	a := &answer{code: w.Code, warnings: w.Header().Values("Warning"), body: w.Body.Bytes()}
	if a.code == http.StatusOK {
		if err := json.Unmarshal(a.body, &a.list); err != nil {
			t.Fatalf("%s %s: %v: %s", method, path, err, a.body)
		}
	}
	return a
}

func (s *site) get(t testing.TB, user, query string) *answer {
	t.Helper()
	a := s.do(t, user, http.MethodGet, path+query, "")
	if a.code != http.StatusOK {
		t.Fatalf("GET %s: %d: %s", query, a.code, a.body)
	}
	return a
}

// write creates a ConfigMap, and returns the audit ID of the request.
func (s *site) write(t testing.TB, namespace, name string) string {
	t.Helper()
	id := "created-" + name
	q := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/api/v1/namespaces/"+namespace+"/configmaps", strings.NewReader(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"`+name+`"}}`))
	q.Header.Set("Authorization", "Bearer admin-token")
	q.Header.Set("Content-Type", "application/json")
	q.Header.Set("Audit-Id", id)
	w := httptest.NewRecorder()
	if s.pipeline.ServeHTTP(w, q); w.Code != http.StatusCreated {
		t.Fatalf("%d: %s", w.Code, w.Body)
	}
	return id
}

func (s *site) append(t testing.TB, events ...*eventlog.Event) {
	t.Helper()
	var entries []*eventlog.Entry
	for _, e := range events {
		entry, err := eventlog.Encode(e)
		if err != nil {
			t.Fatal(err)
		}
		entries = append(entries, entry)
	}
	won, _, err := s.log.Append(t.Context(), s.tip, eventlog.NewDraft(entries))
	if err != nil {
		t.Fatal(err)
	}
	s.tip = won.Head()
}

// refusal is a refused create of a ConfigMap, whose message quotes the object.
func refusal(id, user, namespace string, change ...func(*logpb.Metadata)) *eventlog.Event {
	m := &logpb.Metadata{
		Type: logpb.Type_TYPE_DECISION, Actor: &logpb.Actor{User: user, Groups: []string{"devs"}},
		Object:  &logpb.Object{Resource: "configmaps", Version: "v1", Kind: "ConfigMap", Namespace: namespace, Name: "c"},
		Request: &logpb.Request{Verb: "create", AuditId: id, Uri: "/api/v1/namespaces/" + namespace + "/configmaps", Status: 422, UserAgent: "ci/1.0 (linux)"},
		Detail: &logpb.Metadata_Decision{Decision: &logpb.Decision{Outcome: logpb.Outcome_OUTCOME_REFUSED, Stage: "validation", Reason: "Invalid",
			Message: "the value topsecret is refused", Rule: "no-secrets", Source: "rules.cue:7", Revision: 3}},
	}
	for _, f := range change {
		f(m)
	}
	e := &eventlog.Event{Meta: m}
	if m.GetType() == logpb.Type_TYPE_DECISION && m.GetRequest().GetVerb() == "create" {
		e.AddContent(&logpb.Payload{Role: logpb.Role_ROLE_REQUEST}, []byte(`{"data":{"k":"topsecret"}}`))
	}
	return e
}

func isRead(m *logpb.Metadata) {
	m.Request.Verb, m.Request.Status = "get", 200
	m.GetDecision().Outcome, m.GetDecision().Stage, m.GetDecision().Message = logpb.Outcome_OUTCOME_READ, "answer", ""
}

// The writes of the log and the decision log are one list, newest first, however it is paged.
func TestAListMergesBothLogs(t *testing.T) {
	s := start(t, nil)
	var want []string
	for i := range 6 {
		want = append(want, s.write(t, "default", fmt.Sprint("w", i)))
		for j := range i % 3 {
			id := fmt.Sprintf("refused-%d-%d", i, j)
			s.append(t, refusal(id, "ana", "default"))
			want = append(want, id)
		}
	}
	slices.Reverse(want)
	all := s.get(t, "admin", "?fieldSelector=object.resource%3Dconfigmaps")
	if got := all.names(); !slices.Equal(got, want) {
		t.Fatalf("got %v\nwant %v", got, want)
	}
	for limit := 1; limit < 5; limit++ {
		before := want
		var got []string
		next, version := "", ""
		for {
			page := s.get(t, "admin", fmt.Sprintf("?fieldSelector=object.resource%%3Dconfigmaps&limit=%d&continue=%s", limit, next))
			if len(page.list.Items) > limit {
				t.Fatalf("a page of %d", len(page.list.Items))
			}
			if version == "" {
				version = page.list.Metadata.ResourceVersion
			}
			if got = append(got, page.names()...); page.list.Metadata.ResourceVersion != version {
				t.Errorf("the resource version is %s, of the first page %s", page.list.Metadata.ResourceVersion, version)
			}
			if next = page.list.Metadata.Continue; next == "" {
				break
			}
			s.append(t, refusal(fmt.Sprint("later-", limit), "ana", "default")) // later pages do not have it
		}
		want = s.get(t, "admin", "?fieldSelector=object.resource%3Dconfigmaps").names() // and the next loop does
		if !slices.Equal(got, before) {
			t.Errorf("in pages of %d: %v\nwant %v", limit, got, before)
		}
	}
}

func TestSelectors(t *testing.T) {
	s := start(t, nil)
	s.write(t, "default", "w")
	s.append(t, refusal("r1", "ana", "default"), refusal("r2", "ben", "a"), refusal("read", "ana", "a", isRead))
	s.append(t, refusal("forbidden", "ben", "default", func(m *logpb.Metadata) {
		m.Request.Status, m.GetDecision().Stage, m.GetDecision().Rule, m.Actor.Groups = 403, "authorization", "no-writes", []string{"ops", "devs"}
	}))
	for selector, want := range map[string]string{
		"actor.user=ana":                                        "read r1",
		"actor.user=ana,outcome=Refused":                        "r1",
		"actor.group=ops":                                       "forbidden",
		"actor.group=devs,actor.group!=ops":                     "read r2 r1",
		"request.verb=get":                                      "read",
		"request.verb!=get,object.name=c":                       "forbidden r2 r1",
		"outcome=Written,object.name=w":                         "created-w",
		"type=Write,object.name=w":                              "created-w",
		"stage=authorization":                                   "forbidden",
		"code=403":                                              "forbidden",
		"rule=no-secrets,object.namespace=a":                    "read r2",
		"request.auditID=r2":                                    "r2",
		"metadata.name=created-w":                               "created-w",
		"object.namespace=a,outcome!=Read":                      "r2",
		"object.group=,object.resource=configmaps":              "forbidden read r2 r1 created-w",
		"request.userAgent=ci*,actor.user=ben":                  "forbidden r2",
		"object.resource=configmaps,since=2999-01-01T00:00:00Z": "",
		"object.resource=configmaps,until=2001-01-01T00:00:00Z": "",
	} {
		a := s.do(t, "admin", http.MethodGet, path+"?fieldSelector="+strings.NewReplacer("=", "%3D", ",", "%2C", "!", "%21", "*", "%2A").Replace(selector), "")
		if got := strings.Join(a.names(), " "); got != want || a.code != http.StatusOK {
			t.Errorf("%s: %d, %q, want %q", selector, a.code, got, want)
		}
	}
	for selector, want := range map[string]string{
		"user=ana":        "field label not supported: user",
		"outcome=refused": `outcome is one of Written, Read, Refused`,
		"since!=3":        "since takes =",
		"until=soon":      `"soon" is not a moment`,
	} {
		if a := s.do(t, "admin", http.MethodGet, path+"?fieldSelector="+strings.NewReplacer("=", "%3D", "!", "%21").Replace(selector), ""); a.code != http.StatusBadRequest || !strings.Contains(string(a.body), strings.ReplaceAll(want, `"`, `\"`)) {
			t.Errorf("%s: %d %s, want %q", selector, a.code, a.body, want)
		}
	}
}

// The permission on decisions shows who was refused what; contents need permission to read the object.
func TestContentsNeedPermissionToReadTheObject(t *testing.T) {
	s := start(t, nil)
	s.append(t, refusal("in-default", "ana", "default"), refusal("in-a", "ana", "a"))
	for user, sees := range map[string]bool{"admin": true, "editor": true, "reader": false} {
		for _, q := range []string{"?fieldSelector=actor.user%3Dana&bodies=true", "/in-a"} {
			a := s.get(t, user, q)
			text := string(a.body)
			if strings.Contains(text, "topsecret") != sees || sees != strings.Contains(text, `"requestBody"`) || !strings.Contains(text, `"rule":"no-secrets"`) {
				t.Errorf("%s gets of %s: %s", user, q, text)
			}
		}
		if text := string(s.get(t, user, "?fieldSelector=actor.user%3Dana").body); strings.Contains(text, `"requestBody"`) {
			t.Errorf("%s gets bodies without asking for them: %s", user, text)
		}
	}
	if a := s.do(t, "nobody", http.MethodGet, path, ""); a.code != http.StatusForbidden {
		t.Errorf("nobody gets %d", a.code)
	}
	if a := s.do(t, "helper", http.MethodGet, path, ""); a.code != http.StatusForbidden {
		t.Errorf("a reader of one namespace gets of all: %d", a.code)
	}
	inA := strings.Replace(path, "decisions", "namespaces/a/decisions", 1)
	if a := s.do(t, "helper", http.MethodGet, inA, ""); a.code != http.StatusOK || !slices.Equal(a.names(), []string{"in-a"}) {
		t.Errorf("in the namespace: %d %v", a.code, a.names())
	}
	if a := s.do(t, "helper", http.MethodGet, inA+"/in-default", ""); a.code != http.StatusNotFound {
		t.Errorf("a decision of another namespace: %d", a.code)
	}
}

// A namespace is in itself, as in the attributes of a request: what was done to it is found where it is.
func TestWritesOfANamespaceAreInIt(t *testing.T) {
	s := start(t, nil)
	for _, name := range []string{"a", "b"} {
		q := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/api/v1/namespaces", strings.NewReader(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"`+name+`"}}`))
		q.Header.Set("Authorization", "Bearer admin-token")
		q.Header.Set("Content-Type", "application/json")
		q.Header.Set("Audit-Id", "namespace-"+name)
		w := httptest.NewRecorder()
		if s.pipeline.ServeHTTP(w, q); w.Code != http.StatusCreated {
			t.Fatalf("%d: %s", w.Code, w.Body)
		}
		s.write(t, name, "c-"+name)
	}
	inA := strings.Replace(path, "decisions", "namespaces/a/decisions", 1)
	for query, want := range map[string]string{
		inA: "created-c-a namespace-a",
		inA + "?fieldSelector=object.resource%3Dnamespaces,object.group%3D":                         "namespace-a",
		inA + "?fieldSelector=object.resource%3Dnamespaces,object.group%3D,object.name%3Db":         "",
		path + "?fieldSelector=object.namespace%3Da":                                                "created-c-a namespace-a",
		path + "?fieldSelector=object.resource%3Dnamespaces,object.group%3D,object.name%3Da":        "namespace-a",
		path + "?fieldSelector=object.resource%3Dconfigmaps,object.group%3D,metadata.namespace%3Db": "created-c-b",
	} {
		a := s.do(t, "admin", http.MethodGet, query, "")
		if got := strings.Join(a.names(), " "); a.code != http.StatusOK || got != want {
			t.Errorf("%s: %d, %q, want %q", query, a.code, got, want)
		}
	}
	if a := s.do(t, "helper", http.MethodGet, inA+"/namespace-a", ""); a.code != http.StatusOK {
		t.Errorf("the creation of the namespace, by a reader of its decisions: %d", a.code)
	}
}

func TestThePastHasTheDecisionsUpToItsMoment(t *testing.T) {
	s := start(t, nil)
	s.append(t, refusal("first", "ana", "default"))
	s.write(t, "default", "w")
	then := s.Committer.Tip().Revision()
	s.append(t, refusal("second", "ana", "default"))
	last := s.write(t, "default", "x")
	for _, q := range []struct{ path, want string }{
		{fmt.Sprintf("/at/%d%s?fieldSelector=object.resource%%3Dconfigmaps", then, path), "created-w first"},
		{fmt.Sprintf("%s?fieldSelector=object.resource%%3Dconfigmaps,until%%3D%d", path, then), "created-w first"},
		{fmt.Sprintf("%s?fieldSelector=object.resource%%3Dconfigmaps,since%%3D%d", path, then), last + " second created-w"},
	} {
		a := s.do(t, "admin", http.MethodGet, q.path, "")
		if got := strings.Join(a.names(), " "); a.code != http.StatusOK || got != q.want {
			t.Errorf("%s: %d, %q, want %q: %s", q.path, a.code, got, q.want, a.body)
		}
	}
	if a := s.do(t, "admin", http.MethodGet, fmt.Sprintf("/at/%d%s?watch=true", then, path), ""); a.code != http.StatusBadRequest {
		t.Errorf("a watch of the past: %d", a.code)
	}
}

// What is not there is named: gaps, what was counted, what is not kept any more, other replicas.
func TestAnAnswerSaysWhatItCannotKnow(t *testing.T) {
	var f forgetful
	f.oldest = new(eventlog.Head)
	s := start(t, func(o *core.Options, s *site) {
		f.Log = s.log
		o.DecisionLog.Log = f
	})
	s.append(t, refusal("old", "ana", "default"))
	*f.oldest = s.tip
	from, to := time.Unix(1000, 0), time.Unix(1010, 0)
	s.append(t,
		&eventlog.Event{Meta: &logpb.Metadata{Type: logpb.Type_TYPE_DECISIONS_COUNTED, Actor: &logpb.Actor{User: "ana"}, Detail: &logpb.Metadata_DecisionsCounted{DecisionsCounted: &logpb.DecisionsCounted{
			Count: 41, FirstUnixNano: from.UnixNano(), LastUnixNano: to.UnixNano(), Like: &logpb.Decision{Outcome: logpb.Outcome_OUTCOME_REFUSED, Stage: "flow"}}}}},
		&eventlog.Event{Meta: &logpb.Metadata{Type: logpb.Type_TYPE_DECISIONS_LOST, Detail: &logpb.Metadata_DecisionsLost{DecisionsLost: &logpb.DecisionsLost{
			Count: 7, FromUnixNano: from.UnixNano(), ToUnixNano: to.UnixNano(), Why: "the disk was full"}}}},
		&eventlog.Event{Meta: &logpb.Metadata{Type: logpb.Type_TYPE_DECISIONS_CLOSED}})
	all := s.get(t, "admin", "?fieldSelector=type%21%3DWrite")
	if got := strings.Join(all.names(), " "); got != "lost-4 counted-3" {
		t.Errorf("got %q", got)
	}
	if lost, counted := all.list.Items[0], all.list.Items[1]; lost.Count != 7 || lost.Why != "the disk was full" || lost.From != "1970-01-01T00:16:40Z" || counted.Count != 41 || counted.Outcome != "Refused" || counted.To != "1970-01-01T00:16:50Z" {
		t.Errorf("got %+v, %+v", lost, counted)
	}
	a := s.get(t, "admin", "?fieldSelector=actor.user%3Dana%2Crequest.verb%3Dlist")
	text := strings.Join(a.warnings, "\n")
	for _, want := range []string{"7 decisions between 1970-01-01T00:16:40Z and 1970-01-01T00:16:50Z were not recorded: the disk was full", "are not kept any more", "no audit rules: reads that were answered are not recorded"} {
		if !strings.Contains(text, want) {
			t.Errorf("no warning %q in:\n%s", want, text)
		}
	}
	gone := s.do(t, "admin", http.MethodGet, path+"/old", "")
	if gone.code != http.StatusNotFound || !strings.Contains(string(gone.body), "are not kept any more") {
		t.Errorf("a record that is not kept: %d %s", gone.code, gone.body)
	}
}

// A selective question about a long log is answered in pages, and each page reads a bounded part of the log.
func TestALongLogIsReadInPages(t *testing.T) {
	s := start(t, nil)
	s.append(t, refusal("needle", "rare", "default"))
	for range 50 {
		var list []*eventlog.Event
		for range 1000 {
			list = append(list, refusal("hay", "ana", "default", isRead))
		}
		s.append(t, list...)
	}
	next, pages := "", 0
	var found []string
	for {
		a := s.get(t, "admin", "?fieldSelector=actor.user%3Drare&continue="+next)
		found, pages = append(found, a.names()...), pages+1
		if next = a.list.Metadata.Continue; next == "" {
			break
		}
	}
	if !slices.Equal(found, []string{"needle"}) || pages != 2 {
		t.Errorf("found %v in %d pages", found, pages)
	}
	if a := s.get(t, "admin", ""); len(a.list.Items) != 500 || a.list.Metadata.Continue == "" {
		t.Errorf("a list without a selector has %d items, and continues at %q", len(a.list.Items), a.list.Metadata.Continue)
	} else if a = s.get(t, "admin", "?continue="+a.list.Metadata.Continue); len(a.list.Items) != 500 || a.list.Metadata.Continue != "" || !strings.Contains(strings.Join(a.warnings, ""), "newest 1000 decisions") {
		t.Errorf("its second page has %d items, and warnings %q", len(a.list.Items), a.warnings)
	}
}

func TestGetFindsADecisionByItsAuditID(t *testing.T) {
	asked := ""
	s := start(t, func(o *core.Options, s *site) {
		o.DecisionLog.Find = func(ctx context.Context, id string) (found []*eventlog.Event, err error) {
			asked = id
			batches, err := s.log.Back(ctx, s.tip.Revision, 1)
			for _, e := range batches[0].Events {
				if e.Meta.GetRequest().GetAuditId() == id {
					found = append(found, e)
				}
			}
			return found, err
		}
	})
	s.append(t, refusal("one", "ana", "default"), refusal("two", "ana", "default"))
	id := s.write(t, "default", "w")
	for _, name := range []string{"one", "two", id} {
		var d decisionsapi.Decision
		if err := json.Unmarshal(s.get(t, "admin", "/"+name).body, &d); err != nil || d.Name != name || asked != name {
			t.Errorf("%s: %+v, %v; the index was asked for %q", name, d, err, asked)
		}
	}
	if a := s.do(t, "admin", http.MethodGet, path+"/none", ""); a.code != http.StatusNotFound || !strings.Contains(string(a.body), `no write has the audit ID \"none\"`) {
		t.Errorf("%d %s", a.code, a.body)
	}
}

// watch opens a watch, and returns a function that reads the name and the resource version of its next event.
func (s *site) watch(t *testing.T, query string) (next func() (name, version string)) {
	server := httptest.NewServer(s.pipeline)
	ctx, cancel := context.WithCancel(t.Context())
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+path+"?watch=true"+query, nil)
	if err != nil {
		t.Fatal(err)
	}
	q.Header.Set("Authorization", "Bearer admin-token")
	a, err := server.Client().Do(q)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		a.Body.Close()
		server.Close()
	})
	lines := bufio.NewReader(a.Body)
	return func() (string, string) {
		line, err := lines.ReadBytes('\n')
		var e struct {
			Type   string
			Object struct {
				Metadata struct{ Name, ResourceVersion string }
				Message  string
			}
		}
		if err == io.EOF {
			return "EOF", ""
		}
		if err != nil || json.Unmarshal(line, &e) != nil {
			t.Fatalf("%v: %s", err, line)
		}
		if e.Type == "ERROR" {
			return e.Object.Message, ""
		}
		return e.Object.Metadata.Name, e.Object.Metadata.ResourceVersion
	}
}

func TestAWatchFollowsBothLogs(t *testing.T) {
	s := start(t, nil)
	s.append(t, refusal("before", "ana", "default"))
	from := s.get(t, "admin", "").list.Metadata.ResourceVersion
	next := s.watch(t, "&fieldSelector=object.resource%3Dconfigmaps&resourceVersion="+from)
	var want, versions []string
	for i := range 4 {
		id := fmt.Sprint("r", i)
		if i%2 == 0 {
			id = s.write(t, "default", id)
		} else {
			s.append(t, refusal(id, "ana", "default"), refusal("x", "ana", "default", func(m *logpb.Metadata) { m.Object.Resource = "others" }))
		}
		got, version := next()
		if want, versions = append(want, id), append(versions, version); got != id {
			t.Fatalf("got %q, want %q", got, id)
		}
	}
	for i := range want[:3] { // from there on, the watch goes on
		next := s.watch(t, "&fieldSelector=object.resource%3Dconfigmaps&resourceVersion="+versions[i])
		for _, id := range want[i+1:] {
			if got, _ := next(); got != id {
				t.Errorf("after %s: got %q, want %q", want[i], got, id)
			}
		}
	}
	other := s.do(t, "admin", http.MethodGet, path+"?watch=true&resourceVersion=1.1.00000000", "")
	if other.code != http.StatusGone || !strings.Contains(string(other.body), "another replica") {
		t.Errorf("from the decision log of another replica: %d %s", other.code, other.body)
	}
}

func TestTablesHaveColumns(t *testing.T) {
	s := start(t, nil)
	s.append(t, refusal("r1", "ana", "default"))
	q := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path+"?fieldSelector=actor.user%3Dana", nil)
	q.Header.Set("Authorization", "Bearer admin-token")
	q.Header.Set("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
	w := httptest.NewRecorder()
	s.pipeline.ServeHTTP(w, q)
	var table struct {
		ColumnDefinitions []struct{ Name string }
		Rows              []struct{ Cells []any }
	}
	if err := json.Unmarshal(w.Body.Bytes(), &table); err != nil || len(table.Rows) != 1 {
		t.Fatalf("%v: %s", err, w.Body)
	}
	cells := map[string]any{}
	for i, c := range table.ColumnDefinitions {
		cells[c.Name] = table.Rows[0].Cells[i]
	}
	for column, want := range map[string]any{"Name": "r1", "User": "ana", "Outcome": "Refused", "Code": float64(422), "Stage": "validation", "Rule": "no-secrets", "Source": "rules.cue:7"} {
		if cells[column] != want {
			t.Errorf("%s is %v, want %v", column, cells[column], want)
		}
	}
}
