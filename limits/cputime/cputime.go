// Package cputime limits the processor time that tests take. Unlike the time of a clock it does not depend on what else the
// machine does.
package cputime

import (
	"syscall"
	"testing"
	"time"
)

// Within fails the test if f takes more processor time than limit. What other goroutines take meanwhile counts, so that no
// test may run in parallel.
func Within(t testing.TB, limit time.Duration, f func()) {
	t.Helper()
	begun := used(t)
	f()
	if took := used(t) - begun; took > limit {
		t.Errorf("it took %v of processor time, more than %v", took, limit)
	}
}

// used returns the processor time that this process has taken.
func used(t testing.TB) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
