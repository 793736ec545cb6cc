package eventlog

import (
	"time"

	"golang.org/x/sys/unix"
)

// sinceBoot returns how long the machine has run, with the time that it was asleep; 0 if that is not
// known.
func sinceBoot() time.Duration {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &t) != nil {
		return 0
	}
	return time.Duration(t.Nano())
}
