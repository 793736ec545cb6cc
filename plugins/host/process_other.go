//go:build unix && !linux

package host

import (
	"errors"
	"syscall"
)

// attributes returns attributes that make a program the leader of a process group. The end of its standard input tells it
// that its parent has ended.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// awaitExit does nothing: this system cannot wait for a child without reaping it.
func awaitExit(int) {}

// startTime returns an error. The host therefore does not end processes of an earlier run: it could not identify them.
func startTime(int) (string, error) {
	return "", errors.New("the start time of a process is unknown on this system")
}

// strays returns nil: this system has no way to find them.
func strays(string) []int { return nil }
