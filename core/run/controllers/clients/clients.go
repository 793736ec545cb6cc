// Package clients provides the clients of controllers, and a way to follow objects without keeping copies of them.
package clients

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime/debug"
	"slices"
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
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"stele.dev/stele/core/resources/rendered"
	"stele.dev/stele/projections/quotas"
	"stele.dev/stele/schemas/brought"
	"stele.dev/stele/schemas/crd/definitions"
)

// Set is the clients of one controller. They are safe for concurrent use.
type Set struct {
	Metadata metadata.Interface
	Objects  dynamic.Interface
	Served   discovery.DiscoveryInterface
	Logger   *slog.Logger
	// Issuer is nil if no tokens are issued.
	Issuer *Issuer
	// Usage is nil if it is not known.
	Usage Usage

	watches rest.Interface
}

// New returns the clients of a configuration of [loopback.Config].
func New(config *rest.Config, logger *slog.Logger) (*Set, error) {
	m, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	d, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	served, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, err
	}
	plain := metadata.ConfigFor(config)
	plain.AcceptContentTypes, plain.ContentType = "", "application/json"
	watches, err := rest.UnversionedRESTClientFor(plain)
	if err != nil {
		return nil, err
	}
	return &Set{Metadata: m, Objects: d, Served: served, Logger: logger, watches: watches}, nil
}

// Usage is what resource quotas count on this replica. It is safe for concurrent use.
type Usage interface {
	// Quotas returns the usage at the newest revision.
	Quotas() *quotas.State
	// Grown returns a channel that is closed when there is a newer revision than at the call.
	Grown() <-chan struct{}
}

// Issuer issues the tokens of service accounts for Secrets. It is safe for concurrent use.
type Issuer struct {
	// Token returns a token of the account with this UID, for a Secret in the same namespace.
	Token func(namespace, account, uid, secret string) (string, error)
	// RootCA verifies the server's certificate, as PEM; nil if it is not to be published.
	RootCA []byte
}

// These are resources that controllers use.
var (
	Namespaces      = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
	ServiceAccounts = schema.GroupVersionResource{Version: "v1", Resource: "serviceaccounts"}
	Secrets         = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
	ResourceQuotas  = schema.GroupVersionResource{Version: "v1", Resource: "resourcequotas"}
	Definitions     = definitions.Resource.WithVersion("v1")
	Events          = schema.GroupVersionResource{Version: "v1", Resource: "events"}
)

// Deletable reports whether controllers delete objects of a resource, of which discovery lists verbs. They do not delete objects that show what the policy
// says: these go with the policy, or with their namespace, and cannot have owners. What clients have brought they delete whatever the policy now allows, which
// discovery does not say.
func Deletable(r schema.GroupResource, verbs []string) bool {
	return brought.Of(r) != nil || slices.Contains(verbs, "delete") && !renderedResources()[r]
}

var renderedResources = sync.OnceValue(func() map[schema.GroupResource]bool {
	all := map[schema.GroupResource]bool{}
	for _, k := range rendered.Kinds() {
		all[k.Version.Kind.GroupResource()] = true
	}
	return all
})

// Absent reports whether an error says that an object does not exist, rather than that its kind is not served.
func Absent(err error, name string) bool {
	var status apierrors.APIStatus
	return apierrors.IsNotFound(err) && errors.As(err, &status) && status.Status().Details != nil && status.Status().Details.Name == name &&
		!apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

// Follower receives the objects of a resource, and their changes, one after the other.
type Follower interface {
	// Replace receives all objects. Objects that are not among them are deleted.
	Replace(there []*metav1.PartialObjectMetadata)
	// Changed receives the new state of an object.
	Changed(*metav1.PartialObjectMetadata)
	// Gone receives the last state of a deleted object.
	Gone(*metav1.PartialObjectMetadata)
}

// Follow sends the objects of a resource that match a field selector, and their changes, to a follower until the
// context ends. It may leave out labels, annotations and managed fields.
func (s *Set) Follow(ctx context.Context, r schema.GroupVersionResource, fields string, f Follower) {
	resource := s.Metadata.Resource(r)
	lw := cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector = fields
			return resource.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector = fields
			return s.watch(ctx, r, o)
		},
	}, s.Metadata)
	reflector := cache.NewReflectorWithOptions(lw, &metav1.PartialObjectMetadata{}, store{f}, cache.ReflectorOptions{Name: r.String()})
	reflector.RunWithContext(ctx)
}

// store lets a reflector fill a follower.
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

// Queue is the work of a controller, each item once. A failed item is retried after a pause that doubles each time.
// All failed items share a rate, because often many fail for one reason, such as a deny.
type Queue[T comparable] struct {
	workqueue.TypedRateLimitingInterface[T]
	pauses workqueue.TypedRateLimiter[T]
	shared *pace
}

// These are the pauses before a retry.
const (
	firstPause   = 20 * time.Millisecond
	longestPause = 15 * time.Second
	// sharedPause is the time between any two retries.
	sharedPause = 20 * time.Millisecond
)

// NewQueue returns an empty queue, with the name that metrics of queues show. The caller must shut it down.
func NewQueue[T comparable](name string) Queue[T] {
	pauses := workqueue.NewTypedItemExponentialFailureRateLimiter[T](firstPause, longestPause)
	return Queue[T]{workqueue.NewTypedRateLimitingQueueWithConfig(pauses, workqueue.TypedRateLimitingQueueConfig[T]{Name: name}), pauses, &pace{}}
}

// pace spaces out retries.
type pace struct {
	mu   sync.Mutex
	last time.Time
}

// turn returns the time until the next free turn.
func (p *pace) turn() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if p.last = p.last.Add(sharedPause); p.last.Before(now) {
		p.last = now
	}
	return p.last.Sub(now)
}

// ErrLater reports that an item is not done yet, without anything being wrong.
var ErrLater = errors.New("not yet")

// Work processes the queue with a number of workers until the context ends. Then it shuts down the queue.
func (q Queue[T]) Work(ctx context.Context, workers int, logger *slog.Logger, do func(context.Context, T) error) {
	defer context.AfterFunc(ctx, q.ShutDown)()
	var working sync.WaitGroup
	for range workers {
		working.Go(func() {
			for q.processOne(ctx, logger, do) {
			}
		})
	}
	working.Wait()
}

func (q Queue[T]) processOne(ctx context.Context, logger *slog.Logger, do func(context.Context, T) error) bool {
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
	case errors.Is(err, ErrLater), apierrors.IsConflict(err), errors.Is(err, io.EOF): // normal events
		q.AddRateLimited(x)
	default:
		if n := q.NumRequeues(x); n&(n-1) == 0 { // log less and less often
			logger.Warn("a controller could not do something, and will try again", "what", fmt.Sprint(x), "error", err)
		}
		q.AddAfter(x, max(q.pauses.When(x), q.shared.turn()))
	}
	return true
}
