package objects_test

import (
	"fmt"
	"testing"

	"stele.dev/stele/eventlog/logpb"
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
