package etcdlog_test

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/etcdlog"
	"stele.dev/stele/eventlog/etcdlog/etcdtest"
	"stele.dev/stele/eventlog/logpb"
)

// appending is a writer that appends the events of its callers, as a committer does: all that wait make one batch.
type appending struct {
	log   *eventlog.Log
	queue chan chan struct{}
	after eventlog.Head
	lost  int
}

func (a *appending) run(ctx context.Context, t testing.TB) {
	var group []chan struct{}
	for {
		if len(group) == 0 {
			select {
			case c := <-a.queue:
				group = append(group, c)
			case <-ctx.Done():
				return
			}
		}
		for len(a.queue) > 0 {
			group = append(group, <-a.queue)
		}
		if news := a.log.AtHand(a.after); len(news) > 0 {
			a.after = news[len(news)-1].Head()
		}
		if wait, changed := a.log.Turn(); wait > 0 {
			select {
			case <-time.After(wait):
			case <-changed:
			case <-ctx.Done():
				return
			}
			continue
		}
		entries := make([]*eventlog.Entry, len(group))
		for i := range entries {
			entries[i] = event(t)
		}
		won, newer, err := a.log.Append(ctx, a.after, eventlog.NewDraft(entries))
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			t.Error(err)
			return
		case won == nil:
			a.lost++
			a.after = newer[len(newer)-1].Head()
		default:
			a.after = won.Head()
			for _, c := range group {
				c <- struct{}{}
			}
			group = nil
		}
	}
}

// event is of about 1 KiB, half of it incompressible.
func event(t testing.TB) *eventlog.Entry {
	var noise [256]byte
	rand.Read(noise[:])
	e := &eventlog.Event{Meta: &logpb.Metadata{Type: logpb.Type_TYPE_CREATED, Object: &logpb.Object{Resource: "tests", Name: hex.EncodeToString(noise[:8])}}}
	e.AddContent(&logpb.Payload{Role: logpb.Role_ROLE_OBJECT}, fmt.Appendf(nil, `{"data":"%x","more":"%0500d"}`, noise, 0))
	entry, err := eventlog.Encode(e)
	if err != nil {
		t.Fatal(err)
	}
	return entry
}

// compete lets writers append for a while, and returns the number of events of each, and of lost appends.
func compete(t testing.TB, during time.Duration, callers int, backends ...*etcdlog.Backend) (did []int64, lost int, slowest time.Duration) {
	ctx, stop := context.WithTimeout(t.Context(), during)
	defer stop()
	var running sync.WaitGroup
	counts, longest := make([]atomic.Int64, len(backends)), atomic.Int64{}
	writers := make([]*appending, len(backends))
	for i, b := range backends {
		log, err := eventlog.Open(t.Context(), b, eventlog.Options{})
		if err != nil {
			t.Fatal(err)
		}
		at, err := log.ReadHead(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		w := &appending{log: log, queue: make(chan chan struct{}, callers), after: at}
		writers[i] = w
		running.Go(func() { // hears of the others
			for after := at; ctx.Err() == nil; {
				if batches, err := log.Next(ctx, after); err == nil {
					after = batches[len(batches)-1].Head()
				}
			}
		})
		running.Go(func() { w.run(ctx, t) })
		for range callers {
			running.Go(func() {
				for done := make(chan struct{}, 1); ; {
					begun := time.Now()
					w.queue <- done
					select {
					case <-done:
						counts[i].Add(1)
						for took := int64(time.Since(begun)); ; {
							if most := longest.Load(); took <= most || longest.CompareAndSwap(most, took) {
								break
							}
						}
					case <-ctx.Done():
						return
					}
				}
			})
		}
	}
	running.Wait()
	for i := range counts {
		did, lost = append(did, counts[i].Load()), lost+writers[i].lost
	}
	return did, lost, time.Duration(longest.Load())
}

// Writers on a cluster of three members have fair shares, also if one of them is 20 ms away from it.
func TestWritersOnAClusterTakeTurns(t *testing.T) {
	cluster := etcdtest.Start(t, 3)
	far := cluster.Route()
	for i := range 3 {
		far.Delay(i, 10*time.Millisecond)
	}
	for name, endpoints := range map[string][][]string{
		"near": {cluster.Endpoints(), cluster.Endpoints(), cluster.Endpoints()},
		"far":  {cluster.Endpoints(), far.Endpoints()},
	} {
		t.Run(name, func(t *testing.T) {
			var backends []*etcdlog.Backend
			for _, e := range endpoints {
				backends = append(backends, dialed(t, etcdlog.DialOptions{Endpoints: e, Prefix: "/" + name}))
			}
			did, lost, slowest := compete(t, 3*time.Second, 16, backends...)
			t.Log(did, "lost", lost, "slowest", slowest)
			sum := int64(0)
			for _, n := range did {
				sum += n
			}
			for i, n := range did {
				if n*int64(len(did))*3 < sum {
					t.Errorf("writer %d appended %d of %d events", i, n, sum)
				}
			}
		})
	}
}

// BenchmarkWriters measures what writers append together on a cluster of three members.
func BenchmarkWriters(b *testing.B) {
	cluster := etcdtest.Start(b, 3)
	for _, bc := range []struct{ writers, callers int }{{1, 64}, {3, 64}, {1, 192}, {3, 512}, {1, 512}} {
		b.Run(fmt.Sprintf("writers=%d/callers=%d", bc.writers, bc.callers), func(b *testing.B) {
			var backends []*etcdlog.Backend
			for range bc.writers {
				backends = append(backends, dialed(b, etcdlog.DialOptions{Endpoints: cluster.Endpoints(), Prefix: fmt.Sprintf("/%d-%d", bc.writers, bc.callers)}))
			}
			for b.Loop() {
				did, lost, slowest := compete(b, 3*time.Second, bc.callers, backends...)
				sum := int64(0)
				for _, n := range did {
					sum += n
				}
				b.ReportMetric(float64(sum)/3, "events/s")
				b.ReportMetric(float64(lost), "lost")
				b.ReportMetric(slowest.Seconds()*1000, "slowest-ms")
			}
		})
	}
}
