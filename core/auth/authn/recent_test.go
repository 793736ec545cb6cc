package authn_test

import (
	"testing"
	"time"

	"stele.dev/stele/core/auth/authn"
)

func TestAHashIsRecentForAnHour(t *testing.T) {
	var table authn.RecentHashes
	start := time.Unix(1_800_000_000, 0)
	const hash = 0x123456789abcdef0
	if table.Has(hash, start) || table.Has(0, start) {
		t.Error("an empty table has a hash")
	}
	table.Add(hash, start)
	if !table.Has(hash, start) || !table.Has(hash, start.Add(time.Hour)) || table.Has(hash, start.Add(62*time.Minute)) {
		t.Error("a hash is not there for an hour")
	}
	if table.Has(hash^1<<63, start) || table.Has(hash^1, start) {
		t.Error("another hash is there")
	}
	table.Add(hash, start.Add(time.Hour))
	if !table.Has(hash, start.Add(2*time.Hour)) {
		t.Error("a hash that was used again is gone")
	}
	if table.Remove(hash); table.Has(hash, start) {
		t.Error("a hash is there after it was removed")
	}
}

// The oldest of those in the same place makes room.
func TestTheNewestHashesAreKept(t *testing.T) {
	var table authn.RecentHashes
	start := time.Unix(1_800_000_000, 0)
	for i := range uint64(5) {
		table.Add((i+1)<<32|7, start.Add(time.Duration(i)*time.Minute))
	}
	for i := range uint64(5) {
		if got := table.Has((i+1)<<32|7, start.Add(5*time.Minute)); got != (i > 0) {
			t.Errorf("hash %d is there: %v", i, got)
		}
	}
}

func BenchmarkTable(b *testing.B) {
	var table authn.RecentHashes
	now := time.Now()
	b.ReportAllocs()
	for i := uint64(0); b.Loop(); i++ {
		hash := i % 1000 * 0x9e3779b97f4a7c15
		if !table.Has(hash, now) {
			table.Add(hash, now)
		}
	}
}
