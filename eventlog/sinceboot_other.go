//go:build !linux

package eventlog

import "time"

// sinceBoot is not known.
func sinceBoot() time.Duration { return 0 }
