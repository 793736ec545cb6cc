package members

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
)

const (
	// hedgeAfter is how long a read waits for a member before it asks another one, too.
	hedgeAfter = 300 * time.Millisecond
	// readFor is how long a read tries.
	readFor = 10 * time.Second
	// connectFor is how long a write waits for a member to which it can be sent.
	connectFor = 5 * time.Second
	// A write waits for its answer for writeFor, and longer after others were not answered in time, up to longestWrite:
	// a cluster that is slow as a whole is not helped by asking another member.
	writeFor, longestWrite = time.Second, 16 * time.Second
)

// NotSentError reports a write that was not sent to any member, or that members refused before they proposed it.
type NotSentError struct{ Reason error }

func (e *NotSentError) Error() string { return "not sent: " + e.Reason.Error() }

// Unwrap returns the reason.
func (e *NotSentError) Unwrap() error { return e.Reason }

// GRPCStatus makes clients keep this error as it is.
func (e *NotSentError) GRPCStatus() *status.Status { return status.New(codes.Unavailable, e.Error()) }

// newClient returns a client whose requests go through c.
func (c *Cluster) newClient() *clientv3.Client {
	client := clientv3.NewCtxClient(c.ctx)
	client.KV = clientv3.NewKVFromKVClient(kv{c}, client)
	client.Watcher = clientv3.NewWatchFromWatchClient(watch{c}, client)
	return client
}

// kv sends requests on keys. It implements etcdserverpb.KVClient.
type kv struct{ *Cluster }

func (c kv) Range(ctx context.Context, in *etcdserverpb.RangeRequest, o ...grpc.CallOption) (*etcdserverpb.RangeResponse, error) {
	return read(ctx, c.Cluster, func(ctx context.Context, m *member) (*etcdserverpb.RangeResponse, error) {
		return m.kv.Range(ctx, in, o...)
	})
}

func (c kv) RangeStream(ctx context.Context, in *etcdserverpb.RangeRequest, o ...grpc.CallOption) (grpc.ServerStreamingClient[etcdserverpb.RangeStreamResponse], error) {
	m, _ := c.pick(nobody)
	if m == nil {
		return nil, &NotSentError{c.unreachable()}
	}
	return m.kv.RangeStream(ctx, in, o...)
}

func (c kv) Put(ctx context.Context, in *etcdserverpb.PutRequest, o ...grpc.CallOption) (*etcdserverpb.PutResponse, error) {
	return write(ctx, c.Cluster, func(ctx context.Context, m *member) (*etcdserverpb.PutResponse, error) {
		return m.kv.Put(ctx, in, o...)
	})
}

func (c kv) DeleteRange(ctx context.Context, in *etcdserverpb.DeleteRangeRequest, o ...grpc.CallOption) (*etcdserverpb.DeleteRangeResponse, error) {
	return write(ctx, c.Cluster, func(ctx context.Context, m *member) (*etcdserverpb.DeleteRangeResponse, error) {
		return m.kv.DeleteRange(ctx, in, o...)
	})
}

func (c kv) Txn(ctx context.Context, in *etcdserverpb.TxnRequest, o ...grpc.CallOption) (*etcdserverpb.TxnResponse, error) {
	call := func(ctx context.Context, m *member) (*etcdserverpb.TxnResponse, error) {
		return m.kv.Txn(ctx, in, o...)
	}
	if onlyReads(in) {
		return read(ctx, c.Cluster, call)
	}
	return write(ctx, c.Cluster, call)
}

func (c kv) Compact(ctx context.Context, in *etcdserverpb.CompactionRequest, o ...grpc.CallOption) (*etcdserverpb.CompactionResponse, error) {
	return write(ctx, c.Cluster, func(ctx context.Context, m *member) (*etcdserverpb.CompactionResponse, error) {
		return m.kv.Compact(ctx, in, o...)
	})
}

// onlyReads reports whether a transaction changes nothing.
func onlyReads(t *etcdserverpb.TxnRequest) bool {
	for _, ops := range [][]*etcdserverpb.RequestOp{t.GetSuccess(), t.GetFailure()} {
		for _, op := range ops {
			if nested := op.GetRequestTxn(); nested != nil && onlyReads(nested) || op.GetRequestRange() != nil {
				continue
			}
			return false
		}
	}
	return true
}

func nobody(*member) bool { return false }

// read sends a request that may be repeated, to several members if the first one fails or is slow.
func read[T any](ctx context.Context, c *Cluster, call func(context.Context, *member) (T, error)) (T, error) {
	type answer struct {
		from  *member
		value T
		err   error
	}
	var none T
	parent := ctx
	ctx, cancel := context.WithTimeout(ctx, readFor)
	defer cancel()
	answers := make(chan answer, len(c.members))
	asked := map[*member]bool{}
	next := func() <-chan struct{} {
		m, changed := c.pick(func(m *member) bool { return asked[m] })
		if m != nil {
			asked[m] = true
			go func() {
				value, err := call(ctx, m)
				answers <- answer{m, value, err}
			}()
		}
		return changed
	}
	changed := next()
	hedge := time.NewTicker(hedgeAfter)
	defer hedge.Stop()
	var last error
	for {
		select {
		case a := <-answers:
			delete(asked, a.from)
			if a.err == nil {
				c.worked(a.from)
				return a.value, nil
			}
			if ctx.Err() != nil {
				continue // below
			}
			if !anotherMayWork(a.err) {
				return none, a.err
			}
			last = a.err
			c.fail(a.from, a.from.describe(a.err))
			changed = next()
		case <-hedge.C:
			changed = next()
		case <-changed:
			changed = nil // until the next tick, or the next answer
			if len(asked) == 0 {
				changed = next()
			}
		case <-ctx.Done():
			if parent.Err() != nil {
				return none, parent.Err()
			}
			if last == nil {
				last = c.unreachable()
			}
			return none, status.Errorf(codes.Unavailable, "no member of etcd has answered within %v: %s", readFor, status.Convert(last).Message())
		}
	}
}

