package memory_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"stele.dev/stele/limits/memory"
)

const (
	mib     = 1 << 20
	maxBody = 3 * mib
)

// usage is what a process is said to use. It is safe for concurrent use.
type usage struct {
	mu  sync.Mutex
	now memory.Usage
}

func (u *usage) get() memory.Usage {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.now
}

// collect says that a collection has found so much memory in use.
func (u *usage) collect(live int64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.now.Live, u.now.Cycles = live, u.now.Cycles+1
}

// hold says how much the process holds besides what is live.
func (u *usage) hold(bytes int64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.now.Held = bytes
}

// guardOf returns a guard with a budget of the given size.
func guardOf(budget int64) (*memory.Guard, *usage) {
	u := &usage{}
	return memory.New(memory.Options{Limit: (budget*100 + 69) / 70, MaxBody: maxBody, Usage: u.get}), u
}

func code(err error) int {
	var s apierrors.APIStatus
	if !errors.As(err, &s) {
		return 0
	}
	return int(s.Status().Code)
}

func take(t *testing.T, g *memory.Guard, k memory.Kind, n int64) func() {
	t.Helper()
	done, err := g.Take(t.Context(), k, n)
	if err != nil {
		t.Fatal(err)
	}
	return done
}

func TestSharesWaitInTheirOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, _ := guardOf(160 * mib)
		first := take(t, g, memory.Answers, 140*mib)
		var mu sync.Mutex
		var order []int
		for i := range 5 {
			go func() {
				done := take(t, g, memory.Answers, 140*mib)
				mu.Lock()
				order = append(order, i)
				mu.Unlock()
				time.Sleep(time.Second)
				done()
			}()
			synctest.Wait()
		}
		first()
		time.Sleep(10 * time.Second)
		mu.Lock()
		defer mu.Unlock()
		if fmt.Sprint(order) != "[0 1 2 3 4]" {
			t.Errorf("granted in the order %v", order)
		}
	})
}

func TestWithoutRoomForLongARequestIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, _ := guardOf(160 * mib)
		held := take(t, g, memory.Answers, 140*mib)
		began := time.Now()
		_, err := g.Take(t.Context(), memory.Past, 50*mib)
		var s apierrors.APIStatus
		if !errors.As(err, &s) || s.Status().Code != http.StatusTooManyRequests || s.Status().Details.RetryAfterSeconds == 0 || time.Since(began) != 30*time.Second {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		for _, part := range []string{"states of the past is full", "50 MiB", "most of it by answers", "list one namespace"} {
			if err == nil || !strings.Contains(err.Error(), part) {
				t.Errorf("%v does not say %q", err, part)
			}
		}
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := g.Take(short, memory.Past, 50*mib); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a request that has timed out: %v", err)
		}
		held()
		take(t, g, memory.Past, 50*mib)()
	})
}

func TestWhatNeverFitsIsRefusedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, _ := guardOf(160 * mib)
		began := time.Now()
		_, err := g.Take(t.Context(), memory.Answers, 200*mib)
		if code(err) != http.StatusRequestEntityTooLarge || time.Since(began) > 0 || !strings.Contains(err.Error(), "--memory") {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
	})
}

// Small shares pass a large one that waits, but not for ever: then they have only a part of the budget.
func TestALargeShareNeitherBlocksSmallOnesNorStarves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, _ := guardOf(160 * mib)
		held := take(t, g, memory.Answers, 20*mib)
		granted := make(chan struct{})
		go func() {
			defer close(granted)
			done := take(t, g, memory.Answers, 145*mib)
			time.Sleep(time.Second)
			done()
		}()
		synctest.Wait()
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		var longest time.Duration
		var mu sync.Mutex
		var clients sync.WaitGroup
		for range 1000 { // many clients that always have small requests, of 100 MiB together
			clients.Go(func() {
				for ctx.Err() == nil {
					began := time.Now()
					done, err := g.Take(ctx, memory.Answers, 100<<10)
					if err != nil {
						return
					}
					mu.Lock()
					longest = max(longest, time.Since(began))
					mu.Unlock()
					time.Sleep(10 * time.Millisecond)
					done()
				}
			})
		}
		time.Sleep(time.Second)
		held()
		began := time.Now()
		<-granted
		if waited := time.Since(began) - time.Second; waited > 5*time.Second {
			t.Errorf("the large share waited for %v", waited)
		}
		stop()
		clients.Wait()
		if longest > 2*time.Second {
			t.Errorf("a small share waited for %v", longest)
		}
	})
}

