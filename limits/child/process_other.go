//go:build !linux

package child

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// Attributes returns the attributes of a child: it leads a process group, so that it gets no signals from the terminal. The end of
// its standard input tells it that its parent has ended.
func Attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// LimitMemory limits the address space of this process, if the system supports it.
func LimitMemory(bytes uint64) {
	_ = unix.Setrlimit(unix.RLIMIT_AS, &unix.Rlimit{Cur: bytes, Max: bytes})
}
