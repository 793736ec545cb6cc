package core_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"stele.dev/stele/core/run/plane"
	"stele.dev/stele/core/run/plane/planetest"
	"stele.dev/stele/eventlog/memlog"
	"stele.dev/stele/policy/bundles"
	"stele.dev/stele/policy/compile"
	"stele.dev/stele/schemas"
)

// tightReplica is a replica with memory for two large bodies, whose log can be slow. It runs in a bubble.
func tightReplica(t *testing.T) (r *planetest.Replica, slow *atomic.Bool) {
	t.Helper()
	var store memlog.Store
	slow = new(atomic.Bool)
	r, err := planetest.OpenReplicaWith(t.Context(), store.Open(func(op memlog.Op) memlog.Fault {
		if slow.Load() && op == memlog.Append {
			return memlog.Fault{Request: 2 * time.Minute}
		}
		return memlog.Fault{}
	}), planetest.Options{Config: plane.Config{Memory: 1}})
	if err != nil {
		t.Fatal(err)
	}
	r.Bootstrap(t, planetest.Bundle)
	return r, slow
}

// Large writes wait for the memory that their bodies take, and are told to come again if there is
// none for long. They are of several users: how much one user takes depends on the order in which bodies arrive.
func TestBodiesThatHaveNoRoomAreTooMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, slow := tightReplica(t)
		defer r.CloseInBubble()
		slow.Store(true)
		padding := strings.Repeat(" ", 2900<<10)
		codes := map[int]int{}
		var mu sync.Mutex
		var requests sync.WaitGroup
		for _, name := range []string{"a", "b", "c", "d"} {
			requests.Go(func() {
				a := r.Do("POST", planetest.WidgetsPath, planetest.Widget(name, 1)+padding, "Impersonate-User", name, "Impersonate-Group", "system:masters")
				mu.Lock()
				codes[a.Code]++
				mu.Unlock()
			})
		}
		requests.Wait()
		if codes[429] != 2 || codes[503]+codes[504] != 2 {
			t.Errorf("answers by code: %v, want two that the log has not answered, and two without room", codes)
		}
		time.Sleep(5 * time.Minute)
		slow.Store(false)
		r.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("later", 1)+padding)
	})
}

// An explanation has a share of the memory, and does not wait with it for another one: many of them would wait
// for each other.
func TestExplanationsDoNotWaitForMemoryTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, slow := tightReplica(t)
		defer r.CloseInBubble()
		slow.Store(true)
		var requests sync.WaitGroup
		for name, padding := range map[string]int{"a": 2950 << 10, "c": 1855 << 10} { // more than half of it
			requests.Go(func() { r.Do("POST", planetest.WidgetsPath, planetest.Widget(name, 1)+strings.Repeat(" ", padding)) })
		}
		synctest.Wait()
		large := strings.Replace(planetest.Widget("b", 1), `"metadata":{`, `"metadata":{"annotations":{"a":"`+strings.Repeat("x", 240<<10)+`"},`, 1)
		began := time.Now()
		e := r.Must(t, 201, "POST", planetest.ExplanationsPath, `{"apiVersion":"policy.stele.dev/v1","kind":"Explanation","spec":{"verb":"create","group":"example.com","version":"v1","resource":"widgets","namespace":"default","object":`+
			large+`}}`+strings.Repeat(" ", 2800<<10), "Impersonate-User", "other", "Impersonate-Group", "system:masters") // those of one user leave room to others
		if took := time.Since(began); took > 0 || fmt.Sprint(e.Field("status", "code")) != "201" {
			t.Errorf("after %v: %v", took, e.Field("status"))
		}
		requests.Wait()
		slow.Store(false)
		time.Sleep(5 * time.Minute)
	})
}

// The files of one policy may take as much memory as all else: of several that are pushed, those of one are put
// together at a time.
func TestPushesTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var store memlog.Store
		var now, most atomic.Int32
		r, err := planetest.OpenReplicaWith(t.Context(), store.Open(nil), planetest.Options{Config: plane.Config{Compile: func(ctx context.Context, source *bundles.Source) (*compile.Result, schemas.Diagnostics, error) {
			most.Store(max(most.Load(), now.Add(1)))
			defer now.Add(-1)
			time.Sleep(time.Second)
			return planetest.CompileHere(ctx, source)
		}}})
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		r.Bootstrap(t, planetest.Bundle)
		body := planetest.PolicyBody(t, planetest.Narrower, nil)
		var requests sync.WaitGroup
		for range 4 {
			requests.Go(func() {
				if a := r.Do("POST", planetest.PoliciesPath+"?dryRun=All", body); a.Code != 201 {
					t.Errorf("%s", a)
				}
			})
		}
		requests.Wait()
		if most.Load() != 1 {
			t.Errorf("%d policies were compiled at once", most.Load())
		}
	})
}
