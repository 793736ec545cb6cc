package child

import (
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// Attributes returns the attributes of a child: it leads a process group, so that it gets no signals from the terminal, and is
// killed when the thread that started it ends.
func Attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// LimitMemory limits by how much the address space of this process may grow, because Go reserves
// more than it uses. If the machine runs out of memory, this process is killed before its parent.
func LimitMemory(bytes uint64) {
	var pages uint64
	if text, err := os.ReadFile("/proc/self/statm"); err == nil {
		_, _ = fmt.Sscan(string(text), &pages)
	}
	most := pages*uint64(os.Getpagesize()) + bytes
	_ = unix.Setrlimit(unix.RLIMIT_AS, &unix.Rlimit{Cur: most, Max: most})
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte("1000"), 0)
}
