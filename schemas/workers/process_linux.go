package workers

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// attributes returns the attributes of a worker process. It does not get the signals of the terminal,
// and it is killed when the thread that started it ends.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// scheduled returns how long the threads of a process have run, and how long they have waited for a
// processor.
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

// limit limits the memory growth of this process. Go reserves far more memory than it uses, so the limit
// is relative to the current size. If the machine runs out of memory, the kernel kills this process
// before its parent.
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
