package expiry_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"stele.dev/stele/core/auth/authn"
	"stele.dev/stele/core/keep/expiry"
	"stele.dev/stele/core/resources/activation"
	"stele.dev/stele/core/resources/changes"
	"stele.dev/stele/core/run/plane/planetest"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/logpb"
	"stele.dev/stele/projections/audit"
	"stele.dev/stele/projections/history"
	"stele.dev/stele/projections/objects"
)

// bundle and another are two policies.
var (
	bundle  = withTeams("")
	another = withTeams(`teams: t: {contact: "#t", groups: ["*"], namespaces: ["*"], rbac: clusterRoles: reader: rules: r: {apiGroups: [""], resources: ["events"], verbs: ["get"]}}`)
)

func withTeams(teams string) string {
	return "package test\nimport \"stele.dev/policy\"\nbundle: policy.#Bundle & {cluster: \"test\"\n" + teams + "\n}\n"
}

// testPlane is a control plane whose Events expire.
type testPlane struct{ *planetest.Plane }

// story runs a test in time that passes only when every goroutine sleeps. clock is the log's, if
// that is another one.
func story(t *testing.T, clock func() time.Time, tell func(*testing.T, *testPlane)) {
	t.Helper()
	planetest.Compile(t, bundle)
	synctest.Test(t, func(t *testing.T) {
		p, err := planetest.Open(t.Context(), planetest.Options{Clock: clock})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Stop()
		p.Bootstrap(t, bundle)
		tell(t, &testPlane{p})
	})
}

func (p *testPlane) do(t *testing.T, code int, method, path, body string) string {
	t.Helper()
	q := httptest.NewRequest(method, "/api/v1/namespaces/default/"+path, strings.NewReader(body))
	q = q.WithContext(authn.WithUser(t.Context(), &user.DefaultInfo{Name: "admin", Groups: []string{user.SystemPrivilegedGroup}}))
	if q.Header.Set("Content-Type", "application/json"); method == "PATCH" {
		q.Header.Set("Content-Type", "application/merge-patch+json")
	}
	w := httptest.NewRecorder()
	if p.ServeHTTP(w, q); w.Code != code {
		t.Fatalf("%s %s: %d %s", method, path, w.Code, w.Body)
	}
	return w.Body.String()
}

func (p *testPlane) event(t *testing.T, name string) {
	t.Helper()
	p.do(t, 201, "POST", "events", `{"metadata":{"name":"`+name+`"},"involvedObject":{"namespace":"default"}}`)
}

// names are those of the Events that are there.
func (p *testPlane) names() (names []string) {
	for o := range p.Committer.Tip().Objects.List(schema.GroupResource{Resource: "events"}, &objects.Selection{}, "", "") {
		names = append(names, o.Name)
	}
	return names
}

// expire deletes what was not written for an hour, and tells what is left.
func (p *testPlane) expire(t *testing.T, log eventlog.Reader) []string {
	t.Helper()
	if _, err := expiry.New(expiry.Options{Committer: p.Committer, Log: log, TTL: time.Hour, Now: time.Now}).Expire(t.Context()); err != nil {
		t.Fatal(err)
	}
	return p.names()
}

func TestAnEventExpiresOnceItHasNotBeenWrittenForLong(t *testing.T) {
	story(t, nil, func(t *testing.T, p *testPlane) {
		p.event(t, "first")
		p.event(t, "repeated")
		p.do(t, 201, "POST", "configmaps", `{"metadata":{"name":"first"}}`)
		time.Sleep(30 * time.Minute)
		p.event(t, "second")
		p.do(t, 200, "PATCH", "events/repeated", `{"count":2}`)
		if names := p.expire(t, p.Log); len(names) != 3 {
			t.Errorf("after half an hour there are %v", names)
		}
		time.Sleep(31 * time.Minute)
		if names := p.expire(t, p.Log); !slices.Equal(names, []string{"repeated", "second"}) {
			t.Errorf("after an hour there are %v", names)
		}
		p.do(t, 404, "GET", "events/first", "")
		time.Sleep(30 * time.Minute)
		if names := p.expire(t, p.Log); len(names) != 0 {
			t.Errorf("after an hour and a half there are %v", names)
		}
		p.do(t, 200, "GET", "configmaps/first", "")
	})
}

