package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"path"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"stele.dev/stele/core/conformance/chaos"
	"stele.dev/stele/eventlog/etcdlog"
)

var (
	chaosKills  = flag.Int("chaos.kills", 6, "how many processes TestAnyProcessIsKilled kills")
	chaosFaults = flag.Int("chaos.faults", len(faults), "how many faults TestHistoriesAreLinearizable makes")
	chaosSeed   = flag.Uint64("chaos.seed", 1, "what the random choices of these tests begin with")
	chaosPause  = flag.Duration("chaos.pause", time.Second, "how long faults last that end")
)

// informer is an informer of client-go that watches through the balancer. It records what its handlers were told.
type informer struct {
	cache.SharedIndexInformer
	lists, watches atomic.Int64
	after          uint64 // the revision of its list

	mu     sync.Mutex
	events []chaos.Event
	gone   []string // what it was told of without an event
}

// startInformer starts an informer, and waits until it has listed.
func (r *replicated) startInformer() *informer {
	r.t.Helper()
	i := &informer{}
	config := rest.CopyConfig(r.config)
	config.Dial = new(net.Dialer).DialContext // connections of its own
	config.WrapTransport = func(rt http.RoundTripper) http.RoundTripper { return countingTransport{rt, &i.lists, &i.watches} }
	c, err := dynamic.NewForConfig(config)
	if err != nil {
		r.t.Fatal(err)
	}
	i.SharedIndexInformer = dynamicinformer.NewFilteredDynamicSharedInformerFactory(c, 0, "default", nil).ForResource(configMaps).Informer()
	if _, err := i.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(o any) { i.record("ADDED", o) }, UpdateFunc: func(_, o any) { i.record("MODIFIED", o) }, DeleteFunc: func(o any) { i.record("DELETED", o) },
	}); err != nil {
		r.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { i.RunWithContext(ctx) })
	r.t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	if !cache.WaitForCacheSync(r.t.Context().Done(), i.HasSynced) {
		r.t.Fatal("an informer has not listed")
	}
	if i.after, err = strconv.ParseUint(i.LastSyncResourceVersion(), 10, 64); err != nil {
		r.t.Fatal(err)
	}
	return i
}

func (i *informer) record(kind string, o any) {
	i.mu.Lock()
	defer i.mu.Unlock()
	u, ok := o.(*unstructured.Unstructured)
	if !ok {
		i.gone = append(i.gone, fmt.Sprintf("%s of a %T", kind, o))
		return
	}
	revision, _ := strconv.ParseUint(u.GetResourceVersion(), 10, 64) // 0 is found by the check
	value, _, _ := unstructured.NestedString(u.Object, "data", "value")
	i.events = append(i.events, chaos.Event{Type: kind, Revision: revision, Name: u.GetName(), Value: value})
}