// Requests that take shares of all kinds, in their order, never wait for each other in a circle.
func TestManyRequestsWithSeveralSharesEnd(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			g, _ := guardOf(64 * mib)
			for range 8 {
				take(t, g, memory.Watches, mib)
			}
			began := time.Now()
			var all sync.WaitGroup
			for i := range uint64(60) {
				random := rand.New(rand.NewPCG(seed, i))
				all.Go(func() {
					for _, k := range []memory.Kind{memory.Questions, memory.Reading, memory.Decoding, memory.Past, memory.Answers} {
						most := int64(3 * mib)
						if k == memory.Decoding {
							most = 20 * mib
						}
						done, err := g.Take(t.Context(), k, 1+random.Int64N(most))
						if err != nil {
							t.Errorf("seed %d, %v: %v", seed, k, err)
							return
						}
						defer done()
						time.Sleep(time.Duration(random.IntN(50)) * time.Millisecond)
					}
				})
			}
			all.Wait()
			if took := time.Since(began); took > 30*time.Second {
				t.Errorf("seed %d took %v", seed, took)
			}
		})
	}
}

func TestWatchesTakeHalfAtMostAndDoNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, _ := guardOf(160 * mib)
		n := 0
		began := time.Now()
		for ; ; n++ {
			if _, err := g.Take(t.Context(), memory.Watches, 64<<10); err != nil {
				if code(err) != http.StatusTooManyRequests || time.Since(began) > 0 {
					t.Errorf("after %v: %v", time.Since(began), err)
				}
				break
			}
		}
		if want := 80 * 16; n != want {
			t.Errorf("%d watches of 64 KiB, want %d", n, want)
		}
		take(t, g, memory.Answers, 60*mib)()
	})
}

// The objects of the server leave less to requests, as soon as a collection has found them.
func TestTheBudgetShrinksWithWhatTheServerHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, u := guardOf(160 * mib)
		fits := func(n int64) bool {
			time.Sleep(time.Second)
			done, err := g.Take(t.Context(), memory.Answers, n)
			if err == nil {
				done()
			}
			return err == nil
		}
		collect := func(live int64) {
			for range 2 { // what was taken before the first one may still be live in it
				time.Sleep(time.Second)
				u.collect(live)
				_ = g.Try(memory.Answers, 0)
			}
		}
		if !fits(140 * mib) {
			t.Error("140 MiB of 160 do not fit")
		}
		if collect(80 * mib); fits(140*mib) || !fits(60*mib) {
			t.Error("the budget is not what 80 MiB of objects leave")
		}
		// What is live while shares are taken is theirs.
		held := take(t, g, memory.Answers, 60*mib)
		collect(140 * mib)
		held()
		if !fits(60 * mib) {
			t.Error("the memory of a share was taken for the server's own")
		}
		if collect(10 * mib); !fits(130 * mib) {
			t.Error("the budget did not grow again")
		}
	})
}

// If the process uses much more than the shares say, new ones wait for others to end.
func TestNothingIsGrantedNearTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, u := guardOf(160 * mib)
		held := take(t, g, memory.Answers, 20*mib)
		u.collect(220 * mib)
		time.Sleep(time.Second)
		if g.Try(memory.Answers, mib) {
			t.Error("a share was granted at 220 MiB of 228")
		}
		held()
		u.collect(30 * mib)
		time.Sleep(time.Second)
		if !g.Try(memory.Answers, mib) {
			t.Error("a share was not granted at 30 MiB of 228")
		}
	})
}

// Near the limit, large shares wait for those of their kind and of later kinds. A request that holds a share of an earlier
// kind goes on: otherwise it would wait for itself.
func TestNearTheLimitARequestGoesOn(t *testing.T) {
	for _, kinds := range [][]memory.Kind{
		{memory.Reading, memory.Decoding, memory.Answers}, {memory.Questions, memory.Reading, memory.Decoding}, {memory.Past, memory.Answers},
	} {
		synctest.Test(t, func(t *testing.T) {
			g, u := guardOf(160 * mib)
			u.collect(220 * mib)
			time.Sleep(time.Second)
			began := time.Now()
			var all sync.WaitGroup
			for range 5 {
				all.Go(func() {
					for _, k := range kinds {
						done, err := g.Take(t.Context(), k, 2*mib)
						if err != nil {
							t.Errorf("%v of %v: %v", k, kinds, err)
							return
						}
						defer done()
						time.Sleep(time.Second)
					}
				})
			}
			all.Wait()
			if took := time.Since(began); took > 20*time.Second {
				t.Errorf("5 requests for %v took %v", kinds, took)
			}
		})
	}
}

