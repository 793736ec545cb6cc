package etcdlog_test

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/etcdlog"
	"stele.dev/stele/eventlog/etcdlog/etcdtest"
	"stele.dev/stele/eventlog/logtest"
)

func TestMain(m *testing.M) {
	etcdtest.Member()
	os.Exit(m.Run())
}

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

// Each backend has its own connections to a cluster of three members.
func TestClusterConformance(t *testing.T) {
	cluster := etcdtest.Start(t, 3)
	logs := 0
	logtest.Run(t, func(t *testing.T) logtest.Cluster {
		logs++
		options := etcdlog.DialOptions{Endpoints: cluster.Endpoints(), Prefix: fmt.Sprintf("/log%d", logs)}
		return logtest.Cluster{Open: func() eventlog.Backend { return dialed(t, options) }, Compact: func() { compact(t, cluster) }}
	})
}

// compact makes all members free the space of what was deleted.
func compact(t testing.TB, c *etcdtest.Cluster) {
	t.Helper()
	newest, err := c.Client(0).Put(t.Context(), "newest", "") // databases count what is free when they have written something else
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Client(0).Compact(t.Context(), newest.Header.Revision, clientv3.WithCompactPhysical()); err != nil {
		t.Fatal(err)
	}
}

// dialed returns a backend of a cluster, which is closed with the test.
func dialed(t testing.TB, o etcdlog.DialOptions) *etcdlog.Backend {
	t.Helper()
	b, err := etcdlog.Dial(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b
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
