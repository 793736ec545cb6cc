package retention_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"stele.dev/stele/core/keep/retention"
)

// clocks are the clocks that a horizon asks.
type clocks struct {
	machine, log time.Time
	boot         time.Duration
	revision     uint64
}

// pass lets time pass, with an event at the end.
func (c *clocks) pass(d time.Duration) {
	c.machine, c.boot = c.machine.Add(d), c.boot+d
	c.revision, c.log = c.revision+1, c.machine
}

var begun = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func open(t *testing.T, file string, c *clocks) *retention.Horizon {
	t.Helper()
	h, err := retention.OpenHorizon(file, func() time.Duration { return c.boot })
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func step(t *testing.T, h *retention.Horizon, c *clocks) (time.Time, bool) {
	t.Helper()
	at, behind, err := h.Step(c.machine, c.revision, c.log)
	if err != nil {
		t.Fatal(err)
	}
	return at, behind
}

func TestTheHorizonFollowsTheClock(t *testing.T) {
	c := &clocks{machine: begun, log: begun, revision: 1}
	h := open(t, filepath.Join(t.TempDir(), "horizon"), c)
	for range 100 {
		c.pass(10 * time.Minute)
		if at, behind := step(t, h, c); !at.Equal(c.machine) || behind {
			t.Fatalf("%v, behind %v; the clock is at %v", at, behind, c.machine)
		}
	}
}

func TestAClockThatJumpsAheadMovesTheHorizonInSmallSteps(t *testing.T) {
	c := &clocks{machine: begun, log: begun, revision: 1}
	h := open(t, filepath.Join(t.TempDir(), "horizon"), c)
	step(t, h, c)
	c.machine = c.machine.AddDate(1, 0, 0)
	for range 24 {
		c.pass(10 * time.Minute)
		step(t, h, c)
	}
	at, behind := step(t, h, c)
	if moved := at.Sub(begun); moved > 30*time.Hour || !behind {
		t.Errorf("after four hours it has moved by %v, behind %v", moved, behind)
	}
	c.machine = c.machine.AddDate(-1, 0, 0)
	if after, _ := step(t, h, c); !after.Equal(at) {
		t.Errorf("it went back from %v to %v", at, after)
	}
}

func TestAQuietLogDoesNotStopTheHorizon(t *testing.T) {
	c := &clocks{machine: begun, log: begun, revision: 1}
	h := open(t, filepath.Join(t.TempDir(), "horizon"), c)
	step(t, h, c)
	for range 12 {
		c.machine, c.boot = c.machine.Add(10*time.Minute), c.boot+10*time.Minute
		step(t, h, c)
	}
	if at, _ := step(t, h, c); !at.Equal(begun.Add(2 * time.Hour)) {
		t.Errorf("after two hours without events it is at %v", at)
	}
}

func TestTheHorizonIsKeptAcrossRestarts(t *testing.T) {
	file := filepath.Join(t.TempDir(), "horizon")
	c := &clocks{machine: begun, log: begun, revision: 1}
	h := open(t, file, c)
	c.pass(10 * time.Minute)
	before, _ := step(t, h, c)

	c.boot, c.machine = 0, c.machine.AddDate(1, 0, 0) // while it was down, the clock jumped
	c.log, c.revision = c.machine, c.revision+1
	h = open(t, file, c)
	if at, behind := step(t, h, c); at.Sub(before) > time.Hour || !behind {
		t.Errorf("it moved from %v to %v, behind %v", before, at, behind)
	}
}

func TestADamagedHorizonIsAnErrorThatNamesTheFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "horizon")
	if err := os.WriteFile(file, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := retention.OpenHorizon(file, func() time.Duration { return 0 }); err == nil {
		t.Error("it was read")
	}
}
