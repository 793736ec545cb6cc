package workers

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"stele.dev/stele/limits/child"
)

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

// limit limits the memory growth of this process.
func limit() {
	child.LimitMemory(addressSpace)
	child.LeaveNoCore()
}
