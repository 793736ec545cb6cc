package eventlog

import (
	"fmt"
	"time"
)

// TimeSource is implemented by backends that know the clocks of other machines.
type TimeSource interface {
	// OthersTime returns the time of most other machines, and whether it is known. It does not depend on this machine's
	// wall clock.
	OthersTime() (now time.Time, known bool)
}

// ClockOff returns by how much this process's clock is ahead of the clocks of the machines that keep the log; negative if
// it is behind, and 0 if they are unknown.
func (l *Log) ClockOff() time.Duration {
	if source, ok := l.backend.(TimeSource); ok {
		if others, known := source.OthersTime(); known {
			return l.Now().Sub(others)
		}
	}
	return 0
}

// CheckClock returns an error, which is [ErrUnavailable], if this process's clock differs by more than MaxAhead from those of
// the machines that keep the log. [Log.Append] then refuses, because it would write wrong times, and times that are ahead
// would hold for all writers.
func (l *Log) CheckClock() error {
	off := l.ClockOff()
	if off.Abs() <= MaxAhead {
		return nil
	}
	side := "ahead of"
	if off < 0 {
		side = "behind"
	}
	return fmt.Errorf("%w: this machine's clock is %v %s those of the etcd members; set it (or theirs, if they are wrong)", ErrUnavailable, off.Abs().Round(time.Second), side)
}