// Watches that were opened while there was room stay open when objects grow. The least budget is then for the others.
func TestWatchesLeaveRoomWhenObjectsGrow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, u := guardOf(512 * mib)
		for range 200 {
			take(t, g, memory.Watches, mib)
		}
		for range 2 {
			u.collect(650 * mib)
			time.Sleep(time.Second)
			_ = g.Try(memory.Answers, 0)
		}
		if _, err := g.Take(t.Context(), memory.Watches, 32<<10); code(err) != http.StatusTooManyRequests {
			t.Errorf("one more watch: %v", err)
		}
		read := take(t, g, memory.Reading, maxBody)
		take(t, g, memory.Decoding, 8*mib)()
		read()
		take(t, g, memory.Answers, 30*mib)()
	})
}

func TestMetrics(t *testing.T) {
	g, _ := guardOf(160 * mib)
	done := take(t, g, memory.Answers, 7*mib)
	defer done()
	_, _ = g.Take(t.Context(), memory.Past, 700*mib)
	want := `
# HELP stele_memory_budget_bytes Memory that requests and watches may take together: what the limit leaves beside the server's own.
# TYPE stele_memory_budget_bytes gauge
stele_memory_budget_bytes 1.6777216e+08
`
	if err := testutil.CollectAndCompare(g, strings.NewReader(want), "stele_memory_budget_bytes"); err != nil {
		t.Error(err)
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(g)
	all, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range all {
		for _, m := range f.Metric {
			labels := ""
			for _, l := range m.Label {
				labels += " " + l.GetValue()
			}
			got[f.GetName()+labels] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	if got["stele_memory_taken_bytes answers"] != 7*mib || got["stele_memory_refused_total past too_large"] != 1 {
		t.Errorf("%v", got)
	}
}

func body(n int) io.ReadCloser { return io.NopCloser(bytes.NewReader(make([]byte, n))) }

// read reads a body and begins to decode it.
func read(body io.ReadCloser) ([]byte, error) {
	raw, err := io.ReadAll(body)
	if d, ok := body.(interface{ Decode() error }); ok && err == nil {
		err = d.Decode()
	}
	return raw, err
}

func TestLargeBodiesWaitForRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, _ := guardOf(48 * mib)
		var requests sync.WaitGroup
		var mu sync.Mutex
		running, most := 0, 0
		for range 20 {
			requests.Go(func() {
				ctx, end := context.WithCancel(t.Context())
				defer end()
				raw, err := read(g.Body(ctx, body(maxBody), maxBody, ""))
				if err != nil || len(raw) != maxBody {
					t.Errorf("read %d bytes, %v", len(raw), err)
				}
				mu.Lock()
				running++
				most = max(most, running)
				mu.Unlock()
				time.Sleep(time.Second)
				mu.Lock()
				running--
				mu.Unlock()
			})
		}
		requests.Wait()
		if most != 2 {
			t.Errorf("at most %d large bodies were decoded at once, want 2", most)
		}
	})
}

// The values of a body take more memory than its bytes.
// Values take more memory than text, in each encoding: also maps in maps, which have no commas. Text in strings of JSON has no
// values, whatever it looks like.
func TestValuesCount(t *testing.T) {
	for _, test := range []struct {
		name, contentType, body string
		fits                    bool
	}{
		{"numbers", "application/json", `{"a":[` + strings.Repeat("1,", 100_000) + `1]}`, false},
		{"maps in maps", "application/merge-patch+json; charset=utf-8", `[` + strings.Repeat(strings.Repeat(`{"a":`, 9000)+"1"+strings.Repeat("}", 9000)+" ", 12) + `]`, false},
		{"a table in a string", "application/json", `{"a":"` + strings.Repeat(`1,{\"2\",\\\n`, 60_000) + `"}`, true},
		{"numbers after a string", "", `{"a":"\"\\","b":[` + strings.Repeat("1,", 100_000) + `1]}`, false},
		{"numbers", "application/yaml", "a: [" + strings.Repeat("1,", 100_000) + "1]", false},
		{"a quote before numbers", "application/yaml", "b: x\"\na: [" + strings.Repeat("1,", 100_000) + "1]", false},
		{"lists in lists", "application/apply-patch+yaml", strings.Repeat(strings.Repeat("- ", 9000)+"1\n", 12), false},
		{"maps in maps", "application/cbor", strings.Repeat("\xa1\x61a", 100_000), false},
		{"text", "application/cbor", strings.Repeat("text", 300_000), true},
	} {
		t.Run(test.contentType+" "+test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g, _ := guardOf(48 * mib)
				whole := strings.NewReader(test.body)
				_, err := read(g.Body(t.Context(), io.NopCloser(whole), whole.Size(), test.contentType))
				if want := map[bool]int{true: 0, false: http.StatusRequestEntityTooLarge}[test.fits]; code(err) != want || test.fits && err != nil {
					t.Errorf("%d bytes: %v, want code %d", whole.Size(), err, want)
				}
			})
		})
	}
}

