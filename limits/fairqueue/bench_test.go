package fairqueue_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"k8s.io/apiserver/pkg/util/flowcontrol/request"

	"stele.dev/stele/limits/fairqueue"
)

// The levels of the benchmarks: one with seats for all, one for which many wait.
var (
	roomy   = fairqueue.Config{Seats: 200, Queues: 64, HandSize: 6, QueueLength: 50}
	crowded = fairqueue.Config{Seats: 10, Queues: 64, HandSize: 6, QueueLength: 50}
)

// flowAndHash is a flow, and the hash by which kube-apiserver chooses its queues.
type flowAndHash struct {
	fairqueue.Flow
	Hash uint64
}

// flowsForBenchmark returns flows as of users of a cluster.
func flowsForBenchmark() []flowAndHash {
	flows := make([]flowAndHash, 256)
	for i := range flows {
		flows[i].Hash = uint64(i) * 0x9E3779B97F4A7C15
		flows[i].Flow = fairqueue.Flow{Schema: "service-accounts", Distinguisher: fmt.Sprintf("system:serviceaccount:team-%d:worker", i)}
	}
	return flows
}

// BenchmarkTake takes and releases one seat, when there are enough.
func BenchmarkTake(b *testing.B) {
	ctx := context.Background()
	work := fairqueue.Work{Seats: 1}
	b.Run("serial", func(b *testing.B) {
		b.ReportAllocs()
		s, flows := fairqueue.New(roomy), flowsForBenchmark()
		var t fairqueue.Ticket
		for i := 0; b.Loop(); i++ {
			if err := s.Take(ctx, &t, flows[i%len(flows)].Flow, work, 0, nil); err != nil {
				b.Fatal(err)
			}
			t.Release()
		}
	})
	b.Run("parallel", func(b *testing.B) {
		b.ReportAllocs()
		s, flows := fairqueue.New(roomy), flowsForBenchmark()
		var workers atomic.Int64
		b.RunParallel(func(p *testing.PB) {
			f := flows[int(workers.Add(1))%len(flows)]
			t := new(fairqueue.Ticket)
			for p.Next() {
				if err := s.Take(ctx, t, f.Flow, work, 0, nil); err != nil {
					b.Error(err)
					return
				}
				t.Release()
			}
		})
	})
	b.Run("exempt", func(b *testing.B) {
		b.ReportAllocs()
		s, flows := fairqueue.New(fairqueue.Config{Exempt: true}), flowsForBenchmark()
		var t fairqueue.Ticket
		for i := 0; b.Loop(); i++ {
			if err := s.Take(ctx, &t, flows[i%len(flows)].Flow, work, 0, nil); err != nil {
				b.Fatal(err)
			}
			t.Release()
		}
	})
}

// BenchmarkTakeUpstream does the same with kube-apiserver's queues.
func BenchmarkTakeUpstream(b *testing.B) {
	ctx := context.Background()
	work := request.WorkEstimate{InitialSeats: 1}
	b.Run("serial", func(b *testing.B) {
		b.ReportAllocs()
		s, flows := theirSet(b, roomy), flowsForBenchmark()
		for i := 0; b.Loop(); i++ {
			f := flows[i%len(flows)]
			r, _ := s.set.StartRequest(ctx, &work, f.Hash, f.Distinguisher, f.Schema, nil, nil, nil)
			r.Finish(func() {})
		}
	})
	b.Run("parallel", func(b *testing.B) {
		b.ReportAllocs()
		s, flows := theirSet(b, roomy), flowsForBenchmark()
		var workers atomic.Int64
		b.RunParallel(func(p *testing.PB) {
			f := flows[int(workers.Add(1))%len(flows)]
			for p.Next() {
				r, _ := s.set.StartRequest(ctx, &work, f.Hash, f.Distinguisher, f.Schema, nil, nil, nil)
				r.Finish(func() {})
			}
		})
	})
}

// BenchmarkQueued has 500 clients for 10 seats, so that almost every request waits.
func BenchmarkQueued(b *testing.B) {
	b.Run("ours", func(b *testing.B) {
		b.ReportAllocs()
		s := fairqueue.New(crowded)
		crowd(b, func(f flowAndHash) {
			var t fairqueue.Ticket
			if s.Take(context.Background(), &t, f.Flow, fairqueue.Work{Seats: 1}, 0, nil) == nil {
				t.Release()
			}
		})
	})
	b.Run("upstream", func(b *testing.B) {
		b.ReportAllocs()
		s := theirSet(b, crowded)
		crowd(b, func(f flowAndHash) {
			r, _ := s.set.StartRequest(context.Background(), &request.WorkEstimate{InitialSeats: 1}, f.Hash, f.Distinguisher, f.Schema, nil, nil, nil)
			if r != nil {
				r.Finish(func() {})
			}
		})
	})
}

// crowd lets 500 clients do b.N requests.
func crowd(b *testing.B, serve func(f flowAndHash)) {
	flows := flowsForBenchmark()
	var left atomic.Int64
	left.Store(int64(b.N))
	var clients sync.WaitGroup
	b.ResetTimer()
	for i := range 500 {
		clients.Go(func() {
			for left.Add(-1) >= 0 {
				serve(flows[i%len(flows)])
			}
		})
	}
	clients.Wait()
}
