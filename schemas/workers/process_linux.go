package workers

import (
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// attributes of a worker. It gets no signals that are meant for the program in the
// foreground, and dies with the thread that has started it.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// limit bounds the memory of this process: by how much it may grow, for Go reserves far more
// than it uses. If there is none left in the machine, it goes before its parent.
func limit() {
	var pages uint64
	if text, err := os.ReadFile("/proc/self/statm"); err == nil {
		_, _ = fmt.Sscan(string(text), &pages)
	}
	if pages > 0 {
		most := pages*uint64(os.Getpagesize()) + addressSpace
		_ = unix.Setrlimit(unix.RLIMIT_AS, &unix.Rlimit{Cur: most, Max: most})
	}
	_ = unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{})
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte("1000"), 0)
}
