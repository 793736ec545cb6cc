package managed

import (
	"time"

	"stele.dev/stele/policy"
)

type sets struct{}

func (f *Fields) quick(old, updated *policy.Object, manager string, at time.Time) bool { return false }
