//go:build !linux

package workers

import (
	"syscall"
	"time"
)

// attributes returns the attributes of a worker process. It does not get the signals of the terminal.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// scheduled returns zeros: the scheduling times are unknown on this system.
func scheduled(int) (ran, waited time.Duration) { return 0, 0 }

// limit does nothing: on this system, only Go's soft memory limit applies.
func limit() {}
