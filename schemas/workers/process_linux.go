package workers

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// attributes of a worker. It gets no signals that are meant for the program in the
// foreground, and dies with the thread that has started it.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// scheduled returns how long the threads of a process have run, and how long they have waited for
// a processor.
func scheduled(pid int) (ran, waited time.Duration) {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	for _, thread := range threads {
		var r, w time.Duration
		if text, err := os.ReadFile(thread); err == nil {
			_, _ = fmt.Sscan(string(text), &r, &w)
		}
		ran, waited = ran+r, waited+w
	}
	return ran, waited
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
