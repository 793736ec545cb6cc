package flags_test

import (
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	flags "stele.dev/stele/cmd/stele/internal/flags"
	"stele.dev/stele/limits/connections"
)

func parse(t *testing.T, args string) (connections.Limits, int, error) {
	t.Helper()
	var o flags.Connections
	f := pflag.NewFlagSet("", pflag.ContinueOnError)
	o.Add(f)
	if err := f.Parse(strings.Fields(args)); err != nil {
		t.Fatal(err)
	}
	return o.Limits()
}

func TestZeroIsNoLimitAndNoFlagIsTheDefault(t *testing.T) {
	defaults := connections.Limits{}.WithDefaults(1 << 30)
	l, failures, err := parse(t, "")
	if err != nil || failures != 120 || l.WithDefaults(1<<30) != defaults {
		t.Errorf("without flags: %+v, %d failures (%v), want %+v", l.WithDefaults(1<<30), failures, err, defaults)
	}
	l, failures, err = parse(t, "--max-connections 0 --max-connections-per-source 0 --max-opening-connections 0 --idle-timeout 0 --min-body-rate 0 --max-authentication-failures 0")
	l = l.WithDefaults(1 << 30)
	if err != nil || l.Total > 0 || l.PerSource > 0 || l.Opening > 0 || l.IdleTime > 0 || l.BodyRate > 0 || failures >= 0 {
		t.Errorf("with 0: %+v, %d failures (%v)", l, failures, err)
	}
	l, failures, err = parse(t, "--max-connections 100 --idle-timeout 5m --max-authentication-failures 7")
	l = l.WithDefaults(1 << 30)
	if err != nil || l.Total != 100 || l.PerSource != 50 || l.IdleTime != 5*time.Minute || failures != 7 {
		t.Errorf("with numbers: %+v, %d failures (%v)", l, failures, err)
	}
}

func TestNegativeLimitsAreRefused(t *testing.T) {
	for _, args := range []string{"--max-connections -1", "--min-body-rate -5", "--idle-timeout -1s", "--max-authentication-failures -1"} {
		name, _, _ := strings.Cut(args, " ")
		if _, _, err := parse(t, args); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", args, err)
		}
	}
}

func TestTheDefaultFollowsTheMemory(t *testing.T) {
	for memory, want := range map[int64]int{512 << 20: 2048, 64 << 20: 1000, 100 << 30: 20_000, 0: 20_000} {
		if got := connections.DefaultTotal(memory); got > want || got < 1 {
			t.Errorf("with %d bytes: %d connections, want %d, or less if few files may be open", memory, got, want)
		}
	}
}
