package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"stele.dev/stele/core/run/plane/planetest"
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
	clocks := make([]atomic.Int64, 3) // how far each is ahead
	clocks[0].Store(-int64(2 * time.Minute))
	clocks[2].Store(int64(2 * time.Minute))
	load := startLoad(t, etcd, func(i int) time.Time { return time.Now().Add(time.Duration(clocks[i].Load())) })
	rng := rand.New(rand.NewPCG(3, 3))
	for range 3 {
		load.progress(40)
		clocks[rng.IntN(len(clocks))].Store(int64(4*time.Minute) - rng.Int64N(int64(8*time.Minute)))
		leader := etcd.Leader()
		etcd.Kill(leader)
		etcd.Restart(leader)
	}
	load.check()
}

// TestEtcdIsFullMeanwhile fills etcd with keys of others until it refuses writes, and makes room again, twice.
func TestEtcdIsFullMeanwhile(t *testing.T) {
	etcd := etcdtest.Start(t, 3, etcdtest.Quota(16<<20))
	load := startLoad(t, etcd, func(int) time.Time { return time.Now() })
	client := etcd.Client(0)
	for range 2 {
		load.progress(40)
		refused := load.refused.Load()
		junk := strings.Repeat("x", 500<<10)
		for n := 0; load.refused.Load() < refused+20; n++ {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			_, err := client.Put(ctx, fmt.Sprintf("junk/%d", n), junk)
			cancel()
			if err != nil && !errors.Is(err, rpctypes.ErrNoSpace) {
				t.Fatal(err)
			}
			if n > 1000 {
				t.Fatal("no write was refused")
			}
		}
		makeRoom(t, etcd)
	}
	load.progress(40)
	load.check()
}

// makeRoom does what an operator does: it deletes the keys of others, compacts, defragments and ends the alarm.
func makeRoom(t *testing.T, etcd *etcdtest.Cluster) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	client := etcd.Client(0)
	deleted, err := client.Delete(ctx, "junk/", clientv3.WithPrefix())
	if err == nil {
		_, err = client.Compact(ctx, deleted.Header.GetRevision(), clientv3.WithCompactPhysical())
	}
	for i := range 3 {
		if err == nil {
			_, err = etcd.Client(i).Defragment(ctx, etcd.Endpoints()[i])
		}
	}
	if err == nil {
		_, err = client.AlarmDisarm(ctx, &clientv3.AlarmMember{})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// loaded are three replicas in this process, with clients.
type loaded struct {
	t                *testing.T
	etcd             *etcdtest.Cluster
	history          *History
	written, refused atomic.Int64
	stop             func()
}

// startLoad starts replicas, each with a clock, and clients.
func startLoad(t *testing.T, etcd *etcdtest.Cluster, clock func(replica int) time.Time) *loaded {
	t.Helper()
	l := &loaded{t: t, etcd: etcd, history: NewHistory()}
	var clients []*Client
	for i := range 3 {
		p := planetest.Start(t, planetest.Options{Backend: l.dial(), Clock: func() time.Time { return clock(i) }})
		if i == 0 {
			p.Bootstrap(t, bundle)
		}
		clients = append(clients, &Client{
			History: l.history, Replica: func() string { return fmt.Sprint(i) }, URL: "http://stele.example", Namespace: "default",
			Transport: handler{p.Plane}, Timeout: 10 * time.Second,
		})
	}
	load := Load{Objects: 5, Client: func(rng *rand.Rand) *Client { return clients[rng.IntN(len(clients))] }, Done: func(o *Operation) {
		switch {
		case o.Verb.Writes() && (o.Code == 200 || o.Code == 201):
			l.written.Add(1)
		case o.Code == 507:
			l.refused.Add(1)
		}
	}}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		load.Run(ctx, 6, 3)
	}()
	l.stop = func() {
		cancel()
		<-done
	}
	t.Cleanup(l.stop)
	return l
}

// dial returns a connection to etcd of its own.
func (l *loaded) dial() *etcdlog.Backend {
	l.t.Helper()
	b, err := etcdlog.Dial(l.t.Context(), etcdlog.DialOptions{Endpoints: l.etcd.Route().Endpoints()})
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { _ = b.Close() })
	return b
}

// progress waits until more writes are acknowledged.
func (l *loaded) progress(writes int64) {
	l.t.Helper()
	want := l.written.Load() + writes
	for deadline := time.Now().Add(time.Minute); l.written.Load() < want; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			l.t.Fatalf("fewer than %d writes within a minute", writes)
		}
	}
}

// check stops the clients, and checks what they were told.
func (l *loaded) check() {
	l.t.Helper()
	l.stop()
	from, err := eventlog.Open(l.t.Context(), l.dial(), eventlog.Options{})
	if err != nil {
		l.t.Fatal(err)
	}
	log, err := ReadLog(l.t.Context(), from, "default")
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Logf("%d operations, %d events", len(l.history.Operations()), len(log.Events))
	if err := Check(l.history.Operations(), log); err != nil {
		l.t.Error(err)
	}
}
