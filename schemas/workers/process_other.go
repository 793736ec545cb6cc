//go:build !linux

package workers

import "time"

// scheduled returns zeros: the scheduling times are unknown on this system.
func scheduled(int) (ran, waited time.Duration) { return 0, 0 }

// limit does nothing: on this system, only Go's soft memory limit applies.
func limit() {}
