package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"stele.dev/stele/core/conformance/chaos"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/archive"
	"stele.dev/stele/eventlog/etcdlog"
	"stele.dev/stele/eventlog/etcdlog/etcdtest"
)

// replicated is a control plane of several `stele serve` on an etcd cluster, whose processes and connections a test can break. Its
// methods are for one goroutine, unless their comments say otherwise.
type replicated struct {
	t        *testing.T
	args     []string // of each replica
	etcd     *etcdtest.Cluster
	replicas []*served
	balancer *chaos.Balancer // to all replicas
	history  *chaos.History
	config   *rest.Config // of an administrator, for the balancer
	acked    atomic.Int64 // acknowledged writes
}

// served is one replica.
type served struct {
	program string // by its path, or by its name in the PATH
	dir     string
	address string
	route   *etcdtest.Route // to etcd
	process *process
	starts  atomic.Int32
	client  *chaos.Client
}

// startReplicated starts replicas on members of etcd.
func startReplicated(t *testing.T, replicas, members int, options ...etcdtest.Option) *replicated {
	t.Helper()
	return startReplicatedOf(t, "stele", nil, replicas, members, options...)
}

// startReplicatedOf starts replicas of a program, with more flags.
func startReplicatedOf(t *testing.T, program string, args []string, replicas, members int, options ...etcdtest.Option) *replicated {
	t.Helper()
	r := &replicated{t: t, args: args, etcd: etcdtest.Start(t, members, options...), history: chaos.NewHistory()}
	root := t.TempDir()
	var addresses []string
	for i := range replicas {
		s := &served{program: program, dir: filepath.Join(root, strconv.Itoa(i)), route: r.etcd.Route()}
		r.replicas = append(r.replicas, s)
		if i > 0 { // all have the authority and the keys of the first
			copyKeys(t, r.replicas[0].data("pki"), s.data("pki"))
		} else if err := os.MkdirAll(s.dir, 0o700); err != nil {
			t.Fatal(err)
		}
		r.start(i)
		config := clientConfig(t, s.dir)
		s.address = strings.TrimPrefix(config.Host, "https://")
		addresses = append(addresses, s.address)
		if i == 0 {
			r.config = config
		}
		s.client = r.client(config, func() string { return fmt.Sprintf("replica-%d.%d", i, s.starts.Load()) })
	}
	var err error
	if r.balancer, err = chaos.NewBalancer(addresses...); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.balancer.Close() })
	r.config.Host = "https://" + r.balancer.Address()
	return r
}

func (s *served) data(elem ...string) string {
	return filepath.Join(append([]string{s.dir, "stele-data"}, elem...)...)
}

