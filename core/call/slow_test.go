package call_test

import (
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"stele.dev/stele/core/call"
)

// drip is a ResponseWriter whose client reads some bytes a second, after an idle time.
type drip struct {
	*httptest.ResponseRecorder
	idle time.Duration
	rate int
}

func (d *drip) Write(b []byte) (int, error) {
	time.Sleep(d.idle + time.Duration(len(b))*time.Second/time.Duration(d.rate))
	return len(b), nil
}

// seats is called when a request gives back its seats.
type seats func()

func (s seats) Release(*call.Call) { s() }

func (s seats) Pause(*call.Call) (resume func()) { return func() {} }
func (s seats) End(*call.Call)                   {}

// A request keeps its seats while its client reads, and gives them back when the client is too slow.
func TestARequestWithASlowReaderGivesBackItsSeats(t *testing.T) {
	const chunk = 256 << 10
	for _, c := range []struct {
		name        string
		idle        time.Duration
		rate        int
		writes, n   int
		least, most time.Duration // until the seats are given back
	}{
		{"fast", 0, 100 << 20, 40, chunk, -1, -1},
		{"as fast as it must be", 0, 5 << 20, 40, chunk, -1, -1},
		{"a short pause", 200 * time.Millisecond, 100 << 20, 1, chunk, -1, -1},
		{"small answer", time.Hour, 1, 1, 4 << 10, -1, -1},
		{"reads nothing", time.Hour, 100 << 20, 1, chunk, 250 * time.Millisecond, time.Second},
		{"slow", 0, 1 << 20, 40, chunk, 250 * time.Millisecond, 2 * time.Second},
		{"stops in the middle", 0, 10, 1, 5 << 10, 250 * time.Millisecond, time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			began, released := time.Now(), time.Duration(-1)
			var mu sync.Mutex
			x := &call.Call{W: &call.Response{ResponseWriter: &drip{httptest.NewRecorder(), c.idle, c.rate}}}
			x.Flow.Taken = seats(func() {
				mu.Lock()
				defer mu.Unlock()
				if released < 0 {
					released = time.Since(began)
				}
			})
			x.ReleaseSeatsOfSlowReader()
			for range c.writes {
				if _, err := x.W.Write(make([]byte, c.n)); err != nil {
					t.Fatal(err)
				}
			}
			synctest.Wait()
			if before := released; before < c.least || before > c.most {
				t.Errorf("%s: released after %v, want %v to %v", c.name, before, c.least, c.most)
			}
			x.ReleaseSeats()
			if c.least < 0 && released < time.Since(began) {
				t.Errorf("%s: released after %v, before the request has ended", c.name, released)
			}
			after := released
			time.Sleep(time.Hour)
			if released != after {
				t.Errorf("%s: released again", c.name)
			}
		})
	}
}

// An error may be written when the request has ended: then there are no seats to give back.
func TestASlowReaderOfARequestThatHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := &call.Call{W: &call.Response{ResponseWriter: &drip{httptest.NewRecorder(), time.Hour, 1 << 20}}}
		released := 0
		x.Flow.Taken = seats(func() { released++ })
		x.ReleaseSeatsOfSlowReader()
		x.EndFlow()
		_, _ = x.W.Write(make([]byte, 64<<10))
		if released != 1 {
			t.Errorf("the seats are given back %d times", released)
		}
	})
}
