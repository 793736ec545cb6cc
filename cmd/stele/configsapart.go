package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"time"

	"github.com/spf13/cobra"
	"stele.dev/stele/cmd/stele/internal/compiling"
	"stele.dev/stele/limits/child"
	"stele.dev/stele/policy/bundles"
	"stele.dev/stele/policy/pluginconfig"
	"stele.dev/stele/schemas"
)

// configsLimits are the limits of checking the configurations of a bundle's plugins.
var configsLimits = child.Limits{CPU: 10 * time.Second, Wall: 40 * time.Second, Memory: compiling.Memory, Output: 32 << 20}

// checkConfigsApart runs [pluginconfig.Check] in a child process, because evaluating the
// schema of a faulty plugin may take all memory.
func checkConfigsApart(ctx context.Context, source *bundles.Source, configSchemas map[string]string) (diags schemas.Diagnostics, err error) {
	err = compiling.RunOnSource(ctx, configsLimits, "configs", configSchemas, source, func(d *json.Decoder, _ io.Reader) error { return d.Decode(&diags) })
	var failure *child.Failure
	if errors.As(err, &failure) {
		return schemas.Diagnostics{{Path: "bundle.plugins", Message: "the configurations could not be checked against the plugins' schemas: " + failure.Why,
			Hint: "look for endless recursion in the schemas of the plugins"}}, nil
	}
	return diags, err
}

// configsCommand returns the hidden command that checkConfigsApart runs.
func configsCommand() *cobra.Command {
	return compiling.ChildCommand("configs", "Check the configurations of plugins on standard input, for stele itself", func(cmd *cobra.Command, _ []string) error {
		source, configs, err := compiling.ReadSource(cmd.InOrStdin())
		if err != nil {
			return err
		}
		return json.NewEncoder(cmd.OutOrStdout()).Encode(pluginconfig.Check(source, configs))
	})
}
