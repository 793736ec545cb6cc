//go:build !linux

package workers

import "syscall"

// attributes of a worker. It gets no signals that are meant for the program in the
// foreground.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// limit does nothing: beside the soft limit of Go there is none that counts.
func limit() {}
