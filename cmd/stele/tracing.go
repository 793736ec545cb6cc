package main

import (
	"context"
	"log/slog"
	"os"

	"github.com/spf13/pflag"
	"stele.dev/stele/core/tracing"
)

// tracingOptions are the flags of tracing.
type tracingOptions struct{ configFile string }

func (o *tracingOptions) addFlags(f *pflag.FlagSet) {
	f.StringVar(&o.configFile, "tracing-config-file", "", "file with a TracingConfiguration (apiserver.config.k8s.io/v1): where spans of OpenTelemetry are sent, and of how many requests; see docs/MONITORING.md (default: none)")
}

// open returns the tracer of the flags, nil for none. close sends what it has, for a second at most.
func (o *tracingOptions) open(ctx context.Context, logger *slog.Logger) (t *tracing.Tracer, close func(), err error) {
	if o.configFile == "" {
		return nil, func() {}, nil
	}
	config, err := tracing.ReadConfig(o.configFile)
	if err != nil {
		return nil, nil, err
	}
	instance, _ := os.Hostname() // without a name, spans have none
	if t, err = tracing.New(ctx, config, instance, logger); err != nil {
		return nil, nil, err
	}
	return t, func() { t.Shutdown(context.WithoutCancel(ctx)) }, nil
}
