package replicas_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"
	"stele.dev/stele/core/resources/replicas"
)

// every is how often a replica renews its Lease in these tests.
const every = 10 * time.Second

// store holds one Lease. It may refuse requests, lose the answers to writes, and be slow.
type store struct {
	mu       sync.Mutex
	lease    *coordinationv1.Lease
	revision int
}

var resource = schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}

// write stores a Lease if its resource version is the current one.
func (s *store) write(l *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.lease == nil && l.ResourceVersion != "":
		return nil, apierrors.NewNotFound(resource, l.Name)
	case s.lease != nil && l.ResourceVersion == "":
		return nil, apierrors.NewAlreadyExists(resource, l.Name)
	case s.lease != nil && l.ResourceVersion != s.lease.ResourceVersion:
		return nil, apierrors.NewConflict(resource, l.Name, errors.New("it has changed"))
	}
	s.revision++
	s.lease = l.DeepCopy()
	s.lease.ResourceVersion = strconv.Itoa(s.revision)
	return s.lease.DeepCopy(), nil
}

func (s *store) read() (*coordinationv1.Lease, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lease == nil {
		return nil, apierrors.NewNotFound(resource, replicas.LeaderLease)
	}
	return s.lease.DeepCopy(), nil
}

// connection is how one candidate reaches the store.
type connection struct {
	coordinationclient.CoordinationV1Interface
	coordinationclient.LeaseInterface
	store *store

	mu     sync.Mutex
	random *rand.Rand // nil for a connection without faults
	cut    bool
}

func (c *connection) Leases(string) coordinationclient.LeaseInterface { return c }

// reach waits for as long as the connection takes. It returns the error of a request that does not arrive, and that of
// an answer that does not.
func (c *connection) reach(ctx context.Context) (there, back error) {
	c.mu.Lock()
	cut, delay := c.cut, time.Duration(0)
	if c.random != nil {
		delay = time.Duration(c.random.IntN(1000)) * time.Millisecond
		switch c.random.IntN(10) {
		case 0:
			there = errors.New("the request was lost")
		case 1:
			back = errors.New("the answer was lost")
		}
	}
	c.mu.Unlock()
	select {
	case <-time.After(delay):
	case <-ctx.Done():
		return ctx.Err(), nil
	}
	if cut {
		there = errors.New("no connection")
	}
	return there, back
}

func (c *connection) through(ctx context.Context, do func() (*coordinationv1.Lease, error)) (*coordinationv1.Lease, error) {
	there, back := c.reach(ctx)
	if there != nil {
		return nil, there
	}
	l, err := do()
	if back != nil {
		return nil, back
	}
	return l, err
}

func (c *connection) Get(ctx context.Context, _ string, _ metav1.GetOptions) (*coordinationv1.Lease, error) {
	return c.through(ctx, c.store.read)
}

func (c *connection) Create(ctx context.Context, l *coordinationv1.Lease, _ metav1.CreateOptions) (*coordinationv1.Lease, error) {
	return c.through(ctx, func() (*coordinationv1.Lease, error) { return c.store.write(l) })
}

func (c *connection) Update(ctx context.Context, l *coordinationv1.Lease, _ metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	return c.through(ctx, func() (*coordinationv1.Lease, error) { return c.store.write(l) })
}

func (c *connection) set(cut bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cut = cut
}

// upstream is one election of client-go, with the times of a replica.
func upstream(ctx context.Context, t *testing.T, c *connection, id string, lead func(context.Context)) {
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta: metav1.ObjectMeta{Name: replicas.LeaderLease}, Client: c, LockConfig: resourcelock.ResourceLockConfig{Identity: id},
		},
		LeaseDuration: 3 * every, RenewDeadline: 2 * every, RetryPeriod: every / 2, ReleaseOnCancel: true, Name: replicas.LeaderLease,
		Callbacks: leaderelection.LeaderCallbacks{OnStartedLeading: lead, OnStoppedLeading: func() {}},
	})
	require.NoError(t, err)
	elector.Run(klog.NewContext(ctx, logr.Discard()))
}

// terms notes who leads when.
type terms struct {
	mu      sync.Mutex
	leading map[string]bool
	count   map[string]int
	both    []string
}

func newTerms() *terms { return &terms{leading: map[string]bool{}, count: map[string]int{}} }

// lead notes that a candidate leads until the context ends.
func (w *terms) lead(id string) func(context.Context) {
	return func(ctx context.Context) {
		w.mu.Lock()
		defer w.mu.Unlock()
		for other := range w.leading {
			w.both = append(w.both, fmt.Sprintf("%s and %s", other, id))
		}
		w.leading[id] = true
		w.count[id]++
		context.AfterFunc(ctx, func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			delete(w.leading, id)
		})
	}
}