func TestManyEventsExpireByOneEventOfTheLog(t *testing.T) {
	story(t, nil, func(t *testing.T, p *testPlane) {
		for _, name := range []string{"a", "b", "c"} {
			p.event(t, name)
		}
		before := p.Committer.Tip().Revision()
		time.Sleep(2 * time.Hour)
		p.expire(t, p.Log)
		batches, err := p.Log.Back(t.Context(), p.Committer.Tip().Revision(), 1)
		if err != nil {
			t.Fatal(err)
		}
		e := batches[0].Events[0]
		if len(batches[0].Events) != 1 || e.Meta.GetType() != logpb.Type_TYPE_BULK_DELETED || e.Revision != before+1 || e.Last() != before+3 || p.Committer.Tip().Revision() != before+3 {
			t.Fatalf("the log has %v", batches[0].Events)
		}

		watched := p.do(t, 200, "GET", fmt.Sprintf("events?watch=1&timeoutSeconds=1&resourceVersion=%d", before), "")
		for i, name := range []string{"a", "b", "c"} {
			line := strings.Split(watched, "\n")[i]
			if !strings.HasPrefix(line, `{"type":"DELETED"`) || !strings.Contains(line, `"name":"`+name+`"`) || !strings.Contains(line, fmt.Sprintf(`"resourceVersion":"%d"`, before+1+uint64(i))) {
				t.Errorf("watchers are told %s", line)
			}
		}
		if a := e.Meta.GetDecisions().GetAudit(); a.GetLevel() != logpb.AuditLevel_AUDIT_LEVEL_METADATA {
			t.Errorf("the event has the audit level %v", a.GetLevel())
		}
		lines := audit.Render(nil, e, nil)
		var names []string
		for line := range strings.Lines(string(lines)) {
			var record auditv1.Event
			if err := json.Unmarshal([]byte(line), &record); err != nil {
				t.Fatal(err)
			}
			if record.User.Username != "system:stele:event-ttl" || record.Verb != "deletecollection" {
				t.Errorf("the audit log has %s", line)
			}
			names = append(names, record.ObjectRef.Name)
		}
		if !slices.Equal(names, []string{"a", "b", "c"}) {
			t.Errorf("the audit log has %v", names)
		}
		for i, o := range e.Meta.GetBulk().GetObjects() {
			c := changes.From(&history.Change{Revision: e.Revision + uint64(i), Time: e.Time, Meta: e.Meta, Object: o.GetObject(), Previous: o.GetPreviousRevision(), Deleted: true})
			if c.Object.Name != names[i] || c.Type != "Deleted" || c.Actor.User != "system:stele:event-ttl" {
				t.Errorf("the log as an API has %v", c)
			}
		}
	})
}

func TestEventsExpireInBatchesThatAreBounded(t *testing.T) {
	story(t, nil, func(t *testing.T, p *testPlane) {
		for i := range 1100 {
			p.event(t, fmt.Sprint("e", i))
		}
		before := p.Committer.Tip().Revision()
		time.Sleep(2 * time.Hour)
		if names := p.expire(t, p.Log); len(names) != 0 {
			t.Errorf("%d are left", len(names))
		}
		batches, err := p.Log.Back(t.Context(), p.Committer.Tip().Revision(), 10)
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range batches {
			for _, e := range b.Events {
				if e.Revision > before && e.Span() > 500 {
					t.Errorf("%d at once", e.Span())
				}
			}
		}
	})
}

// interfering writes while the log is read.
type interfering struct {
	eventlog.Reader
	once  sync.Once
	write func()
}

func (i *interfering) Back(ctx context.Context, from uint64, n int) ([]*eventlog.Batch, error) {
	i.once.Do(i.write)
	return i.Reader.Back(ctx, from, n)
}

func TestAnEventThatIsWrittenWhileItExpiresStays(t *testing.T) {
	story(t, nil, func(t *testing.T, p *testPlane) {
		p.event(t, "a")
		p.event(t, "b")
		time.Sleep(2 * time.Hour)
		log := &interfering{Reader: p.Log, write: func() { p.do(t, 200, "PATCH", "events/a", `{"count":2}`) }}
		if names := p.expire(t, log); !slices.Equal(names, []string{"a"}) {
			t.Errorf("there are %v", names)
		}
	})
}

