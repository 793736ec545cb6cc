package etcdlog_test

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/etcdlog"
	"stele.dev/stele/eventlog/logtest"
)

func embedded(t testing.TB, dir string) *etcdlog.Backend {
	t.Helper()
	b, err := etcdlog.Embed(t.Context(), etcdlog.EmbedOptions{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b
}

func TestEmbeddedConformance(t *testing.T) {
	logtest.Run(t, func(t *testing.T) logtest.Cluster {
		b := embedded(t, t.TempDir())
		return logtest.Cluster{Open: func() eventlog.Backend { return b }}
	})
}

// This test runs an etcd of its own, with a gRPC client for each backend.
func TestClientConformance(t *testing.T) {
	logtest.Run(t, func(t *testing.T) logtest.Cluster {
		endpoint := serveEtcd(t)
		return logtest.Cluster{Open: func() eventlog.Backend {
			client, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, Logger: zap.NewNop()})
			if err != nil {
				t.Fatal(err)
			}
			b := etcdlog.New(client, "/stele", 0)
			t.Cleanup(func() { b.Close(); client.Close() })
			return b
		}}
	})
}

func serveEtcd(t testing.TB) (endpoint string) {
	t.Helper()
	cfg := embed.NewConfig()
	cfg.Dir = t.TempDir()
	cfg.ListenPeerUrls = nil
	cfg.ListenClientUrls[0].Host = "127.0.0.1:0"
	cfg.AdvertiseClientUrls[0].Host = "127.0.0.1:0"
	cfg.TickMs, cfg.ElectionMs = 10, 100
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	etcd, err := embed.StartEtcd(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(etcd.Close)
	<-etcd.Server.ReadyNotify()
	return etcd.Clients[0].Addr().String()
}

func TestEmbeddedKeepsItsLogAcrossRestarts(t *testing.T) {
	dir := t.TempDir()
	var id eventlog.ID
	for i := range 3 {
		b := embedded(t, dir)
		log, err := eventlog.Open(t.Context(), b, eventlog.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if i > 0 && log.ID() != id {
			t.Fatalf("log %v became %v", id, log.ID())
		}
		id = log.ID()
		batches, err := log.CatchUp(t.Context(), log.Start())
		if err != nil || len(batches) != i+1 {
			t.Fatalf("start %d: %d batches, %v", i, len(batches), err)
		}
		tip := batches[i].Head()
		if won, _, err := log.Append(t.Context(), tip, eventlog.NewDraft([]*eventlog.Entry{logtest.Entry(t, "x")})); won == nil || err != nil {
			t.Fatal(err)
		}
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// After an append that may have been applied, only the store knows the outcome: a disk that has become full
// must not prevent it from being found out.
func TestALackOfRoomKeepsBackOnlyFirstTries(t *testing.T) {
	b, err := etcdlog.Embed(t.Context(), etcdlog.EmbedOptions{Dir: t.TempDir(), MinFree: 1 << 62})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	p := eventlog.Proposal{To: []byte("head"), At: 1, Value: []byte("batch")}
	if _, err := b.Append(t.Context(), p); !errors.Is(err, eventlog.ErrFull) {
		t.Errorf("the first try: %v, want ErrFull", err)
	}
	p.Again = true
	if a, err := b.Append(t.Context(), p); err != nil || !a.Applied {
		t.Errorf("a later one: %+v, %v", a, err)
	}
}

// Events of 1 KiB, one append in flight, by the number of events per batch.
func BenchmarkAppend(b *testing.B) {
	for _, size := range []int{1, 8, 64, 256} {
		b.Run(fmt.Sprintf("events=%d", size), func(b *testing.B) {
			log, err := eventlog.Open(b.Context(), embedded(b, b.TempDir()), eventlog.Options{BatchLimit: 4 << 20})
			if err != nil {
				b.Fatal(err)
			}
			batches, err := log.CatchUp(b.Context(), log.Start())
			if err != nil {
				b.Fatal(err)
			}
			tip := batches[0].Head()
			noise := make([]byte, 512)
			for b.Loop() {
				entries := make([]*eventlog.Entry, size)
				for i := range entries {
					rand.Read(noise)
					entries[i] = logtest.Entry(b, hex.EncodeToString(noise))
				}
				won, _, err := log.Append(b.Context(), tip, eventlog.NewDraft(entries))
				if err != nil {
					b.Fatal(err)
				}
				tip = won.Head()
			}
			b.ReportMetric(float64(size)*float64(b.N)/b.Elapsed().Seconds(), "events/s")
		})
	}
}

func BenchmarkConfirm(b *testing.B) {
	log, err := eventlog.Open(b.Context(), embedded(b, b.TempDir()), eventlog.Options{})
	if err != nil {
		b.Fatal(err)
	}
	batches, err := log.CatchUp(b.Context(), log.Start())
	if err != nil {
		b.Fatal(err)
	}
	tip := batches[0].Head()
	for b.Loop() {
		if _, err := log.CatchUp(b.Context(), tip); err != nil {
			b.Fatal(err)
		}
	}
}
