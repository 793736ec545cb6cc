package main

import (
	"fmt"

	"github.com/spf13/cobra"
	"stele.dev/stele/policy"
)

func policyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "policy",
		Short: "Work on policy bundles",
		Args:  cobra.NoArgs,
	}
	cmd.AddCommand(vetCommand(), pushCommand(), showCommand(), explainCommand(), rollbackCommand(), policyLogCommand(), compileCommand(), configsCommand(), evaluateCommand())
	return cmd
}

func vetCommand() *cobra.Command {
	var pluginDir string
	compile := &compileOptions{}
	cmd := &cobra.Command{
		Use:   "vet DIR",
		Short: "Check a bundle: would it compile, and what would it enforce",
		Long: `Vet compiles the bundle in a folder as the server would, and prints everything that is
wrong with it, each with its line. It needs no server.

With --plugin-dir it starts the programs of the bundle's plugins, those with the checksums that
the bundle has and no others, and holds what the bundle configures against what they take.`,
		Example: `  stele policy vet examples/quickstart`,
		Args:    exactly("DIR"),
		RunE: func(cmd *cobra.Command, args []string) error {
			source, err := policy.ReadDir(args[0])
			if err != nil {
				return err
			}
			compiled, diags, err := compile.compile(cmd.Context(), source)
			if err != nil {
				return err
			}
			if len(diags) > 0 {
				return errDiagnostics(cmd.ErrOrStderr(), source, diags, args[0])
			}
			diags, err = vetPlugins(cmd.Context(), cmd.ErrOrStderr(), compiled, source, pluginDir)
			if err != nil {
				return err
			}
			if len(diags) > 0 {
				return errDiagnostics(cmd.ErrOrStderr(), source, diags, args[0])
			}
			encoded, _ := compiled.Form.Encode()
			p, err := policy.New(encoded)
			if err != nil {
				return err
			}
			own := 0
			for _, k := range p.Kinds() {
				if !k.Builtin {
					own++
				}
			}
			warn(cmd.ErrOrStderr(), compiled)
			fmt.Fprintf(cmd.OutOrStdout(), "%s is valid: %s, policy %.12s\n", args[0], plural(own, "kind"), p.DigestString())
			return nil
		},
	}
	cmd.Flags().StringVar(&pluginDir, "plugin-dir", "", "folder with the programs of plugins")
	_ = cmd.MarkFlagDirname("plugin-dir")
	compile.addFlags(cmd.Flags())
	return cmd
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
