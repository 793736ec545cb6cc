package etcdlog

import (
	"cmp"
	"context"
	"encoding/hex"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"stele.dev/stele/eventlog"
)

// heardBytes bounds the batches from the watch that are kept for News. The newest is always kept.
const heardBytes = 2 << 20

// hearTimeout bounds the read at the start of a watch.
const hearTimeout = 5 * time.Second

// news is what one watch of the batches and of the line has told. The caller holds Backend.mu.
type news struct {
	watching bool
	batches  []eventlog.Stored // the newest, in their order
	bytes    int
	newest   uint64                     // first revision of the newest batch of the log
	line     map[string]eventlog.Waiter // by key
	asOf     int64                      // the etcd revision of line
	changed  chan struct{}              // closed and replaced when any of this changes
}

// Wait implements [eventlog.Backend]. All calls share one watch. While the watch is interrupted, they wait for it.
func (b *Backend) Wait(ctx context.Context, from uint64) error {
	for {
		b.mu.Lock()
		if !b.news.watching {
			b.news.watching = true
			go b.watch()
		}
		newest, changed := b.news.newest, b.news.changed
		b.mu.Unlock()
		if newest >= from {
			return nil
		}
		select {
		case <-changed:
		case <-b.ctx.Done():
			return b.ctx.Err()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// News implements [eventlog.Backend].
func (b *Backend) News(from uint64) eventlog.News {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := eventlog.News{Changed: b.news.changed}
	for i, s := range b.news.batches {
		if s.First == from {
			n.Batches = slices.Clone(b.news.batches[i:])
			break
		}
	}
	if len(b.news.line) > 0 {
		for _, w := range b.news.line {
			n.Line = append(n.Line, w)
		}
		slices.SortFunc(n.Line, func(a, b eventlog.Waiter) int { return cmp.Compare(a.Place, b.Place) })
	}
	return n
}

// watch follows the batches and the line until the backend is closed.
func (b *Backend) watch() {
	const longest = time.Second
	pause := 10 * time.Millisecond
	for b.ctx.Err() == nil {
		ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(b.ctx))
		// Keys between those of the batches and those of the line are ignored.
		for resp := range b.client.Watch(ctx, b.log, clientv3.WithRange(clientv3.GetPrefixRangeEnd(b.waiting)), clientv3.WithCreatedNotify()) {
			if resp.Created {
				if err := b.hearAll(ctx); err != nil {
					break
				}
				pause = 10 * time.Millisecond
			}
			b.hear(resp.Events)
		}
		cancel()
		select { // the cluster has no leader, for example
		case <-time.After(pause):
			pause = min(2*pause, longest)
		case <-b.ctx.Done():
		}
	}
}

// hearAll reads what the watch does not tell, because it was there before.
func (b *Backend) hearAll(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, hearTimeout)
	defer cancel()
	resp, err := b.client.Txn(ctx).Then(
		clientv3.OpGet(b.log, clientv3.WithPrefix(), clientv3.WithSort(clientv3.SortByKey, clientv3.SortDescend), clientv3.WithLimit(1), clientv3.WithKeysOnly()),
		b.readLine(),
	).Commit()
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, kv := range resp.Responses[0].GetResponseRange().GetKvs() {
		if s, err := b.stored(kv.Key, nil); err == nil {
			b.news.newest = max(b.news.newest, s.First)
		}
	}
	b.setLine(resp)
	b.tell()
	return nil
}

// hear takes in the events of a watch.
func (b *Backend) hear(events []*clientv3.Event) {
	if len(events) == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	n := &b.news
	for _, e := range events {
		key := string(e.Kv.Key)
		switch {
		case strings.HasPrefix(key, b.waiting):
			if e.Kv.ModRevision <= n.asOf {
				continue
			}
			delete(n.line, key)
			if e.Type == mvccpb.PUT {
				b.addWaiter(e.Kv)
			}
		case strings.HasPrefix(key, b.log) && e.Type == mvccpb.PUT:
			s, err := b.stored(e.Kv.Key, e.Kv.Value)
			if err != nil {
				continue // a read tells why
			}
			n.newest = max(n.newest, s.First)
			n.batches = append(n.batches, s)
			for n.bytes += len(s.Value); n.bytes > heardBytes && len(n.batches) > 1; n.batches = n.batches[1:] {
				n.bytes -= len(n.batches[0].Value)
				n.batches[0] = eventlog.Stored{}
			}
		}
	}
	b.tell()
}

// setLine takes in the line that a transaction has read last.
func (b *Backend) setLine(resp *clientv3.TxnResponse) {
	if resp.Header.GetRevision() < b.news.asOf {
		return
	}
	b.news.asOf = resp.Header.GetRevision()
	clear(b.news.line)
	for _, kv := range resp.Responses[len(resp.Responses)-1].GetResponseRange().GetKvs() {
		b.addWaiter(kv)
	}
}

func (b *Backend) addWaiter(kv *mvccpb.KeyValue) {
	w := eventlog.Waiter{Place: uint64(kv.ModRevision)}
	if n, err := hex.Decode(w.Writer[:], kv.Key[len(b.waiting):]); err != nil || n != len(w.Writer) {
		return // not of a writer
	}
	if took, err := strconv.ParseInt(string(kv.Value), 10, 64); err == nil {
		w.RoundTrip = time.Duration(took) * time.Microsecond
	}
	b.news.line[string(kv.Key)] = w
}

// tell wakes those who wait for news.
func (b *Backend) tell() {
	close(b.news.changed)
	b.news.changed = make(chan struct{})
}

// Leave implements [eventlog.Backend].
func (b *Backend) Leave(ctx context.Context, writer eventlog.ID) error {
	ctx, done := b.untilClosed(ctx)
	defer done()
	_, err := b.client.Delete(ctx, b.place(writer))
	return err
}

// place is the key of a writer in the line.
func (b *Backend) place(writer eventlog.ID) string { return b.waiting + writer.String() }

func (b *Backend) readLine() clientv3.Op { return clientv3.OpGet(b.waiting, clientv3.WithPrefix()) }

// lineUp returns what an append does to the line if it is applied, and if it is not. Both end with a read of the line.
func (b *Backend) lineUp(p eventlog.Proposal) (applied, lost []clientv3.Op) {
	if p.Writer == (eventlog.ID{}) {
		return nil, nil
	}
	place := b.place(p.Writer)
	b.mu.Lock()
	_, waits := b.news.line[place]
	b.mu.Unlock()
	put := clientv3.OpPut(place, strconv.FormatInt(p.RoundTrip.Microseconds(), 10))
	switch {
	case p.Stays:
		applied = append(applied, put)
	case waits:
		applied = append(applied, clientv3.OpDelete(place))
	}
	for _, id := range p.Skipped {
		if eventlog.ID(id) != p.Writer {
			applied = append(applied, clientv3.OpDelete(b.place(eventlog.ID(id))))
		}
	}
	if !waits {
		lost = append(lost, put)
	}
	return append(applied, b.readLine()), append(lost, b.readLine())
}

// noteLine takes in the line that an append has read last.
func (b *Backend) noteLine(resp *clientv3.TxnResponse) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.setLine(resp)
	b.tell()
}
