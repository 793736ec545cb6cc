//go:build unix

package history_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"stele.dev/stele/projections/history"
)

// limited says that this process may have a limit on the sizes of its files.
const limited = "STELE_TEST_LIMITED"

// A limit on file sizes simulates a full disk. The limit is one of the whole process, which also writes files for go
// test, so that a process of its own has it.
func TestAFullDiskOnlyDelays(t *testing.T) {
	if os.Getenv(limited) == "" {
		child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.count=1")
		child.Env = append(os.Environ(), limited+"=1")
		if output, err := child.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, output)
		}
		return
	}
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
