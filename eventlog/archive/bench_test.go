package archive_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/archive"
	"stele.dev/stele/eventlog/logpb"
	"stele.dev/stele/eventlog/memlog"
	"stele.dev/stele/eventlog/segment"
)

// typical writes n updates of objects of about 1 KB, in batches of some size.
func typical(b *testing.B, n, perBatch int) (*memlog.Store, *eventlog.Log, eventlog.Head) {
	store := &memlog.Store{}
	log, err := eventlog.Open(b.Context(), store.Open(nil), eventlog.Options{})
	if err != nil {
		b.Fatal(err)
	}
	first, err := log.CatchUp(b.Context(), log.Start())
	if err != nil {
		b.Fatal(err)
	}
	tip := first[0].Head()
	random := rand.New(rand.NewPCG(1, 1))
	for i := 0; i < n; i += perBatch {
		var entries []*eventlog.Entry
		for j := range perBatch {
			entry, err := eventlog.Encode(update(random, i+j))
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
	return store, log, tip
}

func update(random *rand.Rand, i int) *eventlog.Event {
	n := i % 1000
	id := fmt.Sprintf("%08x-%04x-4%03x-8%03x-%012x", random.Uint32(), random.Uint32N(1<<16), random.Uint32N(1<<12), random.Uint32N(1<<12), random.Uint64N(1<<48))
	e := &eventlog.Event{Meta: &logpb.Metadata{
		Type:             logpb.Type_TYPE_UPDATED,
		Object:           &logpb.Object{Group: "example.com", Resource: "widgets", Namespace: fmt.Sprint("namespace-", n%100), Name: fmt.Sprint("widget-", n), Uid: fmt.Sprintf("%036d", n), Version: "v1", Kind: "Widget"},
		PreviousRevision: uint64(max(0, i-1000)),
		Actor:            &logpb.Actor{User: "system:serviceaccount:kube-system:controller", Groups: []string{"system:authenticated", "system:serviceaccounts"}},
		Request:          &logpb.Request{Verb: "update", UserAgent: "controller/v1.37.0 (linux/amd64)", SourceIps: []string{"10.0.0.1"}, AuditId: id, Uri: fmt.Sprintf("/apis/example.com/v1/namespaces/namespace-%d/widgets/widget-%d", n%100, n), Status: 200, MediaType: "application/json", ReceivedUnixNano: int64(i) * 1e6},
		Decisions:        &logpb.Decisions{Authorizer: "rbac", Rule: "platform/bindings/controllers", Source: "bindings.cue:7"},
		PolicyDigest:     make([]byte, 32), NodeDigest: make([]byte, 32),
	}}
	content := fmt.Appendf(nil, `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"widget-%d","namespace":"namespace-%d","uid":"%036d"},"spec":{`, n, n%100, n)
	for j := 0; len(content) < 1000; j++ {
		v := uint32(n * j)
		if j < 4 {
			v = random.Uint32()
		}
		content = fmt.Appendf(content, `"field%d":"%d",`, j, v)
	}
	e.AddContent(&logpb.Payload{Role: logpb.Role_ROLE_OBJECT}, append(content, `"last":true}}`...))
	return e
}

func cpu() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

const benchmarked = 1 << 16

func benchArchive(b *testing.B, perBatch int) (*archive.Archive, *eventlog.Log, eventlog.Head) {
	_, log, tip := typical(b, benchmarked, perBatch)
	a, err := archive.Open(archive.Options{Dir: b.TempDir(), Log: log.ID(), SegmentRevisions: benchmarked, SegmentBytes: 1 << 40})
	if err != nil {
		b.Fatal(err)
	}
	return a, log, tip
}

func BenchmarkSeal(b *testing.B) {
	for _, perBatch := range []int{1, 16} {
		b.Run(fmt.Sprint(perBatch, " events per batch"), func(b *testing.B) {
			_, log, tip := typical(b, benchmarked, perBatch)
			before := cpu()
			for b.Loop() {
				a, err := archive.Open(archive.Options{Dir: b.TempDir(), Log: log.ID(), SegmentRevisions: benchmarked, SegmentBytes: 1 << 40})
				if err != nil {
					b.Fatal(err)
				}
				if n, err := a.Seal(b.Context(), log, tip); err != nil || n != 1 {
					b.Fatal(n, err)
				}
				info := a.Segments()[0]
				b.ReportMetric(float64(info.Files[0].Size)/benchmarked, "log-B/event")
				b.ReportMetric(float64(info.Files[1].Size)/benchmarked, "payload-B/event")
				b.ReportMetric(float64(info.Plain)/benchmarked, "plain-B/event")
			}
			b.ReportMetric(float64((cpu()-before).Microseconds())/float64(b.N)/benchmarked, "µs-cpu/event")
		})
	}
}

// The keeper seals a moment after the append, when the log still has the bytes in memory.
func BenchmarkSealBehindTheTip(b *testing.B) {
	for b.Loop() {
		log, err := eventlog.Open(b.Context(), (&memlog.Store{}).Open(nil), eventlog.Options{})
		if err != nil {
			b.Fatal(err)
		}
		a, err := archive.Open(archive.Options{Dir: b.TempDir(), Log: log.ID(), SegmentRevisions: 1 << 14})
		if err != nil {
			b.Fatal(err)
		}
		log.SetArchive(a)
		first, err := log.CatchUp(b.Context(), log.Start())
		if err != nil {
			b.Fatal(err)
		}
		tip, sealing := first[0].Head(), time.Duration(0)
		random := rand.New(rand.NewPCG(1, 1))
		for i := range 1 << 14 {
			entry, err := eventlog.Encode(update(random, i))
			if err != nil {
				b.Fatal(err)
			}
			won, _, err := log.Append(b.Context(), tip, eventlog.NewDraft([]*eventlog.Entry{entry}))
			if err != nil {
				b.Fatal(err)
			}
			if tip = won.Head(); i%500 == 0 || i == 1<<14-1 {
				before := cpu()
				if _, err := a.Seal(b.Context(), log, tip); err != nil {
					b.Fatal(err)
				}
				sealing += cpu() - before
			}
		}
		if len(a.Segments()) != 1 {
			b.Fatal(a.Segments())
		}
		b.ReportMetric(float64(sealing.Microseconds())/(1<<14), "µs-cpu/event")
	}
}

func BenchmarkAfter(b *testing.B) {
	for _, perBatch := range []int{1, 16} {
		b.Run(fmt.Sprint(perBatch, " events per batch"), func(b *testing.B) {
			a, log, tip := benchArchive(b, perBatch)
			if _, err := a.Seal(b.Context(), log, tip); err != nil {
				b.Fatal(err)
			}
			before := cpu()
			for b.Loop() {
				for at := log.Start(); at.Revision < a.Tip().Revision; {
					batches, err := a.After(b.Context(), at)
					if err != nil {
						b.Fatal(err)
					}
					at = batches[len(batches)-1].Head()
				}
			}
			b.ReportMetric(float64((cpu()-before).Microseconds())/float64(b.N)/benchmarked, "µs-cpu/event")
		})
	}
}

func BenchmarkMetadata(b *testing.B) {
	a, log, tip := benchArchive(b, 1)
	if _, err := a.Seal(b.Context(), log, tip); err != nil {
		b.Fatal(err)
	}
	before := cpu()
	for b.Loop() {
		for _, err := range a.Metadata(b.Context(), 0) {
			if err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(float64((cpu()-before).Microseconds())/float64(b.N)/benchmarked, "µs-cpu/event")
}

// The cache of blocks is empty before each read.
func BenchmarkBack(b *testing.B) {
	a, log, tip := benchArchive(b, 1)
	if _, err := a.Seal(b.Context(), log, tip); err != nil {
		b.Fatal(err)
	}
	random := rand.New(rand.NewPCG(1, 1))
	path := a.Dir() + "/" + a.Segments()[0].Files[0].Name
	for b.Loop() {
		s, err := segment.Open(path, segment.NewCache(1<<20))
		if err != nil {
			b.Fatal(err)
		}
		if got, err := s.Back(context.Background(), 1+random.Uint64N(a.Tip().Revision), 1); err != nil || len(got) != 1 {
			b.Fatal(got, err)
		}
	}
}