func (w *terms) now() (ids []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for id := range w.leading {
		ids = append(ids, id)
	}
	return ids
}

// TestNeverTwoLeaders lets candidates of this package and one of client-go take the Lease from each other, over
// connections that lose requests and answers.
func TestNeverTwoLeaders(t *testing.T) {
	led := map[string]int{}
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			ctx, stop := context.WithTimeout(t.Context(), time.Hour)
			defer stop()
			s, w := new(store), newTerms()
			var running sync.WaitGroup
			for i := range 3 {
				c := &connection{store: s, random: rand.New(rand.NewPCG(seed, uint64(i)+2))}
				id := fmt.Sprintf("candidate-%d", i)
				running.Go(func() {
					lengths := rand.New(rand.NewPCG(seed, uint64(i)+20))
					for ctx.Err() == nil {
						term, end := context.WithTimeout(ctx, time.Duration(1+lengths.IntN(300))*time.Second)
						if i == 0 {
							upstream(term, t, c, id, w.lead(id))
						} else {
							replicas.Elect(term, c, id, every, w.lead(id))
						}
						end()
					}
				})
				running.Go(func() {
					random := rand.New(rand.NewPCG(seed, uint64(i)+10))
					for ctx.Err() == nil {
						c.set(random.IntN(4) == 0)
						time.Sleep(time.Duration(1+i) * time.Minute)
					}
				})
			}
			running.Wait()
			synctest.Wait()
			assert.Empty(t, w.both, "seed %d", seed)
			for id, times := range w.count {
				led[id] += times
			}
		})
	}
	assert.Len(t, led, 3, "each candidate leads at some time, though not in each hour")
}

func TestTheLeaseIsTakenAndGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, w := new(store), newTerms()
		first, second := &connection{store: s}, &connection{store: s}
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { replicas.Elect(ctx, first, "first", every, w.lead("first")) })
		synctest.Wait()
		require.Equal(t, []string{"first"}, w.now())
		l, err := s.read()
		require.NoError(t, err)
		acquired := l.Spec.AcquireTime
		assert.Equal(t, int32(30), *l.Spec.LeaseDurationSeconds)
		assert.Equal(t, int32(0), *l.Spec.LeaseTransitions)

		other, end := context.WithCancel(t.Context())
		running.Go(func() { replicas.Elect(other, second, "second", every, w.lead("second")) })
		time.Sleep(10 * time.Minute)
		require.Equal(t, []string{"first"}, w.now(), "it renews the Lease")
		l, err = s.read()
		require.NoError(t, err)
		assert.True(t, acquired.Equal(l.Spec.AcquireTime))
		assert.Less(t, time.Since(l.Spec.RenewTime.Time), every)

		stop()
		time.Sleep(2 * every)
		require.Equal(t, []string{"second"}, w.now(), "the Lease was given up, and is taken before it expires")
		l, err = s.read()
		require.NoError(t, err)
		assert.Equal(t, "second", *l.Spec.HolderIdentity)
		assert.Equal(t, int32(1), *l.Spec.LeaseTransitions)

		second.set(true)
		time.Sleep(3*every + every/2)
		require.Empty(t, w.now(), "it has no connection, and does not lead any more")
		second.set(false)
		end()
		running.Wait()
	})
}

// TestTheLeaseOfAnother is taken when it has not changed for its time, whatever the clock that wrote it said, and the
// leader that lost it to somebody else stops at once.
func TestTheLeaseOfAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, w := new(store), newTerms()
		holder, seconds, long := "another", int32(60), metav1.NewMicroTime(time.Now().Add(-time.Hour))
		_, err := s.write(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: replicas.LeaderLease}, Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &seconds, RenewTime: &long}})
		require.NoError(t, err)
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { replicas.Elect(ctx, &connection{store: s}, "this", every, w.lead("this")) })
		time.Sleep(time.Minute - time.Second)
		require.Empty(t, w.now())
		time.Sleep(every + time.Second)
		require.Equal(t, []string{"this"}, w.now())

		l, err := s.read()
		require.NoError(t, err)
		l.Spec.HolderIdentity = &holder
		_, err = s.write(l)
		require.NoError(t, err)
		time.Sleep(every)
		require.Empty(t, w.now())
		stop()
		running.Wait()
		l, err = s.read()
		require.NoError(t, err)
		assert.Equal(t, "another", *l.Spec.HolderIdentity, "what another holds is not given up")
	})
}
