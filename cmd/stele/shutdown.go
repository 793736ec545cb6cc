package main

import (
	"fmt"

	"github.com/spf13/pflag"
	"stele.dev/stele/cmd/stele/internal/usage"
	"stele.dev/stele/core/serve/server"
)

// addShutdownFlags adds the flags on how clients move between the servers behind a balancer.
func (o *serveOptions) addShutdownFlags(f *pflag.FlagSet) {
	usage.DurationVar(f, &o.ShutdownDelay, "shutdown-delay-duration", 0, "how long to keep serving after the first SIGTERM, so that load balancers can see that /readyz fails")
	f.Float64Var(&o.GoawayChance, "goaway-chance", 0, "chance with which a request of HTTP/2 is answered with a GOAWAY, on which the client connects again, so that a balancer spreads clients over its servers; from 0, for never, to 0.02")
	for _, former := range []string{"shutdown-delay", "drain-delay"} {
		f.Var(f.Lookup("shutdown-delay-duration").Value, former, "")
		_ = f.MarkDeprecated(former, "use --shutdown-delay-duration") // it exists; it is hidden from now on
	}
}

// checkShutdown returns an error for flags that cannot work.
func (o *serveOptions) checkShutdown() error {
	if o.ShutdownDelay < 0 {
		return fmt.Errorf("--shutdown-delay-duration %s: want a duration that is not negative", o.ShutdownDelay)
	}
	if err := server.CheckGoawayChance(o.GoawayChance); err != nil {
		return fmt.Errorf("--goaway-chance %w", err)
	}
	return nil
}
