package history_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/projections/history"
)

// events returns the number of events in benchmarks: STELE_HISTORY_EVENTS, or 100,000.
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

// fill makes a folder with the history of all batches of a factory.
func fill(b *testing.B, f *factory) string {
	dir := b.TempDir()
	s := run(b, dir, f, f.head(0))
	if err := s.Wait(b.Context(), f.events); err != nil {
		b.Fatal(err)
	}
	s.stop()
	return dir
}

// filled returns a store with n events about some objects.
func filled(b *testing.B, objects uint64) (*running, *factory) {
	f := &factory{events: events(b), objects: objects, payload: 1000}
	s := run(b, fill(b, f), f, f.head(0))
	s.reach(b, f.events)
	return s, f
}

func BenchmarkAppend(b *testing.B) {
	f := &factory{events: events(b), objects: 10_000, payload: 1000}
	var batches []*eventlog.Batch
	for r := uint64(1); r <= f.events; r += f.perBatch() {
		batches = append(batches, f.make(r))
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

// cpu returns the CPU time of the process.
func cpu() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// given is a log of batches that a factory has made.
type given struct {
	*factory
	batches []*eventlog.Batch
}

func (g *given) Next(ctx context.Context, after eventlog.Head) ([]*eventlog.Batch, error) {
	if after.Revision < g.events {
		i := after.Revision / g.perBatch()
		return g.batches[i : i+1], nil
	}
	return g.factory.Next(ctx, after)
}

func BenchmarkOpen(b *testing.B) {
	f := &factory{events: events(b), objects: 10_000, payload: 1000}
	dir := fill(b, f)
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
	s, f := filled(b, 10_000)
	random := rand.New(rand.NewPCG(1, 1))
	before := cpu()
	for b.Loop() {
		n := random.Uint64N(f.objects)
		c, err := s.Get(b.Context(), widgets, fmt.Sprint("namespace-", n%100), fmt.Sprint("widget-", n), f.objects+random.Uint64N(f.events-f.objects))
		if err != nil || c == nil {
			b.Fatal(c, err)
		}
	}
	b.ReportMetric(float64((cpu()-before).Microseconds())/float64(b.N), "µs-cpu/op")
}

// This lists 10,000 objects. Their last changes follow each other, or each is in a block of its own.
func BenchmarkList(b *testing.B) {
	for _, layout := range []string{"dense", "sparse"} {
		f := &factory{events: events(b), objects: 10_000, payload: 1000}
		if layout == "sparse" {
			f.objects, f.every = f.events, f.events/10_000
		}
		dir := fill(b, f)
		for _, temperature := range []string{"cold", "warm"} {
			b.Run(layout+"/"+temperature, func(b *testing.B) {
				s := run(b, dir, f, f.head(0))
				took := time.Duration(0)
				for b.Loop() {
					b.StopTimer()
					if temperature == "cold" { // neither the store nor the system has any of it in memory
						s.stop()
						forget(b, dir)
						s = run(b, dir, f, f.head(0))
					}
					s.reach(b, f.events)
					before := cpu()
					b.StartTimer()
					n := 0
					for _, err := range s.List(b.Context(), widgets, "", f.events-1) {
						if n++; err != nil {
							b.Fatal(err)
						}
					}
					if n < 9_999 {
						b.Fatal(n)
					}
					took += cpu() - before
				}
				s.stop()
				b.ReportMetric(float64(took.Microseconds())/1000/float64(b.N), "ms-cpu/op")
			})
		}
	}
}

func BenchmarkVersions(b *testing.B) {
	s, f := filled(b, events(b)/1000)
	random := rand.New(rand.NewPCG(1, 1))
	before := cpu()
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
	b.ReportMetric(float64((cpu()-before).Microseconds())/float64(b.N), "µs-cpu/op")
}

func BenchmarkRevisionAt(b *testing.B) {
	s, f := filled(b, 10_000)
	random := rand.New(rand.NewPCG(1, 1))
	before := cpu()
	for b.Loop() {
		if _, err := s.RevisionAt(b.Context(), time.Unix(1+random.Int64N(int64(f.events)), 0)); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64((cpu()-before).Microseconds())/float64(b.N), "µs-cpu/op")
}

// forget asks the system to drop its cache of the files in a folder.
func forget(b *testing.B, dir string) {
	for _, name := range filesOf(b, dir) {
		f, err := os.Open(filepath.Join(dir, name))
		if err != nil {
			b.Fatal(err)
		}
		if err := errors.Join(f.Sync(), unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED), f.Close()); err != nil {
			b.Fatal(err)
		}
	}
}
