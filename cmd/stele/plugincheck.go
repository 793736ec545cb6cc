package main

import (
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"stele.dev/stele/plugins/authorizerpb"
	"stele.dev/stele/plugins/conformance"
	"stele.dev/stele/plugins/host"
	"stele.dev/stele/policy"
)

func pluginCheckCommand() *cobra.Command {
	var o pluginOptions
	var pin string
	cmd := &cobra.Command{
		Use:   "check PROGRAM",
		Short: "Check a plugin: does it start, what is it, does it keep what every plugin must",
		Long: `Check starts a program as serve does, prints what it says of itself, holds the configuration
against its schema, and tries what every plugin must keep. The last lines are for a bundle:
they pin the program to its checksum. Its name there is that of the file. A configuration
is a file with what the bundle would say, {hour: 21}, not with its schema.

With --cue it prints no more than a file of CUE that does that, for a package.`,
		Example: `  stele plugin check ./change-window --config values.cue
  stele plugin check ./change-window --cue databases > policy/pin.cue`,
		Args: exactly("PROGRAM"),
		RunE: func(cmd *cobra.Command, args []string) error {
			p, err := o.openProgram(cmd, args[0])
			if err != nil {
				return err
			}
			subject, err := o.subject(cmd, p, nil)
			if err != nil {
				return err
			}
			out := cmd.OutOrStdout()
			if pin == "" {
				p.describe(out)
				if err := p.conform(cmd, subject); err != nil {
					return err
				}
				fmt.Fprintln(out, "\nIn a bundle:")
			} else {
				fmt.Fprintf(out, "package %s\n\n", pin)
			}
			if !pluginName.MatchString(p.name) {
				return fmt.Errorf("a bundle cannot name %q: call the file by lower-case letters, digits and dashes", p.name)
			}
			fmt.Fprintf(out, "bundle: plugins: %s: sha256: %q: %q\n", p.label(), host.System, p.sha256)
			return nil
		},
	}
	o.addFlags(cmd)
	cmd.Flags().StringVar(&pin, "cue", "", "print a file of CUE for this package, which pins the program")
	return cmd
}

// pluginName is #Name of the format of bundles.
var pluginName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9.:]*[a-z0-9])?$`)

// label is the name as a field of CUE.
func (p *pluginProgram) label() string {
	if plainLabel.MatchString(p.name) {
		return p.name
	}
	return strconv.Quote(p.name)
}

var plainLabel = regexp.MustCompile(`^[a-z][a-z0-9]*$`)

func (p *pluginProgram) describe(out io.Writer) {
	kind := ""
	if p.GetDeterministic() {
		kind = ", deterministic"
	}
	fmt.Fprintf(out, "%s %s%s, protocol %d\n", p.GetName(), p.GetVersion(), kind, authorizerpb.ProtocolVersion)
	if len(p.GetSecrets()) > 0 {
		fmt.Fprintf(out, "It needs the secrets %s.\n", strings.Join(p.GetSecrets(), ", "))
	}
	if schema := strings.TrimSpace(p.GetConfigSchema()); schema != "" {
		fmt.Fprintf(out, "\n\t%s\n", strings.ReplaceAll(schema, "\n", "\n\t"))
	} else {
		fmt.Fprintln(out, "It takes no configuration.")
	}
	fmt.Fprintln(out)
}

// conform runs the checks. Without what the plugin needs, those that configure it cannot
// be run, which is said.
func (p *pluginProgram) conform(cmd *cobra.Command, s *conformance.Subject) error {
	var lacking []string
	if len(s.Config) == 0 {
		if _, diags := policy.ReadPluginConfig(p.GetConfigSchema(), "config.cue", nil); p.GetConfigSchema() != "" && len(diags) > 0 {
			lacking = append(lacking, "--config")
		}
	}
	for _, name := range p.GetSecrets() {
		if _, ok := s.Secrets[name]; !ok {
			lacking = append(lacking, "--secret "+name+"=FILE")
		}
	}
	failed := 0
	for _, c := range conformance.Checks() {
		if c.Configured && len(lacking) > 0 {
			continue
		}
		if err := c.Run(cmd.Context(), s); err != nil {
			failed++
			fmt.Fprintf(cmd.OutOrStdout(), "FAIL  %s\n      %v\n", c.Name, err)
			continue
		}
		fmt.Fprintf(cmd.OutOrStdout(), "ok    %s\n", c.Name)
	}
	if len(lacking) > 0 {
		fmt.Fprintf(cmd.OutOrStdout(), "The rest is checked with %s.\n", strings.Join(lacking, " and "))
	}
	if failed > 0 {
		return errors.New(plural(failed, "check") + " failed")
	}
	return nil
}