// copyKeys copies the authority and the key of service accounts, which replicas share.
func copyKeys(t *testing.T, from, to string) {
	t.Helper()
	if err := os.MkdirAll(to, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"ca.crt", "ca.key", "sa.key"} {
		text, err := os.ReadFile(filepath.Join(from, name))
		if err == nil {
			err = os.WriteFile(filepath.Join(to, name), text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// start starts a replica, and waits until it serves.
func (r *replicated) start(i int) {
	r.t.Helper()
	s := r.replicas[i]
	program, err := exec.LookPath(s.program)
	if err != nil {
		r.t.Fatal(err)
	}
	args := append([]string{"--etcd-endpoints", strings.Join(s.route.Endpoints(), ",")}, r.args...)
	listen := s.address
	if listen == "" {
		// Nobody connects from this address, so the port stays free while the replica does not run.
		listen = "127.0.0.2:0"
		if runtime.GOOS != "linux" {
			listen = "127.0.0.1:0"
		}
	}
	args = append(args, "--listen", listen, "--host", "127.0.0.2")
	s.starts.Add(1)
	if s.process, err = serveProcess(program, s.dir, append(os.Environ(), "GOGC=100"), args...); err != nil {
		r.t.Fatal(err)
	}
	p := s.process
	r.t.Cleanup(func() {
		_ = p.end(syscall.SIGKILL)
		if r.t.Failed() && p.stderr.String() != "" {
			r.t.Logf("replica %d wrote\n%s", i, p.stderr.String())
		}
	})
	if err := p.await(); err != nil {
		r.t.Fatal(err)
	}
}

// kill kills a replica, and waits until it is gone.
func (r *replicated) kill(i int) {
	r.t.Helper()
	if err := r.replicas[i].process.end(syscall.SIGKILL); err != nil {
		r.t.Fatal(err)
	}
}

// signal sends a signal to a replica.
func (r *replicated) signal(i int, s syscall.Signal) {
	r.t.Helper()
	if err := r.replicas[i].process.Process.Signal(s); err != nil {
		r.t.Fatal(err)
	}
}

// transport returns a transport of its own connections, with the credentials of a config.
func (r *replicated) transport(config *rest.Config) http.RoundTripper {
	r.t.Helper()
	tls, err := rest.TLSConfigFor(config)
	if err != nil {
		r.t.Fatal(err)
	}
	transport := &http.Transport{TLSClientConfig: tls, ForceAttemptHTTP2: true}
	r.t.Cleanup(transport.CloseIdleConnections)
	return transport
}

// client returns a client with connections of its own.
func (r *replicated) client(config *rest.Config, replica func() string) *chaos.Client {
	r.t.Helper()
	return &chaos.Client{History: r.history, Replica: replica, URL: config.Host, Namespace: "default", Transport: r.transport(config), Timeout: 5 * time.Second}
}

// balanced returns a client of the balancer.
func (r *replicated) balanced() *chaos.Client {
	r.t.Helper()
	return r.client(r.config, func() string { return "" })
}

// load runs clients until stop is called: most ask a random replica, the others the balancer.
func (r *replicated) load(seed uint64) (stop func()) {
	r.t.Helper()
	const clients, balanced, objects = 6, 2, 8
	var all []*chaos.Client
	for range balanced {
		all = append(all, r.balanced())
	}
	for _, s := range r.replicas {
		all = append(all, s.client)
	}
	load := chaos.Load{
		Objects: objects, Pause: 20 * time.Millisecond,
		Client: func(rng *rand.Rand) *chaos.Client { return all[rng.IntN(len(all))] },
		Done: func(o *chaos.Operation) {
			if o.Verb.Writes() && (o.Code == 200 || o.Code == 201) {
				r.acked.Add(1)
			}
		},
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		load.Run(ctx, clients, seed)
		close(done)
	}()
	stop = func() {
		cancel()
		<-done
	}
	r.t.Cleanup(stop)
	return stop
}

// progress waits until more writes are acknowledged.
func (r *replicated) progress(writes int64) {
	r.t.Helper()
	want := r.acked.Load() + writes
	for deadline := time.Now().Add(time.Minute); r.acked.Load() < want; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			for i, s := range r.replicas {
				r.t.Logf("replica %d wrote\n%s", i, s.process.stderr.String())
			}
			r.t.Fatalf("only %d of %d writes were acknowledged within a minute", writes-want+r.acked.Load(), writes)
		}
	}
}

// last creates an object, and returns its revision. It is that of the newest event.
func (r *replicated) last() uint64 {
	r.t.Helper()
	client := r.balanced()
	for n, deadline := 0, time.Now().Add(time.Minute); time.Now().Before(deadline); n++ {
		if o := client.Do(r.t.Context(), 0, chaos.Request{Verb: chaos.Create, Name: fmt.Sprintf("last-%d", n), Value: "last"}); o.Code == 201 {
			return o.Object.Revision
		}
		time.Sleep(10 * time.Millisecond)
	}
	r.t.Fatal("nothing can be written")
	return 0
}

// check compares what clients were told with the log, which it returns.
func (r *replicated) check() *chaos.Log {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), time.Minute)
	defer cancel()
	backend, err := etcdlog.Dial(ctx, etcdlog.DialOptions{Endpoints: r.etcd.Endpoints()})
	if err != nil {
		r.t.Fatal(err)
	}
	defer backend.Close()
	stored, err := eventlog.Open(ctx, backend, eventlog.Options{})
	if err != nil {
		r.t.Fatal(err)
	}
	if err := r.replicas[0].process.end(syscall.SIGTERM); err != nil {
		r.t.Error(err)
	}
	older, err := archive.Open(archive.Options{Dir: r.replicas[0].data("segments"), Log: stored.ID()})
	if err != nil {
		r.t.Fatal(err)
	}
	defer older.Close()
	stored.SetArchive(older)
	log, err := chaos.ReadLog(ctx, stored, "default")
	if err != nil {
		r.t.Fatal(err)
	}
	operations, answers := r.history.Operations(), map[int]int{}
	unknown, refusals := 0, map[string]int{}
	for _, o := range operations {
		if o.Code >= 429 {
			refusals[fmt.Sprintf("%d %.200s", o.Code, o.Message)]++
		}
		answers[o.Code]++
		if o.Unknown {
			unknown++
		}
		if o.Code == 500 {
			r.t.Errorf("an internal error: %s", o)
		}
	}
	r.t.Logf("%d operations, %d with an unknown outcome; answers %v; %d events", len(operations), unknown, answers, len(log.Events))
	for message, n := range refusals {
		r.t.Logf("%d times: %s", n, message)
	}
	if err := chaos.Check(operations, log); err != nil {
		r.t.Error(err)
	}
	return log
}

// metric returns a metric of a replica.
func (r *replicated) metric(i int, name string) float64 {
	r.t.Helper()
	q, err := http.NewRequestWithContext(r.t.Context(), http.MethodGet, "https://"+r.replicas[i].address+"/metrics", nil)
	if err != nil {
		r.t.Fatal(err)
	}
	resp, err := r.replicas[i].client.Transport.RoundTrip(q)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	line := regexp.MustCompile(`(?m)^` + name + ` (\S+)$`).FindSubmatch(text)
	if line == nil {
		r.t.Fatalf("replica %d has no metric %s", i, name)
	}
	value, err := strconv.ParseFloat(string(line[1]), 64)
	if err != nil {
		r.t.Fatal(err)
	}
	return value
}
