package cost_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"stele.dev/stele/core/run/plane"
	"stele.dev/stele/core/run/plane/planetest"
)

const readers = `
package test
import "stele.dev/policy"

bundle: policy.#Bundle & {
	cluster: "test"
	teams: t: {
		contact: "#t", groups: ["*"], namespaces: ["*"]
		rbac: {
			clusterRoles: reader: rules: r: {apiGroups: ["*"], resources: ["*"], verbs: ["get", "list", "watch", "history", "create"]}
			bindings: readers: {clusterRole: "reader", subjects: [{user: "reader"}], namespaces: ["*"]}
		}
	}
}
`

// opened is a ResponseWriter of a watch. Its channel is closed when the watch has sent its header, and counts its flushes.
type opened struct {
	*httptest.ResponseRecorder
	once  sync.Once
	begun chan struct{}
}

func (w *opened) Flush() { w.once.Do(func() { close(w.begun) }) }

// Streams that wait have no seats: although many more are open than there are seats, other requests of the same user are
// served.
func TestStreamsThatWaitHaveNoSeats(t *testing.T) {
	p := planetest.Start(t, planetest.Options{Bundle: readers, Config: plane.Config{Seats: 1}})
	ctx, cancel := context.WithCancel(t.Context())
	var watches sync.WaitGroup
	defer watches.Wait()
	defer cancel()
	reader := func(ctx context.Context, path string) *http.Request {
		q := httptest.NewRequest("GET", path, nil)
		q.Header.Set("Authorization", "Bearer reader-token")
		return q.WithContext(ctx)
	}
	now := p.Committer.Tip().Revision()
	for _, path := range []string{
		"/api/v1/namespaces?watch=1",
		"/api/v1/namespaces?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true",
		fmt.Sprintf("/api/v1/configmaps?watch=1&resourceVersion=%d", now),
		"/api/v1/configmaps?watch=1&resourceVersion=1",
		fmt.Sprintf("/at/%d/api/v1/namespaces?watch=1", now),
		"/apis/log.stele.dev/v1/changes?watch=1",
		"/apis/log.stele.dev/v1/changes?watch=1&resourceVersion=1",
		"/apis/rbac.authorization.k8s.io/v1/clusterroles?watch=1",
	} {
		for range 8 {
			w := &opened{ResponseRecorder: httptest.NewRecorder(), begun: make(chan struct{})}
			watches.Go(func() { p.ServeHTTP(w, reader(ctx, path)) })
			select {
			case <-w.begun:
			case <-time.After(20 * time.Second):
				t.Fatalf("%s: no seat for another watch, the first ones keep theirs", path)
			}
		}
	}
	got := httptest.NewRecorder()
	limited, done := context.WithTimeout(ctx, 20*time.Second)
	defer done()
	if p.ServeHTTP(got, reader(limited, "/api/v1/namespaces/default")); got.Code != 200 {
		t.Errorf("a get beside the watches: %d %s", got.Code, got.Body)
	}
}

// asked is a body that tells when it is read, and never arrives.
type asked struct {
	*io.PipeReader
	once sync.Once
	read chan struct{}
}

func (a *asked) Read(p []byte) (int, error) {
	a.once.Do(func() { close(a.read) })
	return a.PipeReader.Read(p)
}

// A request whose body has not arrived has no seat: although more such requests are open than there are seats, others of the
// same user are served.
func TestBodiesThatHaveNotArrivedHaveNoSeats(t *testing.T) {
	p := planetest.Start(t, planetest.Options{Bundle: readers, Config: plane.Config{Seats: 1}})
	var writes sync.WaitGroup
	defer writes.Wait()
	for range 8 {
		from, to := io.Pipe()
		defer to.Close()
		body := &asked{PipeReader: from, read: make(chan struct{})}
		q := httptest.NewRequest("POST", "/api/v1/namespaces/default/configmaps", body)
		q.Header.Set("Authorization", "Bearer reader-token")
		writes.Go(func() { p.ServeHTTP(httptest.NewRecorder(), q) })
		select {
		case <-body.read:
		case <-time.After(20 * time.Second):
			t.Fatal("a body is not read, because other requests have the seats")
		}
	}
	q := httptest.NewRequest("GET", "/api/v1/namespaces/default", nil)
	q.Header.Set("Authorization", "Bearer reader-token")
	limited, done := context.WithTimeout(t.Context(), 20*time.Second)
	defer done()
	got := httptest.NewRecorder()
	if p.ServeHTTP(got, q.WithContext(limited)); got.Code != 200 {
		t.Errorf("a get beside the bodies: %d %s", got.Code, got.Body)
	}
}
