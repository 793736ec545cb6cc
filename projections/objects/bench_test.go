package objects_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/logpb"
	"stele.dev/stele/projections/objects"
)

// BenchmarkApply applies and publishes one update to a state of 50,000 objects.
func BenchmarkApply(b *testing.B) {
	const all = 50_000
	for _, namespaces := range []int{1, 100, 5000} {
		b.Run(fmt.Sprintf("namespaces=%d", namespaces), func(b *testing.B) {
			s := newStore(0)
			of := func(i int) thing {
				return thing{namespace: fmt.Sprintf("ns-%d", i%namespaces), name: fmt.Sprintf("w-%d", i), app: "x", color: "red", size: i}
			}
			last := make([]uint64, all)
			revision := uint64(1)
			for i := range all {
				apply(b, s, revision, event(logpb.Type_TYPE_CREATED, of(i), 0))
				last[i] = revision
				revision++
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				at := i * 7919 % all
				w := of(at)
				w.size += i
				apply(b, s, revision, event(logpb.Type_TYPE_UPDATED, w, last[at]))
				last[at] = revision
				revision++
			}
		})
	}
}

// labeled returns an object with five labels, one of them of 1 % of the objects, and a field of 1 %.
func labeled(i, size int) string {
	return fmt.Sprintf(`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"labels":{"app":"x","bucket":"b%d","instance":"i%d","part":"p%d","tier":"t%d"},"name":"w%d","namespace":"ns-%d","uid":"u"},"spec":{"color":"c%d","size":%d}}`,
		i%100, i, i%7, i%3, i, i%10, i%100, size)
}

func labeledStore(b *testing.B, n int) (s *objects.Store, last []uint64) {
	s = newStore(0)
	tx := s.Begin()
	last = make([]uint64, n)
	for i := range n {
		last[i] = uint64(i + 1)
		if err := tx.Apply(labeledEvent(logpb.Type_TYPE_CREATED, i, 0, 0), last[i]); err != nil {
			b.Fatal(err)
		}
	}
	s.Publish(tx, uint64(n))
	return s, last
}

func labeledEvent(kind logpb.Type, i, size int, previous uint64) *eventlog.Event {
	e := event(kind, thing{namespace: fmt.Sprintf("ns-%d", i%10), name: fmt.Sprintf("w%d", i)}, previous)
	e.Meta.Object.Uid = "u"
	e.Contents[0] = []byte(labeled(i, size))
	return e
}

var selectors = []struct {
	name string
	sel  objects.Selection
}{
	{"label=1%", objects.Select("", labels.SelectorFromSet(labels.Set{"bucket": "b7"}), nil)},
	{"field=1%", objects.Select("", nil, fields.OneTermEqualSelector("spec.color", "c7"))},
	{"label=1", objects.Select("", labels.SelectorFromSet(labels.Set{"instance": "i777"}), nil)},
	{"label=33%", objects.Select("", labels.SelectorFromSet(labels.Set{"tier": "t1"}), nil)},
}

// BenchmarkList lists 50,000 objects by a selector: without an index, the first time, with one, and with 500 changes since.
func BenchmarkList(b *testing.B) {
	const all = 50_000
	for _, q := range selectors {
		s, last := labeledStore(b, all)
		count := func(s *objects.State) (n int) {
			for range s.List(widgets, &q.sel, "", "") {
				n++
			}
			return n
		}
		b.Run(q.name+"/scan", func(b *testing.B) {
			tx := s.Begin() // a scratch state has no indexes
			for b.Loop() {
				count(tx.State())
			}
		})
		began := time.Now()
		count(s.State())
		first := time.Since(began)
		b.Run(q.name+"/indexed", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				count(s.State())
			}
			b.ReportMetric(float64(first.Microseconds()), "µs-first")
		})
		revision := uint64(all)
		for i := range 500 {
			revision++
			apply(b, s, revision, labeledEvent(logpb.Type_TYPE_UPDATED, i, 1, last[i]))
		}
		b.Run(q.name+"/changed", func(b *testing.B) {
			for b.Loop() {
				count(s.State())
			}
		})
		b.Run(q.name+"/page", func(b *testing.B) {
			for b.Loop() {
				n := 0
				for range s.State().List(widgets, &q.sel, "ns-5", "") {
					if n++; n == 100 {
						break
					}
				}
			}
		})
	}
}

// BenchmarkApplyIndexed applies one update to a state of 50,000 objects with five labels: without indexes, and while every
// hundredth write is followed by a list with each of two indexes.
func BenchmarkApplyIndexed(b *testing.B) {
	const all = 50_000
	for _, used := range []bool{false, true} {
		b.Run(fmt.Sprintf("used=%v", used), func(b *testing.B) {
			s, last := labeledStore(b, all)
			var list []objects.Selection
			for _, key := range []string{"bucket", "instance"} {
				list = append(list, objects.Select("", labels.SelectorFromSet(labels.Set{key: "b7"}), nil))
			}
			lists := func() {
				for _, sel := range list {
					for range s.State().List(widgets, &sel, "", "") {
					}
				}
			}
			if used {
				lists()
			}
			revision := uint64(all)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				at := i * 7919 % all
				revision++
				apply(b, s, revision, labeledEvent(logpb.Type_TYPE_UPDATED, at, i, last[at]))
				last[at] = revision
				if used && i%100 == 0 {
					lists()
				}
			}
		})
	}
}

// BenchmarkIndexBytes measures the memory of an index for each object.
func BenchmarkIndexBytes(b *testing.B) {
	const all = 50_000
	for _, q := range selectors {
		b.Run(q.name, func(b *testing.B) {
			for b.Loop() {
				s, _ := labeledStore(b, all)
				before := heap()
				for range s.State().List(widgets, &q.sel, "", "") {
				}
				b.ReportMetric(float64(heap()-before)/all, "bytes/object")
				runtime.KeepAlive(s)
			}
		})
	}
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