// write sends a request once.
func write[T any](ctx context.Context, c *Cluster, call func(context.Context, *member) (T, error)) (T, error) {
	var none T
	giveUp := time.NewTimer(connectFor)
	defer giveUp.Stop()
	var last error
	for {
		m, changed := c.pick(nobody)
		if m == nil {
			select {
			case <-changed:
				continue
			case <-giveUp.C:
				if last == nil {
					last = c.unreachable()
				}
				return none, &NotSentError{last}
			case <-ctx.Done():
				return none, &NotSentError{ctx.Err()}
			}
		}
		var sent atomic.Bool
		patience := c.patience()
		try, cancel := context.WithTimeout(context.WithValue(withLeader(ctx), sentKey{}, &sent), patience)
		value, err := call(try, m)
		late := try.Err() != nil && ctx.Err() == nil
		cancel()
		if err == nil {
			c.worked(m)
			return value, nil
		}
		if late {
			c.late(patience)
		}
		refused := !sent.Load() || refusedFirst(err)
		if ctx.Err() == nil && (refused || anotherMayWork(err)) {
			c.fail(m, m.describe(err))
		}
		if !refused || ctx.Err() != nil {
			if !sent.Load() {
				err = &NotSentError{err}
			}
			return none, err
		}
		last = m.describe(err)
	}
}

// patience returns how long the next write waits for its answer.
func (c *Cluster) patience() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return min(writeFor<<min(c.timeouts, 10), longestWrite)
}

// late records that a write was not answered in time.
func (c *Cluster) late(waited time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if waited >= min(writeFor<<min(c.timeouts, 10), longestWrite) {
		c.timeouts++
	}
}

// withLeader makes members that know no leader refuse a request at once.
func withLeader(ctx context.Context) context.Context {
	return metadata.AppendToOutgoingContext(ctx, rpctypes.MetadataRequireLeaderKey, rpctypes.MetadataHasLeader)
}

// anotherMayWork reports whether another member may answer a request differently.
func anotherMayWork(err error) bool {
	switch status.Code(err) {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled, codes.Internal, codes.Unknown, codes.Aborted:
		return true
	default:
		return refusedFirst(err)
	}
}

// refusedFirst reports whether a member refused a request before it proposed it to the others, and another may not.
func refusedFirst(err error) bool {
	text := status.Convert(err).Message()
	for _, refusal := range []error{rpctypes.ErrGRPCNoLeader, rpctypes.ErrGRPCNotSupportedForLearner, rpctypes.ErrTooManyRequests, rpctypes.ErrGRPCNotCapable} {
		if text == status.Convert(refusal).Message() {
			return true
		}
	}
	return strings.Contains(text, "raft proposal dropped")
}

// watch starts watches. It implements etcdserverpb.WatchClient.
type watch struct{ *Cluster }

func (c watch) Watch(ctx context.Context, o ...grpc.CallOption) (etcdserverpb.Watch_WatchClient, error) {
	m, _ := c.pick(nobody)
	if m == nil {
		return nil, status.Error(codes.Unavailable, c.unreachable().Error())
	}
	c.mu.Lock()
	failed := m.failed
	c.mu.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	stream, err := m.watch.Watch(ctx, o...)
	if err != nil {
		cancel()
		return nil, err
	}
	go func() {
		select {
		case <-failed:
			cancel()
		case <-ctx.Done():
		}
	}()
	return &watchStream{stream, failed, cancel}, nil
}

// watchStream is a stream of a watch that ends when its member fails.
type watchStream struct {
	etcdserverpb.Watch_WatchClient
	failed <-chan struct{}
	cancel context.CancelFunc
}

// Recv implements etcdserverpb.Watch_WatchClient. After the error Unavailable, the client starts the watch again.
func (w *watchStream) Recv() (*etcdserverpb.WatchResponse, error) {
	r, err := w.Watch_WatchClient.Recv()
	if err == nil {
		return r, nil
	}
	defer w.cancel()
	select {
	case <-w.failed:
		return nil, status.Error(codes.Unavailable, "the member of the watch has failed")
	default:
		return nil, err
	}
}

// sentKey is the key of a context for an *atomic.Bool that is set when the request is sent.
type sentKey struct{}

// sentHandler records which requests are sent, and when there is a new connection. It implements stats.Handler.
type sentHandler struct{ *member }

func (*sentHandler) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

func (*sentHandler) HandleRPC(ctx context.Context, s stats.RPCStats) {
	if _, out := s.(*stats.OutPayload); out {
		if sent, ok := ctx.Value(sentKey{}).(*atomic.Bool); ok && sent != nil {
			sent.Store(true)
		}
	}
}

func (*sentHandler) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

func (h *sentHandler) HandleConn(_ context.Context, s stats.ConnStats) {
	if _, begins := s.(*stats.ConnBegin); begins {
		h.connections.Add(1)
		h.ask()
	}
}

// IsNotSent reports whether a write was certainly not sent.
func IsNotSent(err error) bool { return errors.As(err, new(*NotSentError)) }
