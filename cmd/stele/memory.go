package main

import (
	"errors"
	"log/slog"
	"math"
	"runtime/debug"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

// memoryRatio is the part of the control group's memory that the Go runtime may use. The rest is for the mapped pages
// of etcd's database and for child processes, which the runtime does not count.
const memoryRatio = 0.8

// memoryLimit sets the soft memory limit of the Go runtime to GOMEMLIMIT, or else to a part of the
// control group's memory. It returns the limit in bytes; 0 if there is none.
func memoryLimit(logger *slog.Logger) int64 {
	if _, err := memlimit.Set(memlimit.WithRatio(memoryRatio), memlimit.WithProvider(memlimit.FromCgroup)); err != nil && !errors.Is(err, memlimit.ErrCgroupsNotSupported) {
		logger.Warn("cannot read the memory limit of the control group; set GOMEMLIMIT instead", "error", err)
	}
	if limit := debug.SetMemoryLimit(-1); limit != math.MaxInt64 {
		return limit
	}
	return 0
}
