package client

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"stele.dev/stele/core/resources/decisionsapi"
)

// How often the list of servers is read: while one of them is missing, and otherwise.
const (
	soon   = 5 * time.Second
	seldom = time.Minute
)

// following follows the decisions of all servers of a log. A server has a stream of its own, which reconnects. What was shown is known by
// decision log, because a server that comes back may have another name, and its address may lead to another server.
type following struct {
	e     *DecisionsEverywhere
	q     DecisionsQuery
	begun time.Time
	each  func([]*Decision) error
	moved chan struct{} // the address of the first stream leads to another server

	mu      sync.Mutex // held while decisions are shown
	writes  uint64     // the last write that was shown
	shown   map[string]uint64
	streams map[string]*stream // the one that follows a decision log, by the log's ID
	servers map[string]*stream // of other servers, by their names
}

// stream follows the decisions of one server.
type stream struct {
	*Decisions
	outage
	first bool // of the server of the configuration: writes are followed there

	key  string // the fingerprint of the server's key; "" for the first
	id   string // of the decision log that it follows
	last string // the time of the last decision that it has shown
	down bool   // it has no connection
	stop context.CancelFunc
}

// errFollowed says that another stream follows the decision log of a server.
var errFollowed = errors.New("its decision log is followed already")

// Follow calls each with new decisions of all servers after those of lists until the context ends. It reconnects to servers that do not answer,
// and follows servers that start later. Each decision is shown once.
//
// begun is a time before the lists: what a server has since then is shown if it was not listed.
func (e *DecisionsEverywhere) Follow(ctx context.Context, q DecisionsQuery, versions Versions, begun time.Time, each func([]*Decision) error) error {
	f := &following{e: e, q: q, begun: begun, each: each, moved: make(chan struct{}, 1), shown: map[string]uint64{}, streams: map[string]*stream{}, servers: map[string]*stream{}}
	for i, version := range versions {
		if version == "" {
			continue
		}
		writes, record, id := positionOf(version)
		if f.shown[id] = record; i == 0 {
			f.writes = writes
		}
	}
	ctx, stop := context.WithCancel(ctx)
	var others sync.WaitGroup
	defer others.Wait()
	defer stop()
	if e.config != nil && q.Fields["type"] != decisionsapi.TypeWrite {
		for _, o := range e.others {
			f.start(ctx, &others, o, false)
		}
		others.Go(func() { f.findServers(ctx, &others) })
	}
	return f.run(ctx, &stream{Decisions: e.Decisions, first: true, outage: outage{server: e.host(), say: f.warn}})
}

// warn prints a warning while no decisions are printed.
func (f *following) warn(text string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.e.warn(text)
}

// positionOf returns the parts of a resource version of decisions.
func positionOf(version string) (writes, record uint64, id string) {
	parts := strings.SplitN(version, ".", 3)
	writes, _ = strconv.ParseUint(parts[0], 10, 64)
	if len(parts) == 3 {
		record, _ = strconv.ParseUint(parts[1], 10, 64)
		id = parts[2]
	}
	return writes, record, id
}

// start starts the stream of another server. missed says that the server did not answer before.
func (f *following) start(ctx context.Context, running *sync.WaitGroup, o otherServer, missed bool) {
	s := &stream{Decisions: o.Decisions, key: o.key, outage: outage{server: "replica " + o.name, say: f.warn, lasts: missed}}
	ctx, s.stop = context.WithCancel(ctx)
	f.mu.Lock()
	f.servers[o.name] = s
	f.mu.Unlock()
	running.Go(func() {
		defer s.stop()
		if err := f.run(ctx, s); err != nil && !errors.Is(err, errFollowed) && ctx.Err() == nil {
			f.warn(fmt.Sprintf("decisions of %s are missing: %v", s.server, err))
		}
	})
}

// findServers starts the streams of servers that begin to run while others are followed, and stops those of servers that are gone.
func (f *following) findServers(ctx context.Context, running *sync.WaitGroup) {
	for {
		pause := seldom
		if f.incomplete() {
			pause = soon
		}
		select {
		case <-ctx.Done():
			return
		case <-f.moved: // so the former one is followed as another server
		case <-time.After(pause):
		}
		asking, cancel := context.WithTimeout(ctx, askWithin)
		found := &DecisionsEverywhere{warned: map[string]bool{}, warn: func(string) {}}
		err := found.find(asking, f.e.config)
		if cancel(); err != nil {
			continue // the first stream says what is wrong
		}
		for _, o := range f.compare(found) {
			f.start(ctx, running, o, true)
		}
	}
}