func TestEventsExpireByNoPolicyButThatInForce(t *testing.T) {
	second := planetest.Compile(t, another)
	story(t, nil, func(t *testing.T, p *testPlane) {
		p.event(t, "a")
		time.Sleep(2 * time.Hour)
		var activated uint64
		log := &interfering{Reader: p.Log, write: func() {
			var err error
			if activated, err = activation.ActivateCompiled(t.Context(), p.Committer, second, "test"); err != nil {
				t.Fatal(err)
			}
		}}
		if names := p.expire(t, log); len(names) != 0 {
			t.Errorf("there are %v", names)
		}
		batches, err := p.Log.Back(t.Context(), p.Committer.Tip().Revision(), 1)
		if err != nil {
			t.Fatal(err)
		}
		digest := p.Committer.Tip().Policy.Digest()
		if e := batches[0].Events[0]; e.Revision <= activated || string(e.Meta.GetPolicyDigest()) != string(digest[:]) {
			t.Errorf("after the activation at %d the log has %v", activated, e)
		}
	})
}

// The time of the log stands still while the clock is behind it.
func TestAClockThatIsSetBackKeepsEventsForLonger(t *testing.T) {
	var wrong atomic.Int64
	story(t, func() time.Time { return time.Now().Add(time.Duration(wrong.Load())) }, func(t *testing.T, p *testPlane) {
		p.event(t, "before")
		wrong.Store(int64(-24 * time.Hour))
		p.event(t, "after")
		time.Sleep(59 * time.Minute)
		if names := p.expire(t, p.Log); !slices.Equal(names, []string{"after", "before"}) {
			t.Errorf("there are %v", names)
		}
		time.Sleep(2 * time.Minute)
		if names := p.expire(t, p.Log); len(names) != 0 {
			t.Errorf("there are %v", names)
		}
	})
}

// What is written with a clock that is ahead for a while expires like all else.
func TestAClockThatWasAheadKeepsNoEvents(t *testing.T) {
	var wrong atomic.Int64
	story(t, func() time.Time { return time.Now().Add(time.Duration(wrong.Load())) }, func(t *testing.T, p *testPlane) {
		p.event(t, "before")
		time.Sleep(2 * time.Hour)
		wrong.Store(int64(365 * 24 * time.Hour))
		p.event(t, "ahead")
		wrong.Store(0)
		time.Sleep(time.Minute) // the committer has noticed
		p.event(t, "after")
		if names := p.expire(t, p.Log); !slices.Equal(names, []string{"after", "ahead"}) {
			t.Errorf("there are %v", names)
		}
		time.Sleep(59*time.Minute + 30*time.Second)
		if names := p.expire(t, p.Log); !slices.Equal(names, []string{"after"}) {
			t.Errorf("after an hour there are %v", names)
		}
		time.Sleep(time.Minute)
		if names := p.expire(t, p.Log); len(names) != 0 {
			t.Errorf("at last there are %v", names)
		}
	})
}

func TestEventsExpireByThemselvesUnlessTheyAreKeptForEver(t *testing.T) {
	story(t, nil, func(t *testing.T, p *testPlane) {
		for left, ttl := range []time.Duration{time.Hour, 0} {
			p.event(t, "a")
			ctx, stop := context.WithCancel(t.Context())
			var running sync.WaitGroup
			running.Go(func() { _ = expiry.New(expiry.Options{Committer: p.Committer, Log: p.Log, TTL: ttl}).Run(ctx) })
			time.Sleep(62 * time.Minute)
			if names := p.names(); len(names) != left {
				t.Errorf("with a TTL of %v there are %v", ttl, names)
			}
			stop()
			running.Wait()
		}
	})
}

// Revisions that were lost in a restore are passed over.
func TestEventsExpireAcrossAnEpoch(t *testing.T) {
	story(t, nil, func(t *testing.T, p *testPlane) {
		p.event(t, "first")
		time.Sleep(2 * time.Hour)
		tip := p.Committer.Tip().Head
		if started, _, err := p.Log.StartEpoch(t.Context(), tip, tip.Revision+1, tip.Revision+1000); err != nil || started == nil {
			t.Fatal(started, err)
		}
		p.event(t, "second")
		if got := p.expire(t, p.Log); !slices.Equal(got, []string{"second"}) {
			t.Errorf("what is left: %v, want second", got)
		}
		time.Sleep(2 * time.Hour)
		if got := p.expire(t, p.Log); len(got) > 0 {
			t.Errorf("what is left: %v, want nothing", got)
		}
	})
}
