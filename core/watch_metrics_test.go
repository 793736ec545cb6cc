package core

import (
	"sort"
	"testing"
)

func TestEventsAreCountedInTheirBuckets(t *testing.T) {
	for _, bound := range append([]float64{0, 1}, eventBuckets...) {
		for bytes := max(int(bound)-1, 0); bytes <= int(bound)+1; bytes++ {
			if got, want := eventBucket(bytes), sort.SearchFloat64s(eventBuckets, float64(bytes)); got != want {
				t.Errorf("an event of %d bytes is counted in bucket %d, want %d", bytes, got, want)
			}
		}
	}
}
