package main

import (
	"context"
	"encoding/json"
	"time"

	"github.com/spf13/cobra"
	"stele.dev/stele/core/activation"
	"stele.dev/stele/policy"
	"stele.dev/stele/schemas"
)

// configsWithin bounds how long the configurations of a bundle's plugins may take to be checked.
const configsWithin = 10 * time.Second

// configured is a bundle, and what the programs of its plugins say of their configurations.
type configured struct {
	Spec    activation.Spec   `json:"spec"`
	Schemas map[string]string `json:"schemas"`
}

// checkConfigsApart is [policy.CheckPluginConfigs] in a process of its own: a schema is CUE, which
// comes from a program that the operator trusts not to be harmful, and may be wrong about.
func checkConfigsApart(ctx context.Context, source *policy.Source, configSchemas map[string]string) (diags schemas.Diagnostics, err error) {
	why, err := apart(ctx, configsWithin, "configs", configured{activation.SpecOf(source), configSchemas}, &diags)
	if why != "" {
		diags = schemas.Diagnostics{{Path: "bundle.plugins", Message: "the configurations could not be held against the plugins' schemas: " + why,
			Hint: "see what the schemas compute: they may recur without end"}}
	}
	return diags, err
}

// configsCommand is the other end of checkConfigsApart.
func configsCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "configs",
		Short:  "Check the configurations of plugins on standard input, for a server",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			confine(configsWithin)
			var asked configured
			if err := json.NewDecoder(cmd.InOrStdin()).Decode(&asked); err != nil {
				return err
			}
			return json.NewEncoder(cmd.OutOrStdout()).Encode(policy.CheckPluginConfigs(asked.Spec.Source(), asked.Schemas))
		},
	}
}
