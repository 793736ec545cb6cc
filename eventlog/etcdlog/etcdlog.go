// Package etcdlog keeps the log in etcd: in a cluster reached through a client ([New]), or in a single
// member embedded in this process ([Embed]).
//
// An append is one etcd transaction and so one Raft entry, whatever the size of the batch. etcd's own
// history is never needed: only the head key is written more than once.
//
// Embed inspects the member's files before etcd does. If a first start was killed before its first entry,
// Embed removes its files, as nothing can have been acknowledged. If the write-ahead log or the database
// lacks acknowledged writes or has damaged pages, Embed returns an error that names the file. etcd itself
// would wait for ever, go on silently, or end the process.
package etcdlog

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	clientv3 "go.etcd.io/etcd/client/v3"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/etcdlog/members"
)

// batchesPerRead is how many batches are read at once. A batch has up to 1 MiB, rarely more.
const batchesPerRead = 32

// Backend keeps one log under a prefix of an etcd.
type Backend struct {
	client *clientv3.Client
	head   string // key
	log    string // key of a batch, without its revision
	// waiting is the key of a writer in the line, without its ID. It is after log.
	waiting string
	limits  eventlog.Limits
	// room returns an error if a proposal must be refused for lack of storage. It may wait.
	room func(context.Context, eventlog.Proposal) error
	// compact frees the space of what was deleted up to an etcd revision; nil if the etcd is not ours.
	compact func(ctx context.Context, revision int64) error
	// shrink makes the store's file smaller if that is worth it; nil if the etcd is not ours.
	shrink func() error
	// compacted is set once this process has compacted everything that an earlier one deleted.
	compacted atomic.Bool
	// usage returns what the backend uses.
	usage func() eventlog.Usage
	// full records that etcd has refused an append for lack of space.
	full func()
	// cluster is the connections to an etcd that is not embedded; else nil.
	cluster *members.Cluster
	user    string // whose credentials the connections have; empty if there is none
	// upstreamSeconds measures the same with the name and the buckets of kube-apiserver.
	upstreamSeconds *prometheus.HistogramVec
	seconds         *prometheus.HistogramVec // how long requests take, by operation
	close           func() error             // called once

	ctx     context.Context // ends at Close
	cancel  context.CancelFunc
	closing sync.Once

	mu   sync.Mutex
	news news // of the watch, which the first Wait starts
}

var _ eventlog.Backend = (*Backend)(nil)

// DefaultMaxValue is the largest value for an etcd with default settings: its maximum request size, less
// 1 KiB for the rest of the request.
const DefaultMaxValue = 1536<<10 - 1<<10

// New returns a backend that keeps the log in the client's etcd, under prefix (without a slash at the
// end). maxValue is the largest value that this etcd accepts; DefaultMaxValue if 0. Closing the backend
// leaves the client open.
func New(client *clientv3.Client, prefix string, maxValue int) *Backend {
	if maxValue == 0 {
		maxValue = DefaultMaxValue
	}
	return newBackend(client, prefix, eventlog.Limits{Value: maxValue})
}

func newBackend(client *clientv3.Client, prefix string, limits eventlog.Limits) *Backend {
	b := &Backend{
		client: client, head: prefix + "/head", log: prefix + "/log/", waiting: prefix + "/waiting/", limits: limits,
		news:  news{line: map[string]eventlog.Waiter{}, changed: make(chan struct{})},
		room:  func(context.Context, eventlog.Proposal) error { return nil },
		usage: func() eventlog.Usage { return eventlog.Usage{} },
		full:  func() {},
		close: func() error { return nil },
	}
	b.seconds, b.upstreamSeconds = newSeconds(), newUpstreamSeconds()
	b.ctx, b.cancel = context.WithCancel(context.Background())
	return b
}

