//go:build unix && !linux

package host

import "errors"

// awaitExit does nothing: this system cannot wait for a child without reaping it.
func awaitExit(int) {}

// startTime returns an error. The host therefore does not end processes of an earlier run: it could not identify them.
func startTime(int) (string, error) {
	return "", errors.New("the start time of a process is unknown on this system")
}

// strays returns nil: this system has no way to find them.
func strays(string) []int { return nil }
