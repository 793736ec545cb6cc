//go:build unix

package history_test

import (
	"context"
	"errors"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"stele.dev/stele/projections/history"
)

// A limit on file sizes simulates a full disk.
func TestAFullDiskOnlyDelays(t *testing.T) {
	signal.Ignore(syscall.SIGXFSZ)
	defer signal.Reset(syscall.SIGXFSZ)
	history.SmallMemory(t)
	a := newAuthor(newTape(1), 19)
	s := follow(t, t.TempDir(), a.tape)
	known := a.tip.Revision
	var before syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &before); err != nil {
		t.Fatal(err)
	}
	limit := before
	limit.Cur = 4_000
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		t.Fatal(err)
	}
	defer syscall.Setrlimit(syscall.RLIMIT_FSIZE, &before)
	a.writes(3000)
	for s.Health() == nil {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		err := s.Wait(ctx, a.tip.Revision)
		if cancel(); err == nil {
			t.Fatal("all was written")
		}
	}
	if err := s.Reach(t.Context(), a.tip.Revision); !errors.Is(err, history.ErrBehind) || !errors.Is(err, syscall.EFBIG) {
		t.Errorf("who asks about what is missing hears %v", err)
	}
	if err := s.Reach(t.Context(), s.Revision()); err != nil {
		t.Errorf("who asks about what is there hears %v", err)
	}
	if c, err := s.At(t.Context(), known); err != nil || !same(c, a.model.at(known)) {
		t.Errorf("what was known: %v, %v", c, err)
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &before); err != nil {
		t.Fatal(err)
	}
	s.reach(t, a.tip.Revision)
	if err := s.Health(); err != nil {
		t.Errorf("it is over, but: %v", err)
	}
	if cannot, can := s.logs.count("cannot go on"), s.logs.count("goes on"); cannot != 1 || can != 1 {
		t.Errorf("the log says %d times that it cannot go on, and %d times that it does", cannot, can)
	}
	a.ask(t, s.Store, 5)
}
