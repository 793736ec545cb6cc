package history_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/logpb"
	"stele.dev/stele/projections/history"
)

// factory is a log whose batches are made when they are asked for, and not kept. Change n is
// of object n % objects.
type factory struct {
	events, objects uint64
	payload         int
}

const perBatch = 50

func (f *factory) head(revision uint64) eventlog.Head {
	h := eventlog.Head{Log: eventlog.ID{9}, Revision: revision}
	if revision > 0 {
		h.Hash[0] = 1
	}
	return h
}

func (f *factory) batch(first uint64) *eventlog.Batch {
	b := &eventlog.Batch{Log: eventlog.ID{9}, First: first, Time: time.Unix(int64(first), 0)}
	b.Hash[0] = 1
	for r := first; r < first+perBatch && r <= f.events; r++ {
		b.Events = append(b.Events, f.event(r, b.Time))
	}
	b.Revisions = uint64(len(b.Events))
	return b
}

func (f *factory) event(r uint64, t time.Time) *eventlog.Event {
	n := (r - 1) % f.objects
	e := &eventlog.Event{Revision: r, Time: t, Meta: &logpb.Metadata{
		Type:         logpb.Type_TYPE_CREATED,
		Object:       &logpb.Object{Group: "example.com", Resource: "widgets", Namespace: fmt.Sprint("namespace-", n%100), Name: fmt.Sprint("widget-", n), Uid: fmt.Sprintf("%036d", n), Version: "v1", Kind: "Widget"},
		Actor:        &logpb.Actor{User: "system:serviceaccount:kube-system:controller", Groups: []string{"system:authenticated", "system:serviceaccounts"}},
		Request:      &logpb.Request{Verb: "update", UserAgent: "controller/v1.37.0 (linux/amd64)", SourceIps: []string{"10.0.0.1"}, AuditId: fmt.Sprintf("%036d", r), Uri: "/apis/example.com/v1/namespaces/namespace/widgets/name", Status: 200, MediaType: "application/json"},
		Decisions:    &logpb.Decisions{Authorizer: "rbac", Rule: "platform/bindings/controllers", Source: "bindings.cue:7"},
		PolicyDigest: make([]byte, 32),
	}}
	if r > f.objects {
		e.Meta.Type, e.Meta.PreviousRevision = logpb.Type_TYPE_UPDATED, r-f.objects
	}
	random := rand.New(rand.NewPCG(r, 0))
	payload := fmt.Appendf(nil, `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"widget-%d","namespace":"namespace-%d"},"spec":{`, n, n%100)
	if f.payload > 10_000 {
		payload = append(payload, bytes.Repeat([]byte(" "), f.payload)...)
	}
	for i := 0; len(payload) < f.payload; i++ {
		payload = fmt.Appendf(payload, `"field%d":"%d",`, i, random.Uint32())
	}
	e.AddContent(&logpb.Payload{Role: logpb.Role_ROLE_OBJECT}, append(payload, `"last":true}}`...))
	return e
}

func (f *factory) Next(ctx context.Context, after eventlog.Head) ([]*eventlog.Batch, error) {
	if after.Revision < f.events {
		return []*eventlog.Batch{f.batch(after.Revision + 1)}, nil
	}
	<-ctx.Done()
	return nil, ctx.Err()
}

func (f *factory) CatchUp(ctx context.Context, after eventlog.Head) ([]*eventlog.Batch, error) {
	if after.Revision < f.events {
		return f.Next(ctx, after)
	}
	return nil, nil
}

func (f *factory) Back(_ context.Context, from uint64, _ int) ([]*eventlog.Batch, error) {
	return []*eventlog.Batch{f.batch((from-1)/perBatch*perBatch + 1)}, nil
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// allowed is the memory that an event may take.
const allowed = 48

func TestMemoryOfAnEvent(t *testing.T) {
	for _, c := range []struct {
		name    string
		events  uint64
		payload int
	}{
		{"new objects, the table just grown", 420_000, 10},
		{"new objects", 300_000, 10},
		{"one in a block, the table just grown", 53_000, 17_000},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := &factory{events: c.events, objects: c.events, payload: c.payload}
			before := heap()
			s := run(t, t.TempDir(), f, f.head(0))
			s.reach(t, f.events)
			each := float64(heap()-before) / float64(f.events)
			t.Logf("%.1f bytes of memory for each event", each)
			if each > allowed {
				t.Errorf("%.1f bytes of memory for each event, at most %d are allowed", each, allowed)
			}
			if c, err := s.At(t.Context(), f.events); err != nil || c == nil { // it is in use until here
				t.Error(c, err)
			}
		})
	}
}

// What has been read does not stay in memory.
func TestMemoryOfReading(t *testing.T) {
	f := &factory{events: 40_000, objects: 40_000, payload: 2000}
	s := run(t, t.TempDir(), f, f.head(0))
	s.reach(t, f.events)
	before := heap()
	n := 0
	for _, err := range s.After(t.Context(), history.Filter{}, 0, f.events) {
		if n++; err != nil {
			t.Fatal(err)
		}
	}
	if grown := int64(heap()) - int64(before); n != 40_000 || grown > 10<<20 {
		t.Errorf("%d changes were read, and %d bytes stay in memory", n, grown)
	}
}

