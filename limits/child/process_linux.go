package child

import (
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// attributes returns the attributes of a child: it gets no signals from the terminal, and is killed
// when the thread that started it ends.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// limitMemory limits by how much the address space of this process may grow, because Go reserves
// more than it uses. If the machine runs out of memory, this process is killed before its parent.
func limitMemory(bytes uint64) {
	var pages uint64
	if text, err := os.ReadFile("/proc/self/statm"); err == nil {
		_, _ = fmt.Sscan(string(text), &pages)
	}
	most := pages*uint64(os.Getpagesize()) + bytes
	_ = unix.Setrlimit(unix.RLIMIT_AS, &unix.Rlimit{Cur: most, Max: most})
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte("1000"), 0)
}
