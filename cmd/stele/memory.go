package main

import (
	"errors"
	"log/slog"
	"math"
	"runtime/debug"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

// memoryRatio is the part of the control group's memory that Go may use. The rest is for what Go does
// not count: the mapped pages of etcd's database, and child processes.
const memoryRatio = 0.8

// memoryLimit sets the soft memory limit of the Go runtime to GOMEMLIMIT, or else to a part of the
// control group's memory. It returns the limit in bytes; 0 if there is none.
func memoryLimit(logger *slog.Logger) int64 {
	if _, err := memlimit.Set(memlimit.WithRatio(memoryRatio), memlimit.WithProvider(memlimit.FromCgroup)); err != nil && !errors.Is(err, memlimit.ErrCgroupsNotSupported) {
		logger.Warn("the limit of memory cannot be found out; GOMEMLIMIT can be set instead", "error", err)
	}
	if limit := debug.SetMemoryLimit(-1); limit != math.MaxInt64 {
		return limit
	}
	return 0
}
