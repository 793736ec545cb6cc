package simulation_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"testing"

	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/memlog"
)

// The promises that a store of the simulation can break, see [brokenStore].
const (
	staleReads  = "reads are old"
	lostAppends = "acknowledged appends are lost"
)

var storeFaults = []string{staleReads, lostAppends}

// open opens the store for a replica, without some promise if the flag says so.
func (s *simulation) open(replica int, schedule memlog.Schedule) eventlog.Backend {
	b := s.store.Open(schedule)
	if *simulationFault == "" || replica == simReplicas {
		return b
	}
	return &brokenStore{Backend: b, rng: s.rng(3000 + uint64(replica))}
}

// brokenStore is a store that breaks a promise of [eventlog.Backend] now and then.
type brokenStore struct {
	*memlog.Backend
	mu   sync.Mutex
	rng  *rand.Rand
	from uint64 // of the last read
	last eventlog.Answer
}

// now reports whether the store breaks a promise in this call.
func (b *brokenStore) now(promise string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return promise == *simulationFault && b.rng.IntN(4) == 0
}

// Read implements [eventlog.Backend].
func (b *brokenStore) Read(ctx context.Context, from uint64) (eventlog.Answer, error) {
	b.mu.Lock()
	last, old := b.last, b.from == from && len(b.last.Head) > 0
	b.mu.Unlock()
	if old && b.now(staleReads) {
		return last, nil
	}
	answer, err := b.Backend.Read(ctx, from)
	if err == nil {
		b.mu.Lock()
		b.from, b.last = from, answer
		b.mu.Unlock()
	}
	return answer, err
}

// Append implements [eventlog.Backend].
func (b *brokenStore) Append(ctx context.Context, p eventlog.Proposal) (eventlog.Answer, error) {
	if b.now(lostAppends) {
		return eventlog.Answer{Applied: true}, nil
	}
	return b.Backend.Append(ctx, p)
}

// The simulation must find the faults of a store that breaks its promises; else it would not find those of the program
// either, see also TestPlantedBugs.
func TestSimulationFindsBrokenStores(t *testing.T) {
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, fault := range storeFaults {
		seed, finding := simulateIn(t.Context(), program, nil, "-simulation-fault="+fault, fmt.Sprintf("-simulation-seeds=%d", 20))
		if finding == "" {
			t.Errorf("%s: not found", fault)
		}
		t.Logf("%s: found at seed %s: %.200s", fault, seed, finding)
	}
}
