package plugincheck

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"stele.dev/stele/cmd/stele/internal/show"
	"stele.dev/stele/cmd/stele/internal/usage"
	"stele.dev/stele/plugins/conformance"
	"stele.dev/stele/plugins/host"
	"stele.dev/stele/policy/pluginconfig"
	"stele.dev/stele/schemas"
)

// Command returns the command `stele plugin` with its subcommands.
func Command() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "plugin",
		Short: "Check, test and measure plugins: authorizers and admission plugins",
		Long: `Plugins are programs that authorize requests, or change and check what requests write. These commands run them
as serve does.
docs/PLUGINS.md describes how to write them, what they receive and what they may do.`,
		Args: usage.NoArguments,
	}
	cmd.AddCommand(pluginCheckCommand(), pluginTestCommand(), pluginBenchCommand())
	return cmd
}

// pluginOptions are the flags that the commands share.
type pluginOptions struct {
	config  string   // a file
	secrets []string // name=file
	verbose bool
	show.FormatFlags
}

func (o *pluginOptions) addFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&o.config, "config", "", "file of JSON or CUE with the plugin's configuration")
	f.StringArrayVar(&o.secrets, "secret", nil, "`NAME=FILE`: a secret that the plugin needs; may be repeated")
	f.BoolVarP(&o.verbose, "verbose", "v", false, "log what the plugin prints")
	_ = cmd.MarkFlagFilename("config", "json", "cue")
}

// pluginProgram is a plugin's program and its description of itself.
type pluginProgram struct {
	// name that the plugin has in bundles.
	name   string
	sha256 string
	start  func(ctx context.Context) (*conformance.Instance, error)
	*host.Description
}

// openProgram starts a plugin and asks it to describe itself.
func (o *pluginOptions) openProgram(cmd *cobra.Command, file string) (*pluginProgram, error) {
	p := &pluginProgram{name: filepath.Base(file)}
	var err error
	if p.sha256, err = conformance.Checksum(file); err != nil {
		return nil, err
	}
	var log *slog.Logger
	if o.verbose {
		log = slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil))
	}
	p.start = conformance.Program(file, log)
	i, err := p.start(cmd.Context())
	if err != nil {
		return nil, err
	}
	defer i.Close()
	if p.Description, err = i.Describe(cmd.Context()); err != nil {
		return nil, fmt.Errorf("%s does not describe itself: %w", file, err)
	}
	return p, nil
}

// open starts a plugin, and returns it with the configuration and secrets of the flags, or else of a table.
func (o *pluginOptions) open(cmd *cobra.Command, file string, table *conformance.Table) (*pluginProgram, *conformance.Subject, error) {
	p, err := o.openProgram(cmd, file)
	if err != nil {
		return nil, nil, err
	}
	s, err := o.subject(cmd, p, table)
	return p, s, err
}

// subject returns the plugin with the configuration and secrets of the flags, or else of a table.
func (o *pluginOptions) subject(cmd *cobra.Command, p *pluginProgram, table *conformance.Table) (*conformance.Subject, error) {
	if table == nil {
		table = new(conformance.Table)
	}
	s := table.Subject(p.start)
	switch {
	case o.config != "":
		text, err := os.ReadFile(o.config)
		if err != nil {
			return nil, err
		}
		var diags schemas.Diagnostics
		if s.Config, diags = pluginconfig.Read(p.GetConfigSchema(), o.config, text); len(diags) > 0 {
			return nil, errPluginConfig(cmd, diags, o.config)
		}
	case len(s.Config) > 0:
		if _, diags := pluginconfig.Read(p.GetConfigSchema(), "config.json", s.Config); len(diags) > 0 {
			for i := range diags {
				diags[i].Pos = schemas.Position{} // the line is one of the table
			}
			return nil, errPluginConfig(cmd, diags, "the config of the table")
		}
	}
	for _, secret := range o.secrets {
		name, file, ok := strings.Cut(secret, "=")
		if !ok {
			return nil, usage.Errorf("--secret %s: use NAME=FILE", secret)
		}
		if !slices.Contains(p.GetSecrets(), name) {
			return nil, fmt.Errorf("--secret %s: the plugin asks for %s", name, cmp.Or(strings.Join(p.GetSecrets(), ", "), "none"))
		}
		value, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		s.Secrets[name] = value
	}
	return s, nil
}

// errPluginConfig prints the errors of a configuration, and returns an error that counts them.
func errPluginConfig(cmd *cobra.Command, diags schemas.Diagnostics, where string) error {
	for _, d := range diags {
		fmt.Fprintln(cmd.ErrOrStderr(), d)
	}
	return errors.New(usage.Count(len(diags), "error") + " in " + where)
}
