//go:build !linux

package apart

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// attributes are those of a child: it gets no signals that are meant for the program in the
// foreground.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// limitMemory bounds the address space of this process, where there is such a limit.
func limitMemory(bytes uint64) {
	_ = unix.Setrlimit(unix.RLIMIT_AS, &unix.Rlimit{Cur: bytes, Max: bytes})
}
