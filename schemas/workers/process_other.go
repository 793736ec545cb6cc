//go:build !linux

package workers

import (
	"syscall"
	"time"
)

// attributes of a worker. It gets no signals that are meant for the program in the
// foreground.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// scheduled is not known here: no process counts as one that waits.
func scheduled(int) (ran, waited time.Duration) { return 0, 0 }

// limit does nothing: beside the soft limit of Go there is none that counts.
func limit() {}