// events of the benchmarks: STELE_HISTORY_EVENTS, or 100,000.
func events(b *testing.B) uint64 {
	n, err := strconv.ParseUint(os.Getenv("STELE_HISTORY_EVENTS"), 10, 64)
	if os.Getenv("STELE_HISTORY_EVENTS") == "" {
		return 100_000
	}
	if err != nil {
		b.Fatal(err)
	}
	return n
}

var widgets = schema.GroupResource{Group: "example.com", Resource: "widgets"}

// filled is a store of so many events about some objects, and its folder.
func filled(b *testing.B, objects uint64) (*running, *factory, string) {
	f := &factory{events: events(b), objects: objects, payload: 1000}
	dir := b.TempDir()
	s := run(b, dir, f, f.head(0))
	if err := s.Wait(b.Context(), f.events); err != nil {
		b.Fatal(err)
	}
	return s, f, dir
}

func BenchmarkAppend(b *testing.B) {
	f := &factory{events: events(b), objects: 10_000, payload: 1000}
	var batches []*eventlog.Batch
	for r := uint64(1); r <= f.events; r += perBatch {
		batches = append(batches, f.batch(r))
	}
	before := cpu()
	for b.Loop() {
		log := &given{factory: f, batches: batches}
		s := run(b, b.TempDir(), log, f.head(0))
		if err := s.Wait(b.Context(), f.events); err != nil {
			b.Fatal(err)
		}
		s.stop()
	}
	b.ReportMetric(float64((cpu()-before).Microseconds())/float64(b.N)/float64(f.events), "µs-cpu/event")
}

// cpu is what the process has taken of the processors.
func cpu() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// given are a factory's batches that are made already.
type given struct {
	*factory
	batches []*eventlog.Batch
}

func (g *given) Next(ctx context.Context, after eventlog.Head) ([]*eventlog.Batch, error) {
	if after.Revision < g.events {
		i := after.Revision / perBatch
		return g.batches[i : i+1], nil
	}
	return g.factory.Next(ctx, after)
}

func BenchmarkOpen(b *testing.B) {
	s, f, dir := filled(b, 10_000)
	s.stop()
	for b.Loop() {
		s, err := history.Open(history.Options{Dir: dir, Log: f, Start: f.head(0)})
		if err != nil {
			b.Fatal(err)
		}
		s.Close()
	}
	b.ReportMetric(float64(b.Elapsed().Milliseconds())/float64(b.N)/float64(f.events)*1e6, "ms/million")
}

func BenchmarkGet(b *testing.B) {
	s, f, _ := filled(b, 10_000)
	random := rand.New(rand.NewPCG(1, 1))
	for b.Loop() {
		n := random.Uint64N(f.objects)
		c, err := s.Get(b.Context(), widgets, fmt.Sprint("namespace-", n%100), fmt.Sprint("widget-", n), f.objects+random.Uint64N(f.events-f.objects))
		if err != nil || c == nil {
			b.Fatal(c, err)
		}
	}
}

func BenchmarkList(b *testing.B) {
	s, f, dir := filled(b, 10_000)
	s.stop()
	for _, cold := range []bool{true, false} {
		b.Run(fmt.Sprintf("cold=%v", cold), func(b *testing.B) {
			random := rand.New(rand.NewPCG(1, 1))
			s := run(b, dir, f, f.head(0))
			for b.Loop() {
				b.StopTimer()
				if cold { // neither the store nor the system has any of it in memory
					s.stop()
					forget(b, dir)
					s = run(b, dir, f, f.head(0))
				}
				s.reach(b, f.events)
				b.StartTimer()
				n := 0
				for _, err := range s.List(b.Context(), widgets, "", f.objects+random.Uint64N(f.events-f.objects)) {
					if n++; err != nil {
						b.Fatal(err)
					}
				}
				if n != 10_000 {
					b.Fatal(n)
				}
			}
			s.stop()
		})
	}
}

func BenchmarkVersions(b *testing.B) {
	s, f, _ := filled(b, events(b)/1000)
	random := rand.New(rand.NewPCG(1, 1))
	for b.Loop() {
		o := random.Uint64N(f.objects)
		n := 0
		for _, err := range s.Versions(b.Context(), widgets, fmt.Sprint("namespace-", o%100), fmt.Sprint("widget-", o), f.events) {
			if n++; err != nil {
				b.Fatal(err)
			}
		}
		if n != 1000 {
			b.Fatal(n)
		}
	}
}

func BenchmarkRevisionAt(b *testing.B) {
	s, f, _ := filled(b, 10_000)
	random := rand.New(rand.NewPCG(1, 1))
	for b.Loop() {
		if _, err := s.RevisionAt(b.Context(), time.Unix(1+random.Int64N(int64(f.events)), 0)); err != nil {
			b.Fatal(err)
		}
	}
}

// forget asks the system to drop what it keeps of the files in a folder.
func forget(b *testing.B, dir string) {
	for _, name := range files {
		f, err := os.Open(filepath.Join(dir, name))
		if err != nil {
			b.Fatal(err)
		}
		if err := errors.Join(f.Sync(), unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED), f.Close()); err != nil {
			b.Fatal(err)
		}
	}
}
