package memory_test

import (
	"context"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"stele.dev/stele/limits/memory"
)

// While many shares are taken, the own memory is lowered slowly: what was not counted as a share does not make the budget small
// for as long as the load lasts.
func TestTheBudgetGrowsAgainDuringALoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, u := guardOf(160 * mib)
		held := take(t, g, memory.Answers, 60*mib)
		defer held()
		collect := func(live int64, times int) {
			for range times {
				time.Sleep(time.Second)
				u.collect(live)
				_ = g.Try(memory.Answers, 0)
			}
		}
		collect(140*mib, 2) // 80 MiB are not known
		if _, err := g.Take(t.Context(), memory.Reading, 60*mib); code(err) == 0 {
			t.Error("60 MiB of 80 fit beside 60")
		}
		collect(70*mib, 3)
		if g.Try(memory.Answers, 60*mib) {
			t.Error("the budget grew at once")
		}
		collect(70*mib, 60)
		if !g.Try(memory.Answers, 60*mib) {
			t.Error("the budget did not grow")
		}
	})
}

// A process that allocates nothing after a load does not collect by itself.
func TestAfterALoadMemoryIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u, collected := &usage{}, atomic.Int64{}
		g := memory.New(memory.Options{Limit: 200 * mib, MaxBody: maxBody, Usage: u.get, Collect: func() {
			collected.Add(1)
			u.hold(0)
			u.collect(20 * mib)
		}})
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go func() { _ = g.Run(ctx) }()
		after := func(d time.Duration) int64 {
			time.Sleep(d)
			synctest.Wait()
			return collected.Swap(0)
		}
		if n := after(time.Hour); n != 0 {
			t.Errorf("%d collections while the process has nothing to give back", n)
		}
		held := take(t, g, memory.Answers, 60*mib)
		u.collect(130 * mib)
		if n := after(time.Hour); n != 0 {
			t.Errorf("%d collections during the load", n)
		}
		if held(); after(time.Minute) != 1 {
			t.Error("no collection after the load, or several")
		}
		if !g.Try(memory.Answers, 100*mib) {
			t.Error("the budget is not what it was before the load")
		}
		g.Free(memory.Answers, 100*mib)
		u.hold(30 * mib)
		if n := after(time.Minute); n != 1 {
			t.Errorf("%d collections while the process holds 30 MiB of garbage, want 1", n)
		}
	})
}

// A client of HTTP/2 sends the first part of a body before the server reads it.
func TestArrivingBodiesAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := &usage{}
		g := memory.New(memory.Options{Limit: (160*mib*100 + 69) / 70, MaxBody: maxBody, Usage: u.get, Window: 256 << 10})
		ctx, end := context.WithCancel(t.Context())
		arrived := 0
		for {
			_, err := g.ArrivingBody(ctx, body(maxBody), maxBody, "")
			if err != nil {
				if code(err) != http.StatusTooManyRequests {
					t.Error(err)
				}
				break
			}
			arrived++
		}
		if arrived < 200 || arrived > 500 { // of 256 KiB, in at most 125 MiB
			t.Errorf("%d bodies arrive at once", arrived)
		}
		if _, err := g.ArrivingBody(ctx, body(1000), 1000, ""); err != nil {
			t.Errorf("a small body: %v", err)
		}
		end()
		synctest.Wait()
		// A body that has been read does not arrive any more, although its request goes on.
		for range 200 {
			b, err := g.ArrivingBody(t.Context(), body(64<<10), 64<<10, "")
			if err != nil {
				t.Fatal(err)
			}
			if raw, err := read(b); err != nil || len(raw) != 64<<10 {
				t.Fatalf("%d bytes, %v", len(raw), err)
			}
		}
	})
}

// Answers and bodies go soon: a watch waits for them, if there is room among watches.
func TestAWatchWaitsForWhatGoesSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, _ := guardOf(160 * mib)
		done := take(t, g, memory.Answers, 150*mib)
		time.AfterFunc(2*time.Second, done)
		began := time.Now()
		take(t, g, memory.Watches, 1*mib)()
		if took := time.Since(began); took != 2*time.Second {
			t.Errorf("it waited for %v", took)
		}
		forever := take(t, g, memory.Answers, 150*mib)
		defer forever()
		began = time.Now()
		if _, err := g.Take(t.Context(), memory.Watches, 1*mib); code(err) != http.StatusTooManyRequests || time.Since(began) > 5*time.Second {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
	})
}

// The size of a share changes, and nothing is lost or counted twice.
func TestSharesChangeTheirSize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, _ := guardOf(160 * mib)
		s, err := g.Share(t.Context(), memory.Answers, 20*mib)
		if err != nil {
			t.Fatal(err)
		}
		if s.Grow(140*mib) || !s.Grow(100*mib) || s.Size() != 120*mib {
			t.Errorf("it has grown to %d MiB", s.Size()/mib)
		}
		granted := make(chan struct{})
		go func() {
			defer close(granted)
			take(t, g, memory.Answers, 100*mib)()
		}()
		synctest.Wait()
		if s.Grow(mib) {
			t.Error("it grew past one that waits")
		}
		s.Fit(50 << 10)
		<-granted
		s.Fit(140 * mib)
		s.Free()
		s.Free()
		if s.Fit(mib); s.Size() != 0 {
			t.Error("a share that was given back has a size")
		}
		take(t, g, memory.Answers, g.Most(memory.Answers))()
	})
}
