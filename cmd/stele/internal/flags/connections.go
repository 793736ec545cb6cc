// Package flags has groups of flags of `stele serve`: limits of connections, where the audit log goes, the etcd cluster that keeps the
// log.
package flags

import (
	"cmp"
	"fmt"
	"time"

	"github.com/spf13/pflag"
	"stele.dev/stele/cmd/stele/internal/usage"
	"stele.dev/stele/core/auth/authn"
	"stele.dev/stele/limits/connections"
)

// Connections are the flags on the limits of connections, and of failed authentications.
type Connections struct {
	limits   connections.Limits
	failures int
	flags    *pflag.FlagSet
}

// Add adds the flags.
func (o *Connections) Add(f *pflag.FlagSet) {
	d := connections.Limits{}.WithDefaults(0)
	o.flags = f
	f.IntVar(&o.limits.Total, "max-connections", 0, "how many connections may be open; at the limit the idlest is closed; 0 for no limit (default: one for each 256 KiB of memory, from 1,000 to 20,000, and at most half of the open files that are allowed)")
	f.IntVar(&o.limits.PerSource, "max-connections-per-source", 0, "how many connections an IPv4 address, or a /64 network of IPv6, may have open, except for loopback addresses; 0 for no limit (default: half of --max-connections)")
	f.IntVar(&o.limits.Opening, "max-opening-connections", d.Opening, "how many connections may be before their first request, in the TLS handshake or silent; one source may have a quarter of them; 0 for no limit")
	usage.DurationVar(f, &o.limits.IdleTime, "idle-timeout", d.IdleTime, "after how long a connection without requests is closed; 0 for never")
	f.IntVar(&o.limits.BodyRate, "min-body-rate", d.BodyRate, "how many bytes a second of a request's body must arrive, after the first 10 seconds; 0 for no limit")
	f.IntVar(&o.failures, "max-authentication-failures", authn.DefaultFailuresPerMinute, "how many wrong credentials a source may try in a minute; then credentials that were not valid lately are answered 429; 0 for no limit")
}

// Limits returns the limits, and the limit of failed authentications in a minute, as package plane has them in its Config.
func (o *Connections) Limits() (l connections.Limits, failures int, err error) {
	l, failures = o.limits, o.failures
	for _, f := range []struct {
		name  string
		value *int
	}{
		{"max-connections", &l.Total}, {"max-connections-per-source", &l.PerSource}, {"max-opening-connections", &l.Opening},
		{"min-body-rate", &l.BodyRate}, {"max-authentication-failures", &failures},
	} {
		if *f.value < 0 {
			return l, failures, fmt.Errorf("--%s %d: want a number that is not negative", f.name, *f.value)
		}
		if *f.value == 0 && o.flags.Changed(f.name) {
			*f.value = -1
		}
	}
	if l.IdleTime < 0 {
		return l, failures, fmt.Errorf("--idle-timeout %s: want a duration that is not negative", l.IdleTime)
	}
	l.IdleTime = cmp.Or(l.IdleTime, -time.Second)
	return l, failures, nil
}
