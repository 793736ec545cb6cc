//go:build !linux

package child

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// attributes returns the attributes of a child: it gets no signals from the terminal.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// limitMemory limits the address space of this process, if the system supports it.
func limitMemory(bytes uint64) {
	_ = unix.Setrlimit(unix.RLIMIT_AS, &unix.Rlimit{Cur: bytes, Max: bytes})
}
