package plugincheck

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"stele.dev/stele/cmd/stele/internal/usage"
	"stele.dev/stele/plugins/authorizerpb"
	"stele.dev/stele/plugins/conformance"
	"stele.dev/stele/plugins/host"
	"stele.dev/stele/policy/pluginconfig"
)

func pluginCheckCommand() *cobra.Command {
	var o pluginOptions
	var pin string
	cmd := &cobra.Command{
		Use:   "check PROGRAM",
		Short: "Check a plugin: whether it starts, and whether it behaves as every plugin must",
		Long: `Check starts a program as serve does, prints how it describes itself, checks the configuration
against its schema, and tests what every plugin must do. The last line is for a bundle: it pins
the program to its checksum. The plugin's name there is the file name. A configuration file has
the values, such as {hour: 21}, and not the schema.

With --cue it prints only a CUE file that pins the program, for a package.`,
		Example: `  stele plugin check ./change-window --config values.cue
  stele plugin check ./change-window --cue databases > policy/pin.cue`,
		Args: usage.Exactly("PROGRAM"),
		RunE: func(cmd *cobra.Command, args []string) error {
			p, subject, err := o.open(cmd, args[0], nil)
			if err != nil {
				return err
			}
			out := cmd.OutOrStdout()
			if pin == "" {
				r := p.conform(cmd.Context(), subject)
				if o.Format != "" {
					if err := o.Document(cmd, r); err != nil {
						return err
					}
					return r.failed()
				}
				if !o.Quiet {
					p.describe(out)
				}
				r.print(out, o.Quiet)
				if err := r.failed(); err != nil || o.Quiet {
					return err
				}
				fmt.Fprintln(out, "\nIn a bundle:")
			} else {
				fmt.Fprintf(out, "package %s\n\n", pin)
			}
			if !pluginName.MatchString(p.name) {
				return fmt.Errorf("a bundle cannot name %q: rename the file with lower-case letters, digits and dashes", p.name)
			}
			fmt.Fprintf(out, "bundle: plugins: %s: sha256: %q: %q\n", p.label(), host.System, p.sha256)
			return nil
		},
	}
	o.addFlags(cmd)
	o.FormatFlags.AddFlags(cmd, "json", "yaml")
	cmd.Flags().StringVar(&pin, "cue", "", "print a file of CUE for this package, which pins the program")
	return cmd
}

// pluginName matches the names that plugins can have in a bundle.
var pluginName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9.:]*[a-z0-9])?$`)

// label returns the name as a field of CUE.
func (p *pluginProgram) label() string {
	if plainLabel.MatchString(p.name) {
		return p.name
	}
	return strconv.Quote(p.name)
}

// plainLabel matches names that CUE needs no quotes for.
var plainLabel = regexp.MustCompile(`^[a-z][a-z0-9]*$`)

// describe prints a plugin's description of itself.
func (p *pluginProgram) describe(out io.Writer) {
	kind := ""
	if p.GetDeterministic() {
		kind = ", deterministic"
	}
	fmt.Fprintf(out, "%s %s%s, protocol %d\n", p.GetName(), p.GetVersion(), kind, authorizerpb.ProtocolVersion)
	fmt.Fprintf(out, "It is %s.\n", p.kind())
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

// kind says what a plugin is for.
func (p *pluginProgram) kind() string {
	switch {
	case !p.Admission:
		return "an authorizer"
	case !p.Authorizer:
		return "an admission plugin"
	}
	return "an authorizer and an admission plugin"
}

// pluginReport is the result of the checks of a plugin.
type pluginReport struct {
	Plugin        string        `json:"plugin"`
	Version       string        `json:"version"`
	SHA256        string        `json:"sha256"`
	Authorizer    bool          `json:"authorizer"`
	Admission     bool          `json:"admission"`
	Deterministic bool          `json:"deterministic"`
	Protocol      int           `json:"protocol"`
	Secrets       []string      `json:"secrets,omitempty"`
	ConfigSchema  string        `json:"configSchema,omitempty"`
	Passed        bool          `json:"passed"`
	Checks        []pluginCheck `json:"checks"`
	// Lacking are the flags without which the other checks could not be run.
	Lacking []string `json:"lacking,omitempty"`
}

// pluginCheck is the result of a check.
type pluginCheck struct {
	Name   string `json:"name"`
	Passed bool   `json:"passed"`
	Error  string `json:"error,omitempty"`
}

// conform runs the checks. Checks that need a configuration or secrets are skipped if these are missing.
func (p *pluginProgram) conform(ctx context.Context, s *conformance.Subject) *pluginReport {
	r := &pluginReport{
		Plugin: p.GetName(), Version: p.GetVersion(), SHA256: p.sha256, Deterministic: p.GetDeterministic(), Protocol: authorizerpb.ProtocolVersion,
		Authorizer: p.Authorizer, Admission: p.Admission, Secrets: p.GetSecrets(), ConfigSchema: strings.TrimSpace(p.GetConfigSchema()), Passed: true,
	}
	if len(s.Config) == 0 {
		if _, diags := pluginconfig.Read(p.GetConfigSchema(), "config.cue", nil); p.GetConfigSchema() != "" && len(diags) > 0 {
			r.Lacking = append(r.Lacking, "--config")
		}
	}
	for _, name := range p.GetSecrets() {
		if _, ok := s.Secrets[name]; !ok {
			r.Lacking = append(r.Lacking, "--secret "+name+"=FILE")
		}
	}
	for _, c := range conformance.ChecksOf(p.Services) {
		if c.Configured && len(r.Lacking) > 0 {
			continue
		}
		check := pluginCheck{Name: c.Name, Passed: true}
		if err := c.Run(ctx, s); err != nil {
			check.Passed, check.Error, r.Passed = false, err.Error(), false
		}
		r.Checks = append(r.Checks, check)
	}
	return r
}

// print prints the checks for people. With quiet it prints only those that failed.
func (r *pluginReport) print(out io.Writer, quiet bool) {
	for _, c := range r.Checks {
		switch {
		case !c.Passed:
			fmt.Fprintf(out, "FAIL  %s\n      %v\n", c.Name, c.Error)
		case !quiet:
			fmt.Fprintf(out, "ok    %s\n", c.Name)
		}
	}
	if len(r.Lacking) > 0 && !quiet {
		fmt.Fprintf(out, "The other checks need %s.\n", strings.Join(r.Lacking, " and "))
	}
}

// failed returns an error if a check failed.
func (r *pluginReport) failed() error {
	n := 0
	for _, c := range r.Checks {
		if !c.Passed {
			n++
		}
	}
	if n == 0 {
		return nil
	}
	return errors.New(usage.Count(n, "check") + " failed")
}
