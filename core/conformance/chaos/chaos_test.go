package chaos

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"stele.dev/stele/core/run/plane/planetest"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/memlog"
)

const bundle = `
package test
import "stele.dev/policy"

bundle: policy.#Bundle & {cluster: "test"}
`

// handler is a transport whose requests a handler in this process answers.
type handler struct{ http.Handler }

func (h handler) RoundTrip(q *http.Request) (*http.Response, error) {
	q.Header.Set("Authorization", "Bearer admin-token")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, q)
	return w.Result(), nil
}

// fault changes the answers to some requests.
type fault func(q *http.Request, send http.RoundTripper) (*http.Response, error)

func (f fault) wrap(send http.RoundTripper) http.RoundTripper { return transport{f, send} }

type transport struct {
	fault
	send http.RoundTripper
}

func (t transport) RoundTrip(q *http.Request) (*http.Response, error) { return t.fault(q, t.send) }

func answer(code int, body string) *http.Response {
	return &http.Response{StatusCode: code, Body: io.NopCloser(strings.NewReader(body)), Header: http.Header{}}
}

// old answers every request that matches with the answer that the first one with the path got.
func old(matches func(*http.Request) bool) fault {
	var mu sync.Mutex
	first := map[string][]byte{}
	return func(q *http.Request, send http.RoundTripper) (*http.Response, error) {
		resp, err := send.RoundTrip(q)
		if err != nil || !matches(q) || resp.StatusCode != 200 {
			return resp, err
		}
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			return nil, err
		}
		mu.Lock()
		defer mu.Unlock()
		if first[q.URL.Path] == nil {
			first[q.URL.Path] = body
		}
		resp.Body = io.NopCloser(bytes.NewReader(first[q.URL.Path]))
		return resp, nil
	}
}

func newest(q *http.Request) bool { return q.Method == "GET" && q.URL.RawQuery == "" }

// some calls a fault for every twentieth request that matches, and sends all others.
func some(matches func(*http.Request) bool, f fault) fault {
	var mu sync.Mutex
	n := 0
	return func(q *http.Request, send http.RoundTripper) (*http.Response, error) {
		mu.Lock()
		now := false
		if matches(q) {
			n++
			now = n%20 == 0
		}
		mu.Unlock()
		if now {
			return f(q, send)
		}
		return send.RoundTrip(q)
	}
}

func method(m string) func(*http.Request) bool {
	return func(q *http.Request) bool { return q.Method == m }
}

// faults are what servers must not do, and parts of the errors that name it.
var faults = map[string]struct {
	fault
	want string
}{
	"a get is old":  {old(func(q *http.Request) bool { return newest(q) && !strings.HasSuffix(q.URL.Path, "configmaps") }), "is not linearizable"},
	"a list is old": {old(func(q *http.Request) bool { return newest(q) && strings.HasSuffix(q.URL.Path, "configmaps") }), "a list at revision"},
	"reads at resourceVersion=0 go back": {old(func(q *http.Request) bool {
		return q.URL.RawQuery != "" && strings.HasSuffix(q.URL.Path, "configmaps")
	}), "a list at revision"},
	"a write is acknowledged and dropped": {some(method("DELETE"), func(*http.Request, http.RoundTripper) (*http.Response, error) {
		return answer(200, "{}"), nil
	}), "acknowledged, but lost"},
	"a refused write is written": {some(method("POST"), func(q *http.Request, send http.RoundTripper) (*http.Response, error) {
		resp, err := send.RoundTrip(q)
		if err != nil || resp.StatusCode != 201 {
			return resp, err
		}
		return answer(503, "{}"), nil
	}), "refused, but written"},
	"an object is hidden": {func(q *http.Request, send http.RoundTripper) (*http.Response, error) {
		if newest(q) && !strings.HasSuffix(q.URL.Path, "configmaps") {
			return answer(404, "{}"), nil
		}
		return send.RoundTrip(q)
	}, "is not linearizable"},
	"writes are told other revisions": {func(q *http.Request, send http.RoundTripper) (*http.Response, error) {
		resp, err := send.RoundTrip(q)
		if err != nil || q.Method != "PATCH" || resp.StatusCode != 200 {
			return resp, err
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body = io.NopCloser(bytes.NewReader(bytes.Replace(body, []byte(`"resourceVersion":"`), []byte(`"resourceVersion":"9`), 1)))
		return resp, err
	}, "told otherwise|is not linearizable"},
	"a conflict is invented": {func(q *http.Request, send http.RoundTripper) (*http.Response, error) {
		if q.Method == "PUT" {
			return answer(409, "{}"), nil
		}
		return send.RoundTrip(q)
	}, "is not linearizable"},
}

// play sends a load to replicas on a log in memory, with a fault, and checks the history.
func play(t *testing.T, f fault) (*Log, []*Operation, error) {
	t.Helper()
	var store memlog.Store
	h := NewHistory()
	var clients []*Client
	for i := range 2 {
		p := planetest.Start(t, planetest.Options{Backend: store.Open(nil)})
		if i == 0 {
			p.Bootstrap(t, bundle)
		}
		var send http.RoundTripper = handler{p.Plane}
		if f != nil {
			send = f.wrap(send)
		}
		clients = append(clients, &Client{History: h, Replica: func() string { return string(rune('a' + i)) }, URL: "http://stele.example", Namespace: "default", Transport: send, Timeout: time.Minute})
	}
	ctx, cancel := context.WithCancel(t.Context())
	var mu sync.Mutex
	left := 1500
	load := Load{Objects: 4, Client: func(rng *rand.Rand) *Client { return clients[rng.IntN(len(clients))] }, Done: func(*Operation) {
		mu.Lock()
		defer mu.Unlock()
		if left--; left == 0 {
			cancel()
		}
	}}
	load.Run(ctx, 6, 1)
	from, err := eventlog.Open(t.Context(), store.Open(nil), eventlog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	log, err := ReadLog(t.Context(), from, "default")
	if err != nil {
		t.Fatal(err)
	}
	return log, h.Operations(), Check(h.Operations(), log)
}

func TestWhatServersMustNotDoIsFound(t *testing.T) {
	for name, f := range faults {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, _, err := play(t, f.fault)
			if err == nil || !slices.ContainsFunc(strings.Split(f.want, "|"), func(want string) bool { return strings.Contains(err.Error(), want) }) {
				t.Errorf("got %v, want an error with %q", err, f.want)
			}
		})
	}
}