// Parts of a body may end anywhere, also in an escape.
func TestValuesCountInSmallParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, _ := guardOf(48 * mib)
		text := `{"a":[` + strings.Repeat(`"\\",`, 100_000) + `"\"",` + strings.Repeat(`"\",{"`, 100_000) + `"]}`
		whole := g.Body(t.Context(), io.NopCloser(iotest.OneByteReader(strings.NewReader(text))), int64(len(text)), "")
		_, err := read(whole)
		if code(err) != http.StatusRequestEntityTooLarge || !strings.Contains(err.Error(), "62 MiB") {
			t.Errorf("a body of 100,000 short strings and a long one: %v", err)
		}
	})
}

func BenchmarkValues(b *testing.B) {
	g := memory.New(memory.Options{MaxBody: maxBody})
	text := strings.Repeat(`{"name":"LOG_LEVEL","value":"some text of usual length","optional":true},`, 14_000)
	buffer := make([]byte, 32<<10)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		c := g.Body(b.Context(), io.NopCloser(strings.NewReader(text)), int64(len(text)), "application/json")
		for err := error(nil); err == nil; {
			_, err = c.Read(buffer)
		}
	}
}

func TestSmallBodiesDoNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, _ := guardOf(48 * mib)
		ctx, end := context.WithCancel(t.Context())
		defer end()
		for range 2 {
			if _, err := read(g.Body(ctx, body(maxBody), -1, "")); err != nil {
				t.Fatal(err)
			}
		}
		began := time.Now()
		if _, err := read(g.Body(ctx, body(1000), 1000, "")); err != nil || time.Since(began) > 0 {
			t.Errorf("a small body: %v after %v", err, time.Since(began))
		}
	})
}

// A client that announces a body and does not send it takes no more than the room to read it.
func TestClientsThatSendNothingDoNotKeepOthersFromDecoding(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, _ := guardOf(48 * mib)
		ctx, end := context.WithCancel(t.Context())
		defer end()
		for range 2 {
			reader, writer := io.Pipe()
			go func() { _, _ = read(g.Body(ctx, reader, maxBody, "")) }()
			defer writer.Close()
		}
		synctest.Wait()
		if _, err := read(g.Body(ctx, io.NopCloser(strings.NewReader(strings.Repeat("x", maxBody))), maxBody, "")); err != nil {
			t.Error(err)
		}
	})
}

func BenchmarkTake(b *testing.B) {
	g := memory.New(memory.Options{MaxBody: maxBody})
	b.ReportAllocs()
	for b.Loop() {
		done, err := g.Take(b.Context(), memory.Answers, mib)
		if err != nil {
			b.Fatal(err)
		}
		done()
	}
}

// Bodies of small values take ten times their length and more. Those that have been read do not take the room in which one of
// them could be decoded.
func TestBodiesThatTakeMuchMoreThanTheirLengthAreDecodedInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, _ := guardOf(64 * mib)
		for range 100 {
			take(t, g, memory.Watches, 32<<10)
		}
		text := `{"a":[` + strings.Repeat("1,", 48_000) + `1]` + strings.Repeat(" ", maxBody-100_000) + `}` // 40 MiB
		began := time.Now()
		var requests sync.WaitGroup
		for range 20 {
			requests.Go(func() {
				ctx, end := context.WithCancel(t.Context())
				defer end()
				b := g.Body(ctx, io.NopCloser(strings.NewReader(text)), int64(len(text)), "application/json")
				if _, err := io.Copy(io.Discard, b); err != nil {
					t.Error(err)
				}
				time.Sleep(time.Millisecond) // others are read meanwhile
				if err := b.(interface{ Decode() error }).Decode(); err != nil {
					t.Error(err)
				}
				time.Sleep(100 * time.Millisecond)
			})
		}
		requests.Wait()
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("20 bodies that take 100 ms each took %v", took)
		}
	})
}