// await waits until the informer was told of a revision.
func (i *informer) await(ctx context.Context, revision uint64) error {
	for {
		i.mu.Lock()
		there := slices.ContainsFunc(i.events, func(e chaos.Event) bool { return e.Revision >= revision })
		i.mu.Unlock()
		if there {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("an informer was not told of revision %d: %w", revision, ctx.Err())
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// check returns an error unless the informer has listed once, and was told of each event behind that list once and in order.
func (i *informer) check(log *chaos.Log, upto uint64) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if n := i.lists.Load(); n != 1 || len(i.gone) > 0 {
		return fmt.Errorf("an informer has listed %d times, and was told of %v", n, i.gone)
	}
	events := slices.DeleteFunc(slices.Clone(i.events), func(e chaos.Event) bool { return e.Revision <= i.after })
	return chaos.CheckEvents(events, log, i.after, upto)
}

// watched are the watchers and informers of a test.
type watched struct {
	*replicated
	watchers  []*chaos.Watcher
	informers []*informer
	stop      func()
}

// watch starts watchers and informers. Each watch of a watcher is on another replica than the one before.
func (r *replicated) watch(seed uint64) *watched {
	r.t.Helper()
	const informers = 2
	moves := []time.Duration{0, 300 * time.Millisecond, 2 * time.Second} // of the watchers
	w := &watched{replicated: r}
	for range informers {
		w.informers = append(w.informers, r.startInformer())
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for n := range moves {
		next := n
		watcher := &chaos.Watcher{After: w.informers[0].after, Move: moves[n], Client: func() *chaos.Client {
			next++
			return r.replicas[next%len(r.replicas)].client
		}}
		w.watchers = append(w.watchers, watcher)
		running.Go(func() { watcher.Run(ctx) })
	}
	w.stop = func() {
		cancel()
		running.Wait()
	}
	r.t.Cleanup(w.stop)
	return w
}

// check waits until all have seen everything, and compares what they saw with the log.
func (w *watched) check(relist bool) {
	w.t.Helper()
	last := w.last()
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	defer cancel()
	if err := chaos.Await(ctx, last, w.watchers...); err != nil {
		w.t.Error(err)
	}
	for _, i := range w.informers {
		if err := i.await(ctx, last); err != nil {
			w.t.Error(err)
		}
	}
	w.stop()
	log := w.replicated.check()
	for n, watcher := range w.watchers {
		_, watches := watcher.At()
		w.t.Logf("watcher %d needed %d watches", n, watches)
		if err := watcher.Check(log); err != nil {
			w.t.Errorf("watcher %d: %v", n, err)
		}
	}
	for n, i := range w.informers {
		w.t.Logf("informer %d needed %d watches, and listed %d times", n, i.watches.Load(), i.lists.Load())
		if relist && i.lists.Load() > 1 {
			continue // client-go has lost its place, not the server
		}
		if err := i.check(log, last); err != nil {
			w.t.Errorf("informer %d: %v", n, err)
		}
	}
}

// TestAnyProcessIsKilled kills replicas and members of etcd, one after the other, under load. Nothing acknowledged is lost, watches and
// informers miss and repeat nothing, and the replica that survives each half of the test does not grow.
func TestAnyProcessIsKilled(t *testing.T) {
	t.Parallel()
	r := startReplicated(t, 3, 3)
	w := r.watch(*chaosSeed)
	stop := r.load(*chaosSeed)
	rng := rand.New(rand.NewPCG(*chaosSeed, 0))
	for half := range 2 {
		survivor := half // of this half
		r.progress(100)
		sizes := []size{r.size(survivor)}
		for range *chaosKills / 2 {
			switch victim := rng.IntN(len(r.replicas) - 1 + 3); {
			case victim < 3:
				r.etcd.Kill(victim)
				r.progress(10)
				r.etcd.Restart(victim)
			default:
				replica := (survivor + victim - 2) % len(r.replicas)
				r.kill(replica)
				r.progress(10)
				r.start(replica)
			}
			r.progress(20)
			sizes = append(sizes, r.size(survivor))
		}
		t.Logf("replica %d had %v, in the middle %v, and has %v", survivor, sizes[0], sizes[len(sizes)/2], sizes[len(sizes)-1])
		// Caches fill in the first part.
		first, second := largest(sizes[:len(sizes)/2+1]), largest(sizes[len(sizes)/2+1:])
		if second.goroutines > 1.5*first.goroutines+100 || second.heap > 1.25*first.heap+16<<20 {
			t.Errorf("replica %d has grown from %v to %v", survivor, first, second)
		}
	}
	stop()
	w.check(false)
}

// size is what a replica uses.
type size struct{ goroutines, heap float64 }

func (s size) String() string {
	return fmt.Sprintf("%.0f goroutines and %.1f MiB", s.goroutines, s.heap/(1<<20))
}

// largest returns the largest of some sizes.
func largest(sizes []size) (most size) {
	for _, s := range sizes {
		most = size{max(most.goroutines, s.goroutines), max(most.heap, s.heap)}
	}
	return most
}

// size returns what a replica uses. The heap is twice what was alive after the last collection.
func (r *replicated) size(i int) size {
	return size{r.metric(i, "go_goroutines"), r.metric(i, "go_memstats_next_gc_bytes")}
}

// faults are those of TestHistoriesAreLinearizable. Each begins a fault and returns what ends it.
var faults = []func(r *replicated, rng *rand.Rand) (end func()){
	func(r *replicated, rng *rand.Rand) func() { // a replica is killed
		i := rng.IntN(len(r.replicas))
		r.kill(i)
		return func() { r.start(i) }
	},
	func(r *replicated, rng *rand.Rand) func() { // a replica is ended
		i := rng.IntN(len(r.replicas))
		if err := r.replicas[i].process.end(syscall.SIGTERM); err != nil {
			r.t.Error(err)
		}
		return func() { r.start(i) }
	},
	func(r *replicated, rng *rand.Rand) func() { // a member is killed
		i := rng.IntN(3)
		r.etcd.Kill(i)
		return func() { r.etcd.Restart(i) }
	},
	func(r *replicated, rng *rand.Rand) func() { // a replica is paused
		i := rng.IntN(len(r.replicas))
		r.signal(i, syscall.SIGSTOP)
		return func() { r.signal(i, syscall.SIGCONT) }
	},
	func(r *replicated, rng *rand.Rand) func() { // a member is paused
		i := rng.IntN(3)
		r.etcd.Pause(i)
		return func() { r.etcd.Resume(i) }
	},
	func(r *replicated, rng *rand.Rand) func() { // the leader of etcd is cut off from the other members, but not from clients
		i := r.etcd.Leader()
		r.etcd.Cut(i)
		return func() { r.etcd.Heal(i) }
	},
	func(r *replicated, rng *rand.Rand) func() { // a replica is cut off from etcd
		route := r.replicas[rng.IntN(len(r.replicas))].route
		for i := range 3 {
			route.Cut(i)
		}
		return func() {
			for i := range 3 {
				route.Heal(i)
			}
		}
	},
	func(r *replicated, rng *rand.Rand) func() { // a replica is cut off from two members
		route, i := r.replicas[rng.IntN(len(r.replicas))].route, rng.IntN(3)
		route.Cut(i)
		route.Cut((i + 1) % 3)
		return func() {
			route.Heal(i)
			route.Heal((i + 1) % 3)
		}
	},
	func(r *replicated, rng *rand.Rand) func() { // a member is slow
		i, stop, stopped := rng.IntN(3), make(chan struct{}), make(chan struct{})
		go func() {
			defer close(stopped)
			for {
				r.etcd.Pause(i)
				time.Sleep(200 * time.Millisecond)
				r.etcd.Resume(i)
				select {
				case <-time.After(100 * time.Millisecond):
				case <-stop:
					return
				}
			}
		}()
		return func() {
			close(stop)
			<-stopped
		}
	},
	func(r *replicated, rng *rand.Rand) func() { // etcd has another leader
		leader := r.etcd.Leader()
		client := r.etcd.Client((leader + 1) % 3)
		ctx, cancel := context.WithTimeout(r.t.Context(), time.Minute)
		defer cancel()
		status, err := client.Status(ctx, client.Endpoints()[0])
		if err == nil {
			_, err = r.etcd.Client(leader).MoveLeader(ctx, status.Header.MemberId)
		}
		if err != nil {
			r.t.Logf("etcd's leader has not changed: %v", err)
		}
		return func() {}
	},
	func(r *replicated, rng *rand.Rand) func() { // a replica is far away
		route := r.replicas[rng.IntN(len(r.replicas))].route
		for i := range 3 {
			route.Delay(i, 100*time.Millisecond)
		}
		return func() {
			for i := range 3 {
				route.Delay(i, 0)
			}
		}
	},
}

// TestHistoriesAreLinearizable records what clients of three replicas are told while processes are killed and paused, and connections
// are cut.
func TestHistoriesAreLinearizable(t *testing.T) {
	t.Parallel()
	breakReplicas(startReplicated(t, 3, 3))
}

// TestOlderEventsMoveMeanwhile is the same, while all but the newest events move from etcd to a bucket.
func TestOlderEventsMoveMeanwhile(t *testing.T) {
	t.Parallel()
	flags := []string{"--bucket", t.TempDir(), "--bucket-every", "100ms", "--segment-revisions", "30", "--log-window", "1ms", "--checkpoint-events", "60", "--lease-every", "500ms"}
	r := startReplicatedOf(t, "stele", flags, 3, 3)
	breakReplicas(r)
	resp, err := r.etcd.Client(0).Get(t.Context(), etcdlog.DefaultPrefix+"/log/", clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		t.Fatal(err)
	}
	second, _ := strconv.ParseUint(path.Base(string(resp.Kvs[1].Key)), 10, 64) // 0 if it is no revision; the first batch stays for ever
	t.Logf("etcd has %d batches, the first and those from revision %d on", len(resp.Kvs), second)
	if second < 100 {
		t.Error("nothing was moved")
	}
}

// breakReplicas makes faults under load, and checks what clients were told.
func breakReplicas(r *replicated) {
	w := r.watch(*chaosSeed)
	stop := r.load(*chaosSeed)
	rng := rand.New(rand.NewPCG(*chaosSeed, 1))
	r.t.Logf("faults by random choices from seed %d", *chaosSeed)
	for n := range *chaosFaults {
		r.progress(20)
		end := faults[n%len(faults)](r, rng)
		time.Sleep(*chaosPause) // the length of the fault
		end()
	}
	r.progress(20)
	stop()
	w.check(true)
}
