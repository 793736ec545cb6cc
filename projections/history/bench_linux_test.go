package history_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/archive"
	"stele.dev/stele/eventlog/memlog"
	"stele.dev/stele/projections/history"
)

// number returns the number in an environment variable.
func number(b *testing.B, variable string, otherwise uint64) uint64 {
	b.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		b.Fatal(err)
	}
	return n
}

// events returns the number of events in benchmarks.
func events(b *testing.B) uint64 { return number(b, "STELE_HISTORY_EVENTS", 100_000) }

var widgets = schema.GroupResource{Group: "example.com", Resource: "widgets"}

// cpu returns the CPU time of the process.
func cpu() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// sizeOf returns the bytes of the files in a folder.
func sizeOf(b *testing.B, dir string) (size int64) {
	for _, name := range filesOf(b, dir) {
		if info, err := os.Stat(filepath.Join(dir, name)); err == nil {
			size += info.Size()
		}
	}
	return size
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

// This is the cost of following the log, and of the index on disk.
func BenchmarkAppend(b *testing.B) {
	f := &factory{events: events(b), objects: 10_000, payload: 1000}
	var batches []*eventlog.Batch
	for r := uint64(1); r <= f.events; r += f.perBatch() {
		batches = append(batches, f.make(r))
	}
	dir := ""
	before := cpu()
	for b.Loop() {
		dir = b.TempDir()
		s := run(b, dir, &given{factory: f, batches: batches}, f.head(0))
		if err := s.Wait(b.Context(), f.events); err != nil {
			b.Fatal(err)
		}
		s.stop()
	}
	b.ReportMetric(float64((cpu()-before).Microseconds())/float64(b.N)/float64(f.events), "µs-cpu/event")
	b.ReportMetric(float64(sizeOf(b, dir))/float64(f.events), "B-disk/event")
}

// sealed returns a store that follows a log with a factory's events, of which all but the newest are in segments.
func sealed(b *testing.B, f *factory) (s *running, log *eventlog.Log) {
	var backend memlog.Store
	log, err := eventlog.Open(b.Context(), backend.Open(nil), eventlog.Options{RecentBytes: 1})
	if err != nil {
		b.Fatal(err)
	}
	tip := eventlog.Head{}
	if first, err := log.CatchUp(b.Context(), log.Start()); err == nil {
		tip = first[0].Head()
	}
	segments, err := archive.Open(archive.Options{Dir: b.TempDir(), Log: log.ID()})
	if err != nil {
		b.Fatal(err)
	}
	log.SetArchive(segments)
	for r := uint64(1); r <= f.events; r += f.perBatch() {
		var entries []*eventlog.Entry
		for _, e := range f.make(r).Events {
			if e.Meta.PreviousRevision > 0 {
				e.Meta.PreviousRevision++ // the log has one batch of its own before
			}
			entry, err := eventlog.Encode(e)
			if err != nil {
				b.Fatal(err)
			}
			entries = append(entries, entry)
		}
		won, _, err := log.Append(b.Context(), tip, eventlog.NewDraft(entries))
		if err != nil {
			b.Fatal(err)
		}
		tip = won.Head()
	}
	if _, err := segments.Seal(b.Context(), log, tip); err != nil {
		b.Fatal(err)
	}
	b.Logf("%d of %d revisions are in segments, of %.0f bytes an event", segments.Tip().Revision, tip.Revision, float64(sizeOf(b, segments.Dir()))/float64(segments.Tip().Revision))
	s = run(b, b.TempDir(), log, log.Start())
	s.reach(b, tip.Revision)
	return s, log
}

// latencies reports the median and the 99th percentile.
func latencies(b *testing.B, took []time.Duration) {
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Nanoseconds())/1000, "µs-p50")
	b.ReportMetric(float64(took[len(took)*99/100].Nanoseconds())/1000, "µs-p99")
}

// These are random versions of random objects, from segments.
func BenchmarkGet(b *testing.B) {
	f := &factory{events: events(b), objects: 10_000, payload: 1000, batch: number(b, "STELE_HISTORY_BATCH", 10)}
	s, _ := sealed(b, f)
	random := rand.New(rand.NewPCG(1, 1))
	var took []time.Duration
	before := cpu()
	for b.Loop() {
		n := random.Uint64N(f.objects)
		began := time.Now()
		c, err := s.Get(b.Context(), widgets, fmt.Sprint("namespace-", n%100), fmt.Sprint("widget-", n), f.objects+1+random.Uint64N(f.events-f.objects))
		if err != nil || c == nil {
			b.Fatal(c, err)
		}
		took = append(took, time.Since(began))
	}
	b.ReportMetric(float64((cpu()-before).Microseconds())/float64(b.N), "µs-cpu/op")
	latencies(b, took)
}

