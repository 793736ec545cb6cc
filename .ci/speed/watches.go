package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

const (
	watchersPerConnection = 10
	fanOutWriters         = 8
	fanOutWrites          = 1000
)

// event is an event as a watcher saw it.
type event struct {
	version uint64
	at      time.Time
}

// fleet is many watches of the collection, on connections of their own.
type fleet struct {
	bench   *bench
	events  [][]event
	opened  []time.Duration
	vias    []*http.Transport
	seen    atomic.Int64 // events of all watchers
	stop    context.CancelCauseFunc
	running sync.WaitGroup
	ctx     context.Context
}

// watch starts all watches, and returns when each has begun.
func (b *bench) watch(ctx context.Context, events int) (*fleet, error) {
	from := uint64(0)
	if !b.fixed {
		answer, err := b.target.client(0).send(ctx, "GET", collection, "limit=1", "", nil)
		if err != nil {
			return nil, err
		}
		version, _, err := scanList(answer, func([]byte) error { return nil })
		if err != nil {
			return nil, err
		}
		if from, err = strconv.ParseUint(version, 10, 64); err != nil {
			return nil, err
		}
	}
	f := &fleet{bench: b, events: make([][]event, b.watchers), opened: make([]time.Duration, b.watchers)}
	f.ctx, f.stop = context.WithCancelCause(ctx)
	var begun sync.WaitGroup
	for i := range b.watchers {
		if i%watchersPerConnection == 0 {
			f.vias = append(f.vias, b.target.transport())
		}
		via := f.vias[len(f.vias)-1]
		f.events[i] = make([]event, 0, events)
		begun.Add(1)
		f.running.Go(func() {
			body, err := f.open(via, from, &f.opened[i])
			begun.Done()
			if err == nil {
				err = f.read(body, i)
				body.Close()
			}
			if f.ctx.Err() == nil {
				f.stop(fmt.Errorf("watcher %d: %w", i, cmp.Or(err, io.ErrUnexpectedEOF)))
			}
		})
	}
	begun.Wait()
	if err := context.Cause(f.ctx); err != nil {
		f.end()
		return nil, err
	}
	return f, nil
}

func (f *fleet) open(via *http.Transport, from uint64, took *time.Duration) (io.ReadCloser, error) {
	start := time.Now()
	resp, err := via.RoundTrip(f.bench.target.request(f.ctx, "GET", collection, fmt.Sprint("watch=true&resourceVersion=", from), "", nil))
	if err != nil {
		return nil, err
	}
	*took = time.Since(start)
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 1024))
		resp.Body.Close()
		return nil, &statusError{resp.StatusCode, string(text)}
	}
	return resp.Body, nil
}

func (f *fleet) read(body io.Reader, i int) error {
	lines := bufio.NewReaderSize(body, 64<<10)
	for {
		line, err := lines.ReadSlice('\n')
		if err != nil {
			return err
		}
		at := time.Now()
		kind, object, err := splitEvent(bytes.TrimSpace(line))
		switch {
		case err != nil:
			return err
		case kind == "BOOKMARK":
			continue
		case kind != "MODIFIED":
			return fmt.Errorf("an unexpected event %s", kind)
		}
		version, err := versionOf(object)
		if err != nil {
			return err
		}
		f.events[i] = append(f.events[i], event{version, at})
		f.seen.Add(1)
	}
}

// await waits until all watchers together have seen some events.
func (f *fleet) await(events int64) error {
	for f.seen.Load() < events {
		select {
		case <-f.ctx.Done():
			return fmt.Errorf("after %d of %d events: %w", f.seen.Load(), events, context.Cause(f.ctx))
		case <-time.After(time.Millisecond):
		}
	}
	return nil
}

func (f *fleet) end() {
	f.stop(nil)
	f.running.Wait()
	for _, via := range f.vias {
		via.CloseIdleConnections()
	}
}

// startWatches starts all watches. The write that all of them must see is part of the scenario, but costs little beside it.
func (b *bench) startWatches(ctx context.Context) (int, []time.Duration, error) {
	f, err := b.watch(ctx, 1)
	if err != nil {
		return 0, nil, err
	}
	defer f.end()
	if _, err := b.patchOne(ctx, b.target.client(0), 0); err != nil {
		return 0, nil, err
	}
	return b.watchers, slices.Clone(f.opened), f.await(int64(b.watchers))
}

// fanOut sends patches while all watches are open. Each watcher must see each of them, once and in order. It returns how long
// each event took from the request to its watcher.
func (b *bench) fanOut(ctx context.Context) (int, []time.Duration, error) {
	f, err := b.watch(ctx, fanOutWrites)
	if err != nil {
		return 0, nil, err
	}
	defer f.end()
	if err := b.begin(); err != nil { // without the starts of the watches
		return 0, nil, err
	}
	sent := make([]event, fanOutWrites)
	if _, err := b.target.loop(ctx, fanOutWrites, 0, fanOutWriters, func(ctx context.Context, c *client, i int) error {
		at := time.Now()
		version, err := b.patchOne(ctx, c, i%b.objects)
		sent[i] = event{version, at}
		return err
	}); err != nil {
		return 0, nil, err
	}
	total := b.watchers * fanOutWrites
	if err := f.await(int64(total)); err != nil || b.fixed {
		return total, nil, err
	}
	f.end()
	slices.SortFunc(sent, func(x, y event) int { return cmp.Compare(x.version, y.version) })
	took := make([]time.Duration, 0, total)
	for w, events := range f.events {
		if len(events) != len(sent) {
			return 0, nil, fmt.Errorf("watcher %d has seen %d events, not %d", w, len(events), len(sent))
		}
		for i, e := range events {
			if e.version != sent[i].version {
				return 0, nil, errors.New("a watcher has seen events in another order, or one twice")
			}
			took = append(took, e.at.Sub(sent[i].at))
		}
	}
	return total, took, nil
}