func TestWhatServersMayDoIsNotFound(t *testing.T) {
	log, operations, err := play(t, nil)
	if err != nil {
		t.Error(err)
	}
	// A history of nothing shows nothing.
	count := map[string]int{}
	for _, o := range operations {
		count[fmt.Sprint(o.Verb, " ", o.Code)]++
		if o.Verb == Update && o.Code == 200 && len(log.byRequest[o.ID]) == 0 {
			count["no-op"]++
		}
	}
	for _, what := range []string{"create 201", "create 409", "update 200", "update 404", "update 409", "patch 200", "patch 404", "patch 422", "delete 200", "delete 404", "delete 409", "get 200", "get 404", "list 200", "list any 200", "get any 200", "get any 404", "no-op"} {
		if count[what] == 0 {
			t.Errorf("no operation ended as %q: %v", what, count)
		}
	}
}

func TestWatchesThatMissOrRepeatAreFound(t *testing.T) {
	log := &Log{Events: []Event{{"ADDED", 3, "a", "1"}, {"ADDED", 4, "b", "2"}, {"MODIFIED", 7, "a", "3"}, {"DELETED", 8, "b", "2"}}}
	seen := log.Events[1:3] // from a watch behind revision 3, up to 7
	if err := CheckEvents(seen, log, 3, 7); err != nil {
		t.Error(err)
	}
	for name, events := range map[string][]Event{
		"missing at the beginning": seen[1:],
		"missing at the end":       seen[:1],
		"missing":                  nil,
		"repeated":                 {seen[0], seen[0], seen[1]},
		"in another order":         {seen[1], seen[0]},
		"too many":                 log.Events[1:],
		"of another type":          {seen[0], {"ADDED", 7, "a", "3"}},
		"with another value":       {seen[0], {"MODIFIED", 7, "a", "4"}},
	} {
		if CheckEvents(events, log, 3, 7) == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestReadsThatAreTooOldAreFound(t *testing.T) {
	log := &Log{Last: 5, byRequest: map[string][]Event{"w": {{"ADDED", 5, "a", "1"}}}, objects: map[string][]Event{"a": {{"ADDED", 5, "a", "1"}}}}
	write := &Operation{Request: Request{Verb: Create, Name: "a", Value: "1"}, ID: "w", Return: time.Second, Code: 201, Object: Object{5, "1"}}
	for age, ok := range map[time.Duration]bool{maxStale - time.Second: true, maxStale + time.Second: false} {
		read := &Operation{Request: Request{Verb: ListAny}, ID: "r", Replica: "b", Call: write.Return + age, Return: write.Return + age, Code: 200, Listed: map[string]Object{}, At: 4}
		if err := Check([]*Operation{write, read}, log); (err == nil) != ok {
			t.Errorf("a list without a write of %v ago: %v", age, err)
		}
	}
}
