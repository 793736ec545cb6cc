// Package clients is what controllers reach the API by, and how they follow it: nothing is
// kept of an object but what the controller itself keeps.
package clients

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
)

// Set are the clients of one controller. They are safe for concurrent use.
type Set struct {
	Metadata metadata.Interface
	Objects  dynamic.Interface
	Served   discovery.DiscoveryInterface
	Logger   *slog.Logger
	// Issuer is nil if no tokens are issued.
	Issuer *Issuer
}

// Issuer makes the tokens of service accounts that Secrets hold. It is safe for concurrent use.
type Issuer struct {
	// Token makes the one of an account, with this uid, for a Secret of the same namespace.
	Token func(namespace, account, uid, secret string) (string, error)
	// RootCA is what the server's certificate is verified by, as PEM; nil if that is not to be published.
	RootCA []byte
}

// Resources that controllers know by name.
var (
	Namespaces      = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
	ServiceAccounts = schema.GroupVersionResource{Version: "v1", Resource: "serviceaccounts"}
	Secrets         = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
	Events          = schema.GroupVersionResource{Version: "v1", Resource: "events"}
)

// Absent tells whether an error says that an object of this name is not there, and not that its kind is not served.
func Absent(err error, name string) bool {
	var status apierrors.APIStatus
	return apierrors.IsNotFound(err) && errors.As(err, &status) && status.Status().Details != nil && status.Status().Details.Name == name &&
		!apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

// Follower hears what becomes of the objects of a resource, one thing after the other.
type Follower interface {
	// Replace says what there is: what was there before and is not among it is gone.
	Replace(there []*metav1.PartialObjectMetadata)
	// Changed says what an object is like now.
	Changed(*metav1.PartialObjectMetadata)
	// Gone says that an object is gone, and what it was like.
	Gone(*metav1.PartialObjectMetadata)
}

// Follow tells a follower of the objects of a resource, as far as a field selector selects
// them, until the context ends. Labels, annotations and managed fields may not be told.
func (s *Set) Follow(ctx context.Context, r schema.GroupVersionResource, fields string, f Follower) {
	resource := s.Metadata.Resource(r)
	lw := cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector = fields
			return resource.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector = fields
			return resource.Watch(ctx, o)
		},
	}, s.Metadata)
	reflector := cache.NewReflectorWithOptions(lw, &metav1.PartialObjectMetadata{}, store{f}, cache.ReflectorOptions{Name: r.String()})
	reflector.RunWithContext(ctx)
}

// store makes a follower what a reflector fills.
type store struct{ Follower }

func (s store) Add(o any) error    { s.Changed(o.(*metav1.PartialObjectMetadata)); return nil }
func (s store) Update(o any) error { s.Changed(o.(*metav1.PartialObjectMetadata)); return nil }
func (s store) Delete(o any) error { s.Gone(o.(*metav1.PartialObjectMetadata)); return nil }
func (s store) Resync() error      { return nil }

func (s store) Replace(list []any, _ string) error {
	there := make([]*metav1.PartialObjectMetadata, len(list))
	for i, o := range list {
		there[i] = o.(*metav1.PartialObjectMetadata)
	}
	s.Follower.Replace(there)
	return nil
}

// Transformer implements cache.TransformingStore.
func (s store) Transformer() cache.TransformFunc {
	return func(o any) (any, error) {
		if m, ok := o.(*metav1.PartialObjectMetadata); ok {
			m.Annotations, m.Labels, m.ManagedFields = nil, nil, nil
		}
		return o, nil
	}
}

// Queue is what a controller still has to do, each thing once. What fails is tried again, after
// a pause that doubles each time. Where something is wrong that is so for many, as a policy that denies all of it,
// they share the tries.
type Queue[T comparable] struct {
	workqueue.TypedRateLimitingInterface[T]
	pauses workqueue.TypedRateLimiter[T]
	shared *pace
}

// Pauses before something is tried again.
const (
	firstPause   = 20 * time.Millisecond
	longestPause = 15 * time.Second
	// sharedPause is that between any two tries of what went wrong before.
	sharedPause = 20 * time.Millisecond
)

// NewQueue makes an empty queue. Shut it down.
func NewQueue[T comparable]() Queue[T] {
	pauses := workqueue.NewTypedItemExponentialFailureRateLimiter[T](firstPause, longestPause)
	return Queue[T]{workqueue.NewTypedRateLimitingQueue(pauses), pauses, &pace{}}
}

// pace gives each its turn, one after the other.
type pace struct {
	mu   sync.Mutex
	last time.Time
}

// turn is in how long the next one is.
func (p *pace) turn() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if p.last = p.last.Add(sharedPause); p.last.Before(now) {
		p.last = now
	}
	return p.last.Sub(now)
}

// ErrLater reports that something is not done, and that nothing is wrong with that.
var ErrLater = errors.New("not yet")

// Work does what is in the queue with so many workers until the context ends, when it shuts
// the queue down.
func (q Queue[T]) Work(ctx context.Context, workers int, logger *slog.Logger, do func(context.Context, T) error) {
	defer context.AfterFunc(ctx, q.ShutDown)()
	var working sync.WaitGroup
	for range workers {
		working.Go(func() {
			for q.one(ctx, logger, do) {
			}
		})
	}
	working.Wait()
}

func (q Queue[T]) one(ctx context.Context, logger *slog.Logger, do func(context.Context, T) error) bool {
	x, down := q.Get()
	if down {
		return false
	}
	defer q.Done(x)
	err := func() (err error) {
		defer func() {
			if v := recover(); v != nil {
				err = fmt.Errorf("it panicked: %v\n%s", v, debug.Stack())
			}
		}()
		return do(ctx, x)
	}()
	switch {
	case err == nil:
		q.Forget(x)
		return true
	case ctx.Err() != nil:
		return true
	case errors.Is(err, ErrLater), apierrors.IsConflict(err), errors.Is(err, io.EOF): // as things go
		q.AddRateLimited(x)
	default:
		if n := q.NumRequeues(x); n&(n-1) == 0 { // more and more seldom
			logger.Warn("a controller could not do something, and will try again", "what", fmt.Sprint(x), "error", err)
		}
		q.AddAfter(x, max(q.pauses.When(x), q.shared.turn()))
	}
	return true
}
