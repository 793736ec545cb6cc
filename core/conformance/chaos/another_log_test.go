package chaos

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"stele.dev/stele/core/run/plane/planetest"
	"stele.dev/stele/core/status"
	"stele.dev/stele/eventlog/etcdlog"
	"stele.dev/stele/eventlog/etcdlog/etcdtest"
)

// hostOf returns the address in a URL.
func hostOf(t *testing.T, endpoint string) string {
	t.Helper()
	u, err := url.Parse(endpoint)
	if err != nil {
		t.Fatal(err)
	}
	return u.Host
}

// TestAnotherLogUnderARunningReplica moves the endpoint of a running replica to an etcd with another log, or with none, and lets etcd
// forget what the replica has read. The replica must neither answer from the other log nor write to it. It stops if its cluster has
// another past. If the endpoint leads to another cluster, it waits for its own, or stops when it has read the other log.
func TestAnotherLogUnderARunningReplica(t *testing.T) {
	for name, other := range map[string]func(t *testing.T, etcd *etcdtest.Cluster, replica *planetest.Plane, balancer *Balancer) *etcdtest.Cluster{
		"another log": func(t *testing.T, etcd *etcdtest.Cluster, _ *planetest.Plane, balancer *Balancer) *etcdtest.Cluster {
			other := etcdtest.Start(t, 1)
			planeOn(t, other.Endpoints()[0]).Bootstrap(t, bundle)
			balancer.SetTargets(hostOf(t, other.Endpoints()[0]))
			return other
		},
		"no log": func(t *testing.T, etcd *etcdtest.Cluster, _ *planetest.Plane, balancer *Balancer) *etcdtest.Cluster {
			other := etcdtest.Start(t, 1)
			balancer.SetTargets(hostOf(t, other.Endpoints()[0]))
			return other
		},
		"a log without its head": func(t *testing.T, etcd *etcdtest.Cluster, _ *planetest.Plane, _ *Balancer) *etcdtest.Cluster {
			if _, err := etcd.Client(0).Delete(t.Context(), "/stele/head"); err != nil {
				t.Fatal(err)
			}
			return etcd
		},
		"an older log": func(t *testing.T, etcd *etcdtest.Cluster, replica *planetest.Plane, _ *Balancer) *etcdtest.Cluster {
			restore := etcd.Save()
			create(t, replica, "forgotten")
			restore()
			return etcd
		},
		"an older log that another replica continues": func(t *testing.T, etcd *etcdtest.Cluster, replica *planetest.Plane, balancer *Balancer) *etcdtest.Cluster {
			restore := etcd.Save()
			create(t, replica, "forgotten")
			balancer.SetTargets() // so that the replica sees the older log only when it is not older any more
			balancer.Reset()
			restore()
			next := planeOn(t, etcd.Endpoints()[0])
			create(t, next, "another")
			create(t, next, "more")
			balancer.SetTargets(hostOf(t, etcd.Endpoints()[0]))
			return etcd
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			etcd := etcdtest.Start(t, 1)
			balancer, err := NewBalancer(hostOf(t, etcd.Endpoints()[0]))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = balancer.Close() })
			p := planeOn(t, "http://"+balancer.Address())
			p.Bootstrap(t, bundle)
			create(t, p, "first")
			now := other(t, etcd, p, balancer)
			before := keys(t, now)
			balancer.Reset()
			h := NewHistory()
			client := &Client{History: h, Replica: func() string { return "" }, URL: "http://stele.example", Namespace: "default", Transport: handler{p.Plane}, Timeout: time.Second}
			for range 2 {
				for _, r := range []Request{{Verb: Create, Name: "wrong"}, {Verb: Get, Name: "first"}, {Verb: List}} {
					if o := client.Do(t.Context(), 0, r); o.Code > 0 && o.Code < 500 {
						t.Fatalf("the replica answers: %s", o)
					}
				}
			}
			within := time.Minute
			if now != etcd {
				within = 100 * time.Millisecond
			}
			ctx, cancel := context.WithTimeout(t.Context(), within)
			defer cancel()
			if _, err := p.Committer.Confirm(ctx); err == nil || now == etcd && !errors.Is(err, status.ErrStopped) {
				t.Errorf("a confirmation says %v", err)
			}
			if after := keys(t, now); after != before {
				t.Errorf("etcd had the keys %s, and has %s", before, after)
			}
			p.Stop()
			t.Log(p.Err)
		})
	}
}

func planeOn(t *testing.T, endpoint string) *planetest.Plane {
	t.Helper()
	b, err := etcdlog.Dial(t.Context(), etcdlog.DialOptions{Endpoints: []string{endpoint}})
	if err != nil {
		t.Fatal(err)
	}
	return planetest.Start(t, planetest.Options{Backend: b})
}

func create(t *testing.T, p *planetest.Plane, name string) {
	t.Helper()
	client := &Client{History: NewHistory(), Replica: func() string { return "" }, URL: "http://stele.example", Namespace: "default", Transport: handler{p.Plane}, Timeout: time.Minute}
	if o := client.Do(t.Context(), 0, Request{Verb: Create, Name: name, Value: name}); o.Code != http.StatusCreated {
		t.Fatal(o)
	}
}

// keys returns the keys of the log in an etcd, without the line of those who wait for their turn: a replica that finds out that it is
// wrong by an append that lost may leave its place there, which the next winner removes.
func keys(t *testing.T, etcd *etcdtest.Cluster) string {
	t.Helper()
	resp, err := etcd.Client(0).Get(t.Context(), "/stele", clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, kv := range resp.Kvs {
		if !strings.Contains(string(kv.Key), "/waiting/") {
			all = append(all, string(kv.Key))
		}
	}
	return strings.Join(all, " ")
}
