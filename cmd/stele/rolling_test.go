package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"flag"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	typedv1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"stele.dev/stele/core/conformance/chaos"
	"stele.dev/stele/examples/ha/balance"
)

var upgradeFrom = flag.String("upgrade.from", "stele", "the program whose servers TestClientsNoticeNoUpgrade replaces, by its path")

// Servers of one version are replaced by those of the next, one by one, while clients work through a balancer. No request
// fails, and no informer lists again, misses an event or is told of one twice.
func TestClientsNoticeNoUpgrade(t *testing.T) {
	t.Parallel()
	// An old version knows only the old name of --shutdown-delay.
	r := startReplicatedOf(t, *upgradeFrom, []string{"--drain-delay", "500ms"}, 3, 3)
	balancer := r.balanceByHealth()
	was := r.versions()
	informers := []*informer{r.startInformer(), r.startInformer(), r.startInformer()}
	load := r.startSteady(4)
	load.progress(20)
	for i, s := range r.replicas {
		old := s.process
		if err := old.end(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if text := old.stderr.String(); strings.Contains(text, "cut off") {
			t.Errorf("replica %d ended with %s", i, text)
		}
		load.progress(5) // by the others
		s.program = nextVersion
		r.start(i)
		awaitReady(t, balancer, s.address)
		load.progress(20)
	}
	load.stop()
	for i, version := range r.versions() {
		if version == was[i] || !strings.HasSuffix(version, "-next") {
			t.Errorf("replica %d has version %s, and had %s", i, version, was[i])
		}
	}
	last := r.last()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, i := range informers {
		if err := i.await(ctx, last); err != nil {
			t.Error(err)
		}
	}
	log := r.check()
	load.check(log)
	for n, i := range informers {
		if err := i.check(log, last); err != nil {
			t.Errorf("informer %d: %v", n, err)
		}
		if i.watches.Load() == 0 {
			t.Errorf("informer %d did not watch again, although all servers have ended", n)
		}
	}
}

// balanceByHealth puts a balancer with health checks before the replicas.
func (r *replicated) balanceByHealth() *balance.Balancer {
	r.t.Helper()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(r.config.CAData)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		r.t.Fatal(err)
	}
	var addresses []string
	for _, s := range r.replicas {
		addresses = append(addresses, s.address)
	}
	b := balance.New(balance.Options{Servers: addresses, TLS: &tls.Config{RootCAs: roots}, Every: 100 * time.Millisecond})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- b.Run(ctx, listener) }()
	r.t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			r.t.Error(err)
		}
	})
	for _, address := range addresses {
		awaitReady(r.t, b, address)
	}
	r.config.Host = "https://" + listener.Addr().String()
	return b
}

// awaitReady waits until a balancer knows that a server is ready.
func awaitReady(t *testing.T, b *balance.Balancer, address string) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if _, ready := b.Connections(); ready[address] {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s is not ready after a minute", address)
		}
	}
}

// versions returns the versions of the replicas.
func (r *replicated) versions() (versions []string) {
	r.t.Helper()
	for _, s := range r.replicas {
		config := rest.CopyConfig(r.config)
		config.Host = "https://" + s.address
		client, err := discovery.NewDiscoveryClientForConfig(config)
		if err != nil {
			r.t.Fatal(err)
		}
		version, err := client.ServerVersion()
		if err != nil {
			r.t.Fatal(err)
		}
		versions = append(versions, version.GitVersion)
	}
	return versions
}

// steady are clients that use client-go as it is, each with connections of its own. Every error fails the test.
type steady struct {
	t     *testing.T
	count atomic.Int64 // of rounds
	stop  func()

	mu   sync.Mutex
	told map[uint64]string // the revisions of the writes that were acknowledged, and what they did
}

// startSteady starts clients on the balancer.
func (r *replicated) startSteady(clients int) *steady {
	r.t.Helper()
	l := &steady{t: r.t, told: map[uint64]string{}}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	l.stop = func() {
		cancel()
		running.Wait()
	}
	r.t.Cleanup(l.stop)
	for n := range clients {
		config := rest.CopyConfig(r.config)
		config.Dial = new(net.Dialer).DialContext
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			r.t.Fatal(err)
		}
		running.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				if err := l.round(client.CoreV1().ConfigMaps("default"), fmt.Sprintf("steady-%d-%d", n, i)); err != nil {
					r.t.Errorf("client %d: %v", n, err)
					return
				}
				l.count.Add(1)
			}
		})
	}
	return l
}

// round creates an object, reads it, lists, changes it and deletes it.
func (l *steady) round(maps typedv1.ConfigMapInterface, name string) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	made, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"value": "made"}}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("create: %w", err)
	}
	l.tell(made, "ADDED")
	if got, err := maps.Get(ctx, name, metav1.GetOptions{}); err != nil || got.ResourceVersion != made.ResourceVersion {
		return fmt.Errorf("get of what was made at %s: at %s, %w", made.ResourceVersion, got.ResourceVersion, err)
	}
	if list, err := maps.List(ctx, metav1.ListOptions{}); err != nil || len(list.Items) == 0 {
		return fmt.Errorf("list: %d objects, %w", len(list.Items), err)
	}
	changed, err := maps.Patch(ctx, name, types.MergePatchType, []byte(`{"data":{"value":"changed"}}`), metav1.PatchOptions{})
	if err != nil {
		return fmt.Errorf("patch: %w", err)
	}
	l.tell(changed, "MODIFIED")
	if err := maps.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		return fmt.Errorf("delete: %w", err)
	}
	return nil
}

func (l *steady) tell(o *corev1.ConfigMap, what string) {
	revision, err := strconv.ParseUint(o.ResourceVersion, 10, 64)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil || l.told[revision] != "" {
		l.t.Errorf("%s is at revision %q, where also %s was acknowledged", o.Name, o.ResourceVersion, l.told[revision])
	}
	l.told[revision] = what + " " + o.Name
}

// progress waits for further rounds.
func (l *steady) progress(rounds int64) {
	l.t.Helper()
	want := l.count.Load() + rounds
	for deadline := time.Now().Add(time.Minute); l.count.Load() < want; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) || l.t.Failed() {
			l.t.Fatalf("%d rounds are missing", want-l.count.Load())
		}
	}
}

// check looks for what was acknowledged in the log.
func (l *steady) check(log *chaos.Log) {
	l.t.Helper()
	stored := map[uint64]string{}
	for _, e := range log.Events {
		stored[e.Revision] = e.Type + " " + e.Name
	}
	for revision, what := range l.told {
		if stored[revision] != what {
			l.t.Errorf("%s was acknowledged at revision %d, where the log has %q", what, revision, stored[revision])
		}
	}
	l.t.Logf("%d rounds, %d acknowledged writes of new content", l.count.Load(), len(l.told))
}
