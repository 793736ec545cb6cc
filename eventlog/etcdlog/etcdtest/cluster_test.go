package etcdtest_test

import (
	"context"
	"os"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"stele.dev/stele/eventlog/etcdlog/etcdtest"
)

func TestMain(m *testing.M) {
	etcdtest.Member()
	os.Exit(m.Run())
}

// client returns a client of one endpoint.
func client(t *testing.T, endpoint string) *clientv3.Client {
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// get reads a key, and repeats that until it succeeds.
func get(t *testing.T, c *clientv3.Client, key string) string {
	t.Helper()
	var err error
	for until := time.Now().Add(time.Minute); time.Now().Before(until); {
		var r *clientv3.GetResponse
		if r, err = getOnce(t, c, key, 5*time.Second); err == nil {
			if len(r.Kvs) == 0 {
				return ""
			}
			return string(r.Kvs[0].Value)
		}
	}
	t.Fatal(err)
	return ""
}

func getOnce(t *testing.T, c *clientv3.Client, key string, timeout time.Duration) (*clientv3.GetResponse, error) {
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	return c.Get(ctx, key)
}

func put(t *testing.T, c *clientv3.Client, key, value string) {
	t.Helper()
	if _, err := c.Put(t.Context(), key, value); err != nil {
		t.Fatal(err)
	}
}

func TestFaults(t *testing.T) {
	c := etcdtest.Start(t, 3)
	put(t, client(t, c.Endpoints()[0]), "k", "1")
	for i, e := range c.Endpoints() {
		if got := get(t, client(t, e), "k"); got != "1" {
			t.Errorf("member %d has %q", i, got)
		}
	}

	old := c.Leader()
	c.Cut(old)
	leader := c.Leader()
	for ; leader == old; leader = c.Leader() { // until it notices
	}
	put(t, c.Client(leader), "k", "2")
	if _, err := getOnce(t, client(t, c.Endpoints()[old]), "k", time.Second); err == nil {
		t.Error("a member that was cut off answers a linearizable read")
	}
	c.Heal(old)
	if got := get(t, client(t, c.Endpoints()[old]), "k"); got != "2" {
		t.Errorf("a member whose cut has ended has %q", got)
	}

	c.Pause(leader)
	if _, err := getOnce(t, client(t, c.Endpoints()[leader]), "k", 100*time.Millisecond); err == nil {
		t.Error("a paused member answers")
	}
	next := c.Leader()
	put(t, c.Client(next), "k", "3")
	c.Resume(leader)
	if got := get(t, client(t, c.Endpoints()[leader]), "k"); got != "3" {
		t.Errorf("a member whose pause has ended has %q", got)
	}

	c.Kill(next)
	put(t, c.Client(c.Leader()), "k", "4")
	c.Restart(next)
	if got := get(t, client(t, c.Endpoints()[next]), "k"); got != "4" {
		t.Errorf("a restarted member has %q", got)
	}
}

func TestClientsAreCutOffAndDelayed(t *testing.T) {
	c := etcdtest.Start(t, 1)
	near, far := client(t, c.Endpoints()[0]), c.Route()
	put(t, near, "k", "1")
	c.CutClients(0)
	if _, err := getOnce(t, near, "k", 100*time.Millisecond); err == nil {
		t.Error("a client that was cut off gets an answer")
	}
	far.Delay(0, 20*time.Millisecond)
	distant := client(t, far.Endpoints()[0])
	if got := get(t, distant, "k"); got != "1" {
		t.Errorf("another route leads to %q", got)
	}
	began := time.Now()
	get(t, distant, "k")
	if took := time.Since(began); took < 40*time.Millisecond {
		t.Errorf("a read over 20 ms in each direction took %v", took)
	}
	c.HealClients(0)
	if got := get(t, near, "k"); got != "1" {
		t.Errorf("a client whose cut has ended gets %q", got)
	}
}

func TestRestoredFilesHaveForgotten(t *testing.T) {
	c := etcdtest.Start(t, 3)
	put(t, c.Client(c.Leader()), "k", "1")
	restore := c.Save()
	put(t, c.Client(c.Leader()), "k", "2")
	restore()
	if got := get(t, client(t, c.Endpoints()[1]), "k"); got != "1" {
		t.Errorf("the restored cluster has %q", got)
	}
}
