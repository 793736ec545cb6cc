package usage

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// longTime matches a duration of weeks and days, followed by what Go's durations have.
var longTime = regexp.MustCompile(`^(?:(\d+)w)?(?:(\d+)d)?((?:\d+(?:\.\d+)?(?:h|ms|m|s))*)$`)

// ParseDuration parses a duration such as 1w2d12h. A day has 24 hours.
func ParseDuration(text string) (time.Duration, bool) {
	parts := longTime.FindStringSubmatch(text)
	if parts == nil || text == "" {
		return 0, false
	}
	const day = 24 * time.Hour
	var sum time.Duration
	for i, unit := range []time.Duration{7 * day, day} {
		if parts[i+1] == "" {
			continue
		}
		n, err := strconv.Atoi(parts[i+1])
		if err != nil || n > 100*366 { // more than a century; a time.Duration overflows after three
			return 0, false
		}
		sum += time.Duration(n) * unit
	}
	if parts[3] != "" {
		d, err := time.ParseDuration(parts[3])
		if err != nil {
			return 0, false
		}
		sum += d
	}
	return sum, sum >= 0
}

// durationValue is a flag for a duration, in the form of [ParseDuration] or [time.ParseDuration].
type durationValue time.Duration

// DurationVar adds a flag for a duration.
func DurationVar(f *pflag.FlagSet, into *time.Duration, name string, value time.Duration, usage string) {
	*into = value
	f.Var((*durationValue)(into), name, usage)
}

// Set implements [pflag.Value].
func (v *durationValue) Set(text string) error {
	if d, err := time.ParseDuration(text); err == nil {
		*v = durationValue(d)
		return nil
	}
	d, ok := ParseDuration(text)
	if !ok {
		return fmt.Errorf("%q is not a duration; use, for example, 90s, 30m, 12h, 7d or 2w", text)
	}
	*v = durationValue(d)
	return nil
}

// Type implements [pflag.Value].
func (v *durationValue) Type() string { return "duration" }

// String implements [pflag.Value]. It returns 24h instead of 24h0m0s.
func (v *durationValue) String() string {
	text := time.Duration(*v).String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}
