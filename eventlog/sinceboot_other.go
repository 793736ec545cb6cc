//go:build !linux

package eventlog

import "time"

// sinceBoot returns 0: the time is unknown on this system.
func sinceBoot() time.Duration { return 0 }