// Append implements [eventlog.Backend].
func (b *Backend) Append(ctx context.Context, p eventlog.Proposal) (eventlog.Answer, error) {
	defer b.observe("append", time.Now())
	ctx, done := b.untilClosed(ctx)
	defer done()
	if err := b.room(ctx, p); err != nil {
		return eventlog.Answer{}, err
	}
	held := clientv3.Compare(clientv3.Value(b.head), "=", string(p.From))
	if len(p.From) == 0 {
		held = clientv3.Compare(clientv3.CreateRevision(b.head), "=", 0)
	}
	applied, lost := b.lineUp(p)
	resp, err := b.client.Txn(ctx).
		If(held, clientv3.Compare(clientv3.CreateRevision(b.key(p.At)), "=", 0)).
		Then(append([]clientv3.Op{clientv3.OpPut(b.key(p.At), string(p.Value)), clientv3.OpPut(b.head, string(p.To))}, applied...)...).
		Else(append(b.reads(p.At), lost...)...).
		Commit()
	if err != nil {
		return b.failed(ctx, p, err)
	}
	if len(lost) > 0 {
		b.noteLine(resp)
	}
	if resp.Succeeded {
		return eventlog.Answer{Applied: true}, nil
	}
	return b.answer(resp)
}

// Read implements [eventlog.Backend].
func (b *Backend) Read(ctx context.Context, from uint64) (eventlog.Answer, error) {
	defer b.observe("read", time.Now())
	ctx, done := b.untilClosed(ctx)
	defer done()
	resp, err := b.client.Txn(ctx).Then(b.reads(from)...).Commit()
	if err != nil {
		return eventlog.Answer{}, fmt.Errorf("etcd: %w", err)
	}
	return b.answer(resp)
}

// reads returns the operations that read the head and the batches from a revision on.
func (b *Backend) reads(from uint64) []clientv3.Op {
	return []clientv3.Op{
		clientv3.OpGet(b.head),
		clientv3.OpGet(b.key(from), clientv3.WithRange(clientv3.GetPrefixRangeEnd(b.log)), clientv3.WithLimit(batchesPerRead)),
	}
}

func (b *Backend) answer(resp *clientv3.TxnResponse) (eventlog.Answer, error) {
	var a eventlog.Answer
	if kvs := resp.Responses[0].GetResponseRange().GetKvs(); len(kvs) > 0 {
		a.Head = kvs[0].Value
	}
	for _, kv := range resp.Responses[1].GetResponseRange().GetKvs() {
		s, err := b.stored(kv.Key, kv.Value)
		if err != nil {
			return eventlog.Answer{}, err
		}
		a.Batches = append(a.Batches, s)
	}
	return a, nil
}

// ReadBack implements [eventlog.Backend].
func (b *Backend) ReadBack(ctx context.Context, from uint64, max int) ([]eventlog.Stored, error) {
	defer b.observe("read_back", time.Now())
	ctx, done := b.untilClosed(ctx)
	defer done()
	resp, err := b.client.Get(ctx, b.log, clientv3.WithRange(b.key(from)+"\x00"), clientv3.WithLimit(int64(max)),
		clientv3.WithSort(clientv3.SortByKey, clientv3.SortDescend))
	if err != nil {
		return nil, fmt.Errorf("etcd: %w", err)
	}
	back := make([]eventlog.Stored, len(resp.Kvs))
	for i, kv := range resp.Kvs {
		if back[i], err = b.stored(kv.Key, kv.Value); err != nil {
			return nil, err
		}
	}
	return back, nil
}

// Limits implements [eventlog.Backend].
func (b *Backend) Limits() eventlog.Limits { return b.limits }

// Close implements [eventlog.Backend].
func (b *Backend) Close() error {
	var err error
	b.closing.Do(func() {
		b.cancel()
		err = b.close()
	})
	return err
}

// untilClosed returns a context that also ends when the backend is closed.
func (b *Backend) untilClosed(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(b.ctx, cancel)
	return ctx, func() { stop(); cancel() }
}

func (b *Backend) key(revision uint64) string { return fmt.Sprintf("%s%020d", b.log, revision) }

func (b *Backend) stored(key, value []byte) (eventlog.Stored, error) {
	first, err := strconv.ParseUint(string(key[len(b.log):]), 10, 64)
	if err != nil {
		return eventlog.Stored{}, &eventlog.CorruptError{Reason: fmt.Sprintf("key %q is not of a revision", key)}
	}
	return eventlog.Stored{First: first, Value: value}, nil
}
