package child

import (
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// environment is the environment variable with the limits of a child.
	environment = "STELE_LIMITS"
	// exitCPU is the exit code of a child that has used up its processor time.
	exitCPU = 97
	// maxStack bounds the stack of a child.
	maxStack = 512 << 20
	// grace is how long a child continues after its parent should have killed it.
	grace = 5 * time.Second
)

// variable returns the environment variable with the limits.
func (l Limits) variable() string {
	return fmt.Sprintf("%s=%d %d %d", environment, l.CPU, l.Wall, l.Memory)
}

// Confine applies the limits that the parent has set to this process, and [Sandbox]: it can read only the given files. A child
// calls it before it reads its input.
func Confine(files ...string) error {
	var l Limits
	if _, err := fmt.Sscan(os.Getenv(environment), &l.CPU, &l.Wall, &l.Memory); err != nil {
		return fmt.Errorf("%s: this command is for stele itself: %w", environment, err)
	}
	spent := make(chan os.Signal, 1)
	signal.Notify(spent, unix.SIGXCPU)
	go func() {
		<-spent
		os.Exit(exitCPU)
	}()
	seconds := uint64((l.CPU + time.Second - 1) / time.Second)
	_ = unix.Setrlimit(unix.RLIMIT_CPU, &unix.Rlimit{Cur: seconds, Max: seconds + uint64(grace/time.Second)})
	LeaveNoCore()
	LimitMemory(uint64(l.Memory))
	debug.SetMemoryLimit(l.Memory / 4 * 3)
	debug.SetMaxStack(maxStack)
	time.AfterFunc(l.Wall+grace, func() { os.Exit(1) })
	return Sandbox(files...)
}

// LeaveNoCore keeps the memory of this process, which may hold keys, out of core files.
func LeaveNoCore() { _ = unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}) }
