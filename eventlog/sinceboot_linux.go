package eventlog

import (
	"time"

	"golang.org/x/sys/unix"
)

// sinceBoot returns how long the machine has run, including the time that it slept; 0 if unknown.
func sinceBoot() time.Duration {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &t) != nil {
		return 0
	}
	return time.Duration(t.Nano())
}
