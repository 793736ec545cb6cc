package plane

import (
	"context"
	"runtime/debug"
	"time"
)

const (
	// largeForm is the size of a form from which memory is given back after the policy was loaded. What loading and compiling a smaller one
	// takes is not worth a collection.
	largeForm = 1 << 20
	// settled is after how long the parts of a plane have taken a new policy, and let go of the one before.
	settled = 5 * time.Second
)

// freeMemory gives memory back to the operating system after a large policy came into force, until the context ends. To load or compile a policy takes
// several times what it takes afterwards, and a server that is idle then would hold that for long: the runtime collects at twice what is in use, and
// keeps what was in use at the worst.
func (p *Plane) freeMemory(ctx context.Context) error {
	for {
		changed := p.Committer.PolicyChanged()
		if in := p.Committer.Tip().Policies.Active; in != nil && in.Form.Size() >= largeForm {
			select {
			case <-time.After(settled):
			case <-ctx.Done():
				return ctx.Err()
			}
			debug.FreeOSMemory()
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