// This lists 10,000 objects at random revisions. Their last changes follow each other, or are far apart.
func BenchmarkList(b *testing.B) {
	for _, layout := range []string{"dense", "sparse"} {
		b.Run(layout, func(b *testing.B) {
			f := &factory{events: events(b), objects: 10_000, payload: 1000, batch: number(b, "STELE_HISTORY_BATCH", 10)}
			if layout == "sparse" {
				f.objects, f.every = f.events, f.events/10_000
			}
			s, _ := sealed(b, f)
			random := rand.New(rand.NewPCG(1, 1))
			before := cpu()
			for b.Loop() {
				at := f.events
				if layout == "dense" {
					at = f.objects + 1 + random.Uint64N(f.events-f.objects)
				}
				n := 0
				for _, err := range s.List(b.Context(), widgets, "", at) {
					if n++; err != nil {
						b.Fatal(err)
					}
				}
				if n < 9_999 {
					b.Fatal(n)
				}
			}
			b.ReportMetric(float64((cpu()-before).Microseconds())/1000/float64(b.N), "ms-cpu/op")
		})
	}
}

// This reads a thousand versions of one object.
func BenchmarkVersions(b *testing.B) {
	f := &factory{events: events(b), objects: events(b) / 1000, payload: 1000, batch: number(b, "STELE_HISTORY_BATCH", 10)}
	s, _ := sealed(b, f)
	random := rand.New(rand.NewPCG(1, 1))
	before := cpu()
	for b.Loop() {
		o := random.Uint64N(f.objects)
		n := 0
		for _, err := range s.Versions(b.Context(), widgets, fmt.Sprint("namespace-", o%100), fmt.Sprint("widget-", o), f.events+1) {
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

// This reads all changes of a resource, as a watch of the past does.
func BenchmarkAfter(b *testing.B) {
	f := &factory{events: events(b), objects: 10_000, payload: 1000, batch: number(b, "STELE_HISTORY_BATCH", 10)}
	s, _ := sealed(b, f)
	before := cpu()
	for b.Loop() {
		n := uint64(0)
		for _, err := range s.After(b.Context(), history.Filter{Resource: widgets}, 0, f.events+1) {
			if n++; err != nil {
				b.Fatal(err)
			}
		}
		if n != f.events {
			b.Fatal(n)
		}
	}
	b.ReportMetric(float64((cpu()-before).Microseconds())/float64(b.N)/float64(f.events), "µs-cpu/event")
}

func BenchmarkRevisionAt(b *testing.B) {
	f := &factory{events: events(b), objects: 10_000, payload: 1000, batch: number(b, "STELE_HISTORY_BATCH", 10)}
	s, _ := sealed(b, f)
	first, err := s.Time(b.Context(), 1)
	if err != nil {
		b.Fatal(err)
	}
	last, err := s.Time(b.Context(), f.events)
	if err != nil {
		b.Fatal(err)
	}
	random := rand.New(rand.NewPCG(1, 1))
	var took []time.Duration
	for b.Loop() {
		at := first.Add(time.Duration(random.Int64N(int64(last.Sub(first)))))
		began := time.Now()
		if _, err := s.RevisionAt(b.Context(), at); err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(began))
	}
	latencies(b, took)
}

// BenchmarkLarge is for many events: its log makes them when they are read, so that only the index is stored. It
// reports the time of a random get, the index's part of it, and the memory of the whole process.
func BenchmarkLarge(b *testing.B) {
	f := &factory{events: events(b), objects: 100_000, payload: 200, batch: 10}
	dir := b.TempDir()
	before := cpu()
	s := run(b, dir, f, f.head(0))
	if err := s.Wait(b.Context(), f.events); err != nil {
		b.Fatal(err)
	}
	b.Logf("%d events: %.1f µs of CPU to make and to follow one, %.1f bytes on disk each, %s", f.events,
		float64((cpu()-before).Microseconds())/float64(f.events), float64(sizeOf(b, dir))/float64(f.events), resident(b))
	random := rand.New(rand.NewPCG(1, 1))
	var gets, seeks []time.Duration
	for b.Loop() {
		n := random.Uint64N(f.objects)
		namespace, name := fmt.Sprint("namespace-", n%100), fmt.Sprint("widget-", n)
		began := time.Now()
		c, err := s.Get(b.Context(), widgets, namespace, name, f.objects+random.Uint64N(f.events-f.objects))
		if err != nil || c == nil {
			b.Fatal(c, err)
		}
		gets = append(gets, time.Since(began))
		began = time.Now()
		if _, err := s.Superseded(b.Context(), widgets, namespace, name, c.Revision); err != nil {
			b.Fatal(err)
		}
		seeks = append(seeks, time.Since(began))
	}
	latencies(b, gets)
	b.ReportMetric(float64(seeks[len(seeks)/2].Nanoseconds())/1000, "µs-seek")
	b.Log(resident(b))
}

// resident returns the memory of the process, in words.
func resident(b *testing.B) string {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if strings.HasPrefix(line, "VmRSS:") {
			return strings.TrimSpace(line)
		}
	}
	b.Fatal(errors.New("no VmRSS"))
	return ""
}
