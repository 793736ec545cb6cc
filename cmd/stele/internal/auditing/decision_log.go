package auditing

import (
	"fmt"
	"time"

	"github.com/spf13/pflag"
	quantity "k8s.io/apimachinery/pkg/api/resource"
	"stele.dev/stele/core/record/decisions"
	"stele.dev/stele/core/run/plane"
)

// AddLogFlags adds the flags on the log of decisions.
func AddLogFlags(f *pflag.FlagSet, d *plane.Decisions) {
	d.Bytes, d.Age = decisions.DefaultBytes, decisions.DefaultAge
	f.Var((*size)(&d.Bytes), "decision-log-bytes", "how much of the log of decisions is kept, such as 4Gi: refusals, dry runs, reads that the audit rules select")
	f.Var((*age)(&d.Age), "decision-log-age", "how long the log of decisions is kept")
}

// size is a number of bytes as a quantity.
type size int64

const leastSize = 16 << 20

// Set implements pflag.Value.
func (s *size) Set(text string) error {
	q, err := quantity.ParseQuantity(text)
	if err != nil {
		return err
	}
	if q.Value() < leastSize {
		return fmt.Errorf("want at least %s", quantity.NewQuantity(leastSize, quantity.BinarySI))
	}
	*s = size(q.Value())
	return nil
}

// String implements pflag.Value.
func (s *size) String() string { return quantity.NewQuantity(int64(*s), quantity.BinarySI).String() }

// Type implements pflag.Value.
func (s *size) Type() string { return "quantity" }

// age is a duration of at least an hour.
type age time.Duration

// Set implements pflag.Value.
func (a *age) Set(text string) error {
	d, err := time.ParseDuration(text)
	if err != nil {
		return err
	}
	if d < time.Hour {
		return fmt.Errorf("want at least 1h")
	}
	*a = age(d)
	return nil
}

// String implements pflag.Value.
func (a *age) String() string { return time.Duration(*a).String() }

// Type implements pflag.Value.
func (a *age) Type() string { return "duration" }
