package read_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"stele.dev/stele/core/run/plane/planetest"
	"stele.dev/stele/eventlog/memlog"
)

// cutOff is a network to the log that can be interrupted.
type cutOff struct{ atomic.Bool }

func (c *cutOff) schedule(memlog.Op) memlog.Fault {
	return memlog.Fault{Request: time.Millisecond, Answer: time.Millisecond, LoseRequest: c.Load()}
}

// inTwo runs a test with two replicas of a log. The network of the second one can be cut off.
func inTwo(t *testing.T, run func(t *testing.T, a, b *planetest.Replica, cut *cutOff)) {
	planetest.Compile(t, planetest.Bundle)
	synctest.Test(t, func(t *testing.T) {
		var store memlog.Store
		cut := &cutOff{}
		a := planetest.StartReplica(t, store.Open(nil), 0)
		a.Bootstrap(t, planetest.Bundle)
		b := planetest.StartReplica(t, store.Open(cut.schedule), 0)
		run(t, a, b, cut)
		cut.Store(false)
		b.CloseInBubble()
		a.CloseInBubble()
		time.Sleep(time.Minute)
	})
}

// inBackground asks in the background, and returns the answer and how long it took.
func inBackground(r *planetest.Replica, path string) <-chan planetest.Answer {
	answers := make(chan planetest.Answer, 1)
	go func() { answers <- r.Do("GET", path, "") }()
	return answers
}

// A client that comes from another replica may have seen a revision that this one has not. It waits for the log, and
// after three seconds it is told to try again.
func TestReadsOfARevisionThatThisReplicaHasNotReached(t *testing.T) {
	inTwo(t, func(t *testing.T, a, b *planetest.Replica, cut *cutOff) {
		for i, query := range []string{"?resourceVersion=%s", "?resourceVersion=%s&resourceVersionMatch=NotOlderThan", "?resourceVersion=%s&resourceVersionMatch=Exact", "?watch=1&timeoutSeconds=1&resourceVersion=%s", "/w0?resourceVersion=%s"} {
			cut.Store(true)
			revision := a.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget(fmt.Sprint("w", i), 1)).Field("metadata", "resourceVersion")
			path := planetest.WidgetsPath + fmt.Sprintf(query, revision)
			begun := time.Now()
			late := b.Must(t, http.StatusGatewayTimeout, "GET", path, "")
			if took := time.Since(begun); took < 3*time.Second || took > 4*time.Second || !strings.Contains(string(late.Body), "Too large resource version") || late.Header.Get("Retry-After") != "1" {
				t.Errorf("GET %s answers after %v, Retry-After %q: %s", path, took, late.Header.Get("Retry-After"), late)
			}
			begun = time.Now()
			answers := inBackground(b, path)
			time.Sleep(time.Second)
			cut.Store(false)
			if got := <-answers; got.Code != 200 || time.Since(begun) > 4*time.Second {
				t.Errorf("GET %s answers after %v: %s", path, time.Since(begun), got)
			}
		}
	})
}

// A replica that does not reach the log answers from memory for half a minute, and then says why it does not any more.
func TestAReplicaThatDoesNotReachTheLogStopsAnsweringFromMemory(t *testing.T) {
	inTwo(t, func(t *testing.T, a, b *planetest.Replica, cut *cutOff) {
		revision := a.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("w", 1)).Field("metadata", "resourceVersion").(string)
		b.Must(t, 200, "GET", planetest.WidgetsPath+"/w", "")
		from := []string{planetest.WidgetsPath + "/w?resourceVersion=0", planetest.WidgetsPath + "?resourceVersion=0", planetest.WidgetsPath + "?watch=1&timeoutSeconds=1&resourceVersion=0",
			planetest.WidgetsPath + "?resourceVersion=" + revision + "&resourceVersionMatch=Exact"}
		cut.Store(true)
		time.Sleep(20 * time.Second)
		for _, path := range from {
			b.Must(t, 200, "GET", path, "")
		}
		time.Sleep(20 * time.Second)
		for _, path := range from {
			begun := time.Now()
			a := b.Must(t, http.StatusServiceUnavailable, "GET", path, "")
			if took := time.Since(begun); took > 4*time.Second || a.Header.Get("Retry-After") != "1" || !strings.Contains(string(a.Body), "has not reached its log for ") {
				t.Errorf("GET %s answers after %v: %s", path, took, a)
			}
		}
		b.Must(t, http.StatusInternalServerError, "GET", "/readyz", "")
		b.Must(t, http.StatusGatewayTimeout, "GET", planetest.WidgetsPath+"/w?timeout=5s", "") // of the newest state
		cut.Store(false)
		time.Sleep(15 * time.Second)
		for _, path := range from {
			b.Must(t, 200, "GET", path, "")
		}
	})
}

// A read and a refusal do not wait for an append in flight, and take one round trip.
func TestConfirmationsDoNotWaitForAppends(t *testing.T) {
	planetest.Compile(t, planetest.Bundle)
	synctest.Test(t, func(t *testing.T) {
		var store memlog.Store
		var slow atomic.Int64
		r := planetest.StartReplica(t, store.Open(func(op memlog.Op) memlog.Fault {
			f := memlog.Fault{Request: time.Millisecond, Answer: time.Millisecond}
			if op == memlog.Append {
				f.Request = time.Duration(slow.Load())
			}
			return f
		}), 0)
		r.Bootstrap(t, planetest.Bundle)
		r.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("w", 1))
		slow.Store(int64(time.Second))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		written := make(chan planetest.Answer)
		go func() {
			written <- r.Serve(planetest.Request("POST", planetest.WidgetsPath, planetest.Widget("x", 1)).WithContext(ctx))
		}()
		time.Sleep(time.Millisecond)
		for _, ask := range []func() planetest.Answer{
			func() planetest.Answer { return r.Do("GET", planetest.WidgetsPath+"/w", "") },
			func() planetest.Answer { return r.Do("GET", planetest.WidgetsPath, "") },
			func() planetest.Answer { return r.Do("GET", planetest.WidgetsPath+"/absent", "") },
		} {
			begun := time.Now()
			if a := ask(); time.Since(begun) != 2*time.Millisecond {
				t.Errorf("it took %v: %s", time.Since(begun), a)
			}
		}
		if a := <-written; a.Code != 201 {
			t.Error(a)
		}
		r.CloseInBubble()
		time.Sleep(time.Minute)
	})
}
