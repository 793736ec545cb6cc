package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"stele.dev/stele/core/plane/planetest"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/etcdlog"
	"stele.dev/stele/eventlog/etcdlog/etcdtest"
)

func TestMain(m *testing.M) {
	etcdtest.Member()
	os.Exit(m.Run())
}

// TestClocksDiffer runs replicas whose clocks differ by minutes and jump, on an etcd whose leader changes.
func TestClocksDiffer(t *testing.T) {
	etcd := etcdtest.Start(t, 3)
	h := NewHistory()
	dial := func() *etcdlog.Backend {
		b, err := etcdlog.Dial(t.Context(), etcdlog.DialOptions{Endpoints: etcd.Route().Endpoints()})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = b.Close() })
		return b
	}
	var clients []*Client
	clocks := make([]atomic.Int64, 3) // how far each is ahead
	for i, ahead := range []time.Duration{-2 * time.Minute, 0, 2 * time.Minute} {
		clocks[i].Store(int64(ahead))
		p := planetest.Start(t, planetest.Options{Backend: dial(), Clock: func() time.Time {
			return time.Now().Add(time.Duration(clocks[i].Load()))
		}})
		if i == 0 {
			p.Bootstrap(t, bundle)
		}
		clients = append(clients, &Client{
			History: h, Replica: func() string { return fmt.Sprint(i) }, URL: "http://stele.example", Namespace: "default",
			Transport: handler{p.Plane}, Timeout: 10 * time.Second,
		})
	}
	var written atomic.Int64
	load := Load{Objects: 5, Client: func(rng *rand.Rand) *Client { return clients[rng.IntN(len(clients))] }, Done: func(o *Operation) {
		if o.Verb.Writes() && (o.Code == 200 || o.Code == 201) {
			written.Add(1)
		}
	}}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		load.Run(ctx, 6, 3)
	}()
	rng := rand.New(rand.NewPCG(3, 3))
	for range 3 {
		want := written.Load() + 40
		for deadline := time.Now().Add(time.Minute); written.Load() < want; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal("fewer than 40 writes within a minute")
			}
		}
		clocks[rng.IntN(len(clocks))].Store(int64(4*time.Minute) - rng.Int64N(int64(8*time.Minute)))
		leader := etcd.Leader()
		etcd.Kill(leader)
		etcd.Restart(leader)
	}
	cancel()
	<-done
	from, err := eventlog.Open(t.Context(), dial(), eventlog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	log, err := ReadLog(t.Context(), from, "default")
	if err != nil {
		t.Fatal(err)
	}
	if err := Check(h.Operations(), log); err != nil {
		t.Error(err)
	}
}
