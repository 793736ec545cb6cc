package main

import (
	"errors"
	"log/slog"
	"math"
	"os"
	"runtime/debug"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

const (
	// memoryRatio is the part of --memory, or of the control group's memory, that the Go runtime may use. The rest is for the
	// mapped pages of etcd's database and for child processes, which the runtime does not count.
	memoryRatio = 0.8
	// machineRatio is the part of the machine's memory that the Go runtime may use if nothing else limits it.
	machineRatio = 0.5
)

// memoryLimit sets the soft memory limit of the Go runtime: to a part of --memory, or else to GOMEMLIMIT, to a part of the
// control group's memory, or to a part of the machine's. It returns the limit in bytes; 0 if none of them is known.
func (o *serveOptions) memoryLimit(logger *slog.Logger) int64 {
	if asked := o.memory.Value(); asked > 0 {
		debug.SetMemoryLimit(int64(float64(asked) * memoryRatio))
	} else if os.Getenv("GOMEMLIMIT") == "" {
		_, err := memlimit.Set(memlimit.WithRatio(memoryRatio), memlimit.WithProvider(memlimit.FromCgroup))
		if err != nil && !errors.Is(err, memlimit.ErrNoLimit) && !errors.Is(err, memlimit.ErrNoCgroup) && !errors.Is(err, memlimit.ErrCgroupsNotSupported) {
			logger.Warn("cannot read the memory limit of the control group; set --memory instead", "error", err)
		}
		if debug.SetMemoryLimit(-1) == math.MaxInt64 {
			_, err = memlimit.Set(memlimit.WithRatio(machineRatio), memlimit.WithProvider(memlimit.FromSystem))
			if err != nil {
				logger.Warn("cannot read how much memory this machine has; set --memory", "error", err)
			}
		}
	}
	limit := debug.SetMemoryLimit(-1)
	if limit == math.MaxInt64 {
		return 0
	}
	return limit
}
