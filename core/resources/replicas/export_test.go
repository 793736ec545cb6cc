package replicas

import (
	"context"
	"log/slog"
	"time"
)

// LeaseClient is leaseClient.
type LeaseClient = leaseClient

// Elect runs one election, with the times of replicas that renew their Lease as often as given.
func Elect(ctx context.Context, leases LeaseClient, id string, every time.Duration, lead func(context.Context)) {
	e := election{leases: leases, id: id, logger: slog.New(slog.DiscardHandler), lasts: 3 * every, deadline: 2 * every, retry: every / 2}
	e.run(ctx, lead)
}
