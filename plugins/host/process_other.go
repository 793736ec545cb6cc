//go:build unix && !linux

package host

import (
	"errors"
	"syscall"
)

// attributes make a program the leader of a process group. That its parent died it learns from the end of its
// standard input.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// awaitExit has nothing to wait with but what also reaps the child.
func awaitExit(int) {}

// startTime is not known here, and so what an earlier run left is not looked for: it would be a guess.
func startTime(int) (string, error) {
	return "", errors.New("when a process started is not known on this system")
}

func strays(string) []int { return nil }