// compare returns the servers that are to be followed, too, and stops the streams of those that are gone.
func (f *following) compare(found *DecisionsEverywhere) (started []otherServer) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.e.warned = found.warned
	for name, s := range f.servers {
		if s.down && !found.known[name] {
			s.stop()
			delete(f.servers, name)
		}
	}
	for _, o := range found.others {
		s := f.servers[o.name]
		if s != nil && s.down && s.key != o.key { // its certificate was renewed
			s.stop()
			s = nil
		}
		if s == nil || !s.down && f.streams[s.id] == nil {
			started = append(started, o)
		}
	}
	return started
}

// incomplete reports whether a server is missing.
func (f *following) incomplete() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.servers {
		if s.down {
			return true
		}
	}
	return len(f.e.warned) > 0
}

// run follows a server until the context ends, or another attempt does not help.
func (f *following) run(ctx context.Context, s *stream) error {
	for ctx.Err() == nil {
		err := f.follow(ctx, s)
		f.mu.Lock()
		if s.down = passes(err); s.down && f.streams[s.id] == s {
			delete(f.streams, s.id)
		}
		f.mu.Unlock()
		if err := s.wait(ctx, err); err != nil {
			return err
		}
	}
	return nil
}

// follow follows a server until its connection ends.
func (f *following) follow(ctx context.Context, s *stream) error {
	q := f.q
	q.NoWrites = q.NoWrites || !s.first
	version, err := f.begin(ctx, s)
	if err != nil {
		return err
	}
	err = s.watch(ctx, q, &version, s.noteAnswer, func(d *Decision) error { return f.show(s, d) })
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.streams[s.id] == s {
		f.note(s, version)
	}
	if status := apierrors.APIStatus(nil); !errors.As(err, &status) || status.Status().Code != http.StatusGone {
		return err
	}
	if !strings.Contains(err.Error(), decisionsapi.OfOtherLog) {
		f.e.warn(fmt.Sprintf("decisions of %s are missing: %v", s.server, err))
		delete(f.shown, s.id) // it goes on with what is kept
	}
	return nil // or with the decision log that the server has now
}

// begin returns the resource version after which a stream begins, and makes it the one that follows the decision log of its server. What
// that has recorded is shown, if nothing of it was shown yet.
func (f *following) begin(ctx context.Context, s *stream) (version string, err error) {
	newest, err := s.List(ctx, DecisionsQuery{Namespace: f.q.Namespace, Limit: 1}, func([]*Decision) error { return nil })
	if err != nil {
		return "", err
	}
	_, _, id := positionOf(newest)
	f.mu.Lock()
	if other := f.streams[id]; other != nil && other != s && !s.first {
		s.id = id // it is followed again if the other stream ends
		f.mu.Unlock()
		return "", errFollowed
	}
	if s.first && s.id != "" && s.id != id {
		select {
		case f.moved <- struct{}{}:
		default:
		}
	}
	if s.id != id {
		if f.streams[s.id] == s {
			delete(f.streams, s.id)
		}
		s.last = ""
	}
	s.id, f.streams[id] = id, s
	record, known := f.shown[id]
	f.mu.Unlock()
	if !known && id != "" {
		if record, err = f.catchUp(ctx, s); err != nil {
			return "", err
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if id == "" {
		return fmt.Sprint(f.writes), nil
	}
	return fmt.Sprintf("%d.%d.%s", f.writes, record, id), nil
}

// catchUp shows what a decision log has since the beginning, and returns its last record.
func (f *following) catchUp(ctx context.Context, s *stream) (record uint64, err error) {
	q := f.q
	q.Limit, q.NoWrites, q.Fields = 0, true, fields.Set{"since": f.begun.UTC().Format(time.RFC3339Nano)}
	maps.Copy(q.Fields, f.q.Fields) // a beginning that the user has chosen is earlier
	if s.last != "" {
		q.Fields["since"] = s.last
	}
	var all []*Decision
	version, err := s.List(ctx, q, func(page []*Decision) error {
		all = append(all, page...)
		return nil
	})
	if err != nil {
		return 0, err
	}
	slices.Reverse(all)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.streams[s.id] != s {
		return 0, errFollowed
	}
	f.note(s, version)
	s.noteAnswer()
	return f.shown[s.id], f.each(all)
}

// show shows a decision, unless another stream follows its log by now.
func (f *following) show(s *stream, d *Decision) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.streams[s.id] != s {
		return errFollowed
	}
	f.note(s, d.ResourceVersion)
	s.last = d.Time
	return f.each([]*Decision{d})
}

// note notes up to where decisions were shown. The lock must be held.
func (f *following) note(s *stream, version string) {
	writes, record, id := positionOf(version)
	if id != "" && id == s.id {
		f.shown[id] = max(f.shown[id], record)
	}
	if s.first {
		f.writes = max(f.writes, writes)
	}
}
