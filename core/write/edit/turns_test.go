package edit_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"stele.dev/stele/core/run/plane/planetest"
	"stele.dev/stele/eventlog/memlog"
)

const hotPath = "/api/v1/namespaces/default/configmaps/hot"

// hot runs a test on a control plane whose log takes its time, with an object that many change.
func hot(t *testing.T, test func(t *testing.T, p *planetest.Replica)) {
	synctest.Test(t, func(t *testing.T) {
		var store memlog.Store
		p, err := planetest.OpenReplica(t.Context(), store.Open(func(memlog.Op) memlog.Fault { return memlog.Fault{Request: 5 * time.Millisecond} }), 0)
		if err != nil {
			t.Fatal(err)
		}
		defer p.CloseInBubble()
		p.Bootstrap(t, planetest.Bundle)
		p.Must(t, 201, "POST", strings.TrimSuffix(hotPath, "/hot"), `{"metadata":{"name":"hot"}}`)
		test(t, p)
	})
}

// Who does not say which version of an object they change never hears of a conflict, however
// many others change it at the same time: they take turns.
func TestManyChangesOfOneObjectAtOnce(t *testing.T) {
	hot(t, func(t *testing.T, p *planetest.Replica) {
		const writers = 100
		var all sync.WaitGroup
		for i := range writers {
			all.Go(func() {
				if a := p.Do("PATCH", hotPath, fmt.Sprintf(`{"data":{"k%d":"v"}}`, i), "Content-Type", planetest.MergePatch); a.Code != 200 {
					t.Errorf("%d: %s", i, a)
				}
			})
		}
		all.Wait()
		if data, _ := p.Must(t, 200, "GET", hotPath, "").Field("data").(map[string]any); len(data) != writers {
			t.Errorf("%d of %d changes are there", len(data), writers)
		}
	})
}

// Who goes away while they wait for their turn is not waited for by others.
func TestWhoWaitsForTheirTurnCanGo(t *testing.T) {
	hot(t, func(t *testing.T, p *planetest.Replica) {
		var all sync.WaitGroup
		for i := range 20 {
			all.Go(func() {
				q := planetest.Request("PATCH", hotPath, fmt.Sprintf(`{"data":{"k%d":"v"}}`, i), "Content-Type", planetest.MergePatch)
				ctx, cancel := context.WithCancel(q.Context())
				defer cancel()
				if i%2 == 0 {
					time.AfterFunc(12*time.Millisecond, cancel)
				}
				w := httptest.NewRecorder()
				p.ServeHTTP(w, q.WithContext(ctx))
				if i%2 == 1 && w.Code != 200 {
					t.Errorf("%d: %d %s", i, w.Code, w.Body)
				}
			})
		}
		all.Wait()
	})
}

// A client that does not read its answer holds up nobody: its turn is over before that is sent.
func TestWhoDoesNotReadItsAnswerHoldsUpNobody(t *testing.T) {
	hot(t, func(t *testing.T, p *planetest.Replica) {
		var reading, deaf sync.WaitGroup
		read := make(chan struct{})
		for i := range 20 {
			q := planetest.Request("PATCH", hotPath, fmt.Sprintf(`{"data":{"k%d":"v"}}`, i), "Content-Type", planetest.MergePatch)
			if i%2 == 0 {
				deaf.Go(func() { p.ServeHTTP(unread{httptest.NewRecorder(), read}, q) })
				continue
			}
			reading.Go(func() {
				w := httptest.NewRecorder()
				if p.ServeHTTP(w, q); w.Code != 200 {
					t.Errorf("%d: %d %s", i, w.Code, w.Body)
				}
			})
		}
		reading.Wait()
		close(read)
		deaf.Wait()
	})
}

// unread is an answer that is not read before a channel is closed.
type unread struct {
	*httptest.ResponseRecorder
	until <-chan struct{}
}

func (w unread) Write(b []byte) (int, error) {
	<-w.until
	return w.ResponseRecorder.Write(b)
}
