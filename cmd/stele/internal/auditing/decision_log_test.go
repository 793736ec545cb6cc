package auditing_test

import (
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"stele.dev/stele/cmd/stele/internal/auditing"
	"stele.dev/stele/core/run/plane"
)

func TestFlagsOfTheLogOfDecisions(t *testing.T) {
	for args, want := range map[string]any{
		"":                          plane.Decisions{Bytes: 1 << 30, Age: 720 * time.Hour},
		"--decision-log-bytes=4Gi":  plane.Decisions{Bytes: 4 << 30, Age: 720 * time.Hour},
		"--decision-log-age=24h":    plane.Decisions{Bytes: 1 << 30, Age: 24 * time.Hour},
		"--decision-log-bytes=-1":   "want at least 16Mi",
		"--decision-log-bytes=many": "quantities must match",
		"--decision-log-age=1m":     "want at least 1h",
		"--decision-log-age=x":      "invalid duration",
	} {
		var d plane.Decisions
		f := pflag.NewFlagSet("serve", pflag.ContinueOnError)
		auditing.AddLogFlags(f, &d)
		err := f.Parse(strings.Fields(args))
		if text, isError := want.(string); isError {
			if err == nil || !strings.Contains(err.Error(), text) {
				t.Errorf("%s: %v, want %q", args, err, text)
			}
		} else if err != nil || d != want {
			t.Errorf("%s: %+v, %v", args, d, err)
		}
	}
}
