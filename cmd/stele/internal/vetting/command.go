// Package vetting has the command that checks bundles without a server: `stele policy vet`.
package vetting

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"stele.dev/stele/cmd/stele/internal/client"
	"stele.dev/stele/cmd/stele/internal/compiling"
	"stele.dev/stele/cmd/stele/internal/show"
	"stele.dev/stele/cmd/stele/internal/usage"
	"stele.dev/stele/policy"
	"stele.dev/stele/schemas"
)

type options struct {
	show.FormatFlags
	pluginDir string
	compile   compiling.Options
	verbose   bool
}

// Command returns the command `vet`.
func Command() *cobra.Command {
	o := &options{}
	cmd := &cobra.Command{
		Use:   "vet DIR...",
		Short: "Check bundles: whether they compile, and what they contain",
		Long: `Vet compiles the bundle in a folder as the server does, and prints each error with its line. It
needs no server. It takes several folders, and patterns: ./clusters/... means all bundles in the
folder and below it.

A folder that is only a part of other bundles of the module, such as a team's folder, is checked as
part of each of them.

--plugin-dir also checks the configurations of plugins: vet starts the programs that have the
checksums of the bundle, and checks the configurations against their schemas.`,
		Example: `  stele policy vet .
  stele policy vet ./clusters/...
  stele policy vet teams/data -o json`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usage.Errorf("missing DIR, the folder of the bundle%s", usage.ForExample(cmd))
			}
			return nil
		},
		RunE: o.run,
	}
	o.AddFlags(cmd, "json", "yaml")
	cmd.Flags().StringVar(&o.pluginDir, "plugin-dir", "", "folder with the programs of plugins")
	_ = cmd.MarkFlagDirname("plugin-dir")
	cmd.Flags().BoolVarP(&o.verbose, "verbose", "v", false, "print how long CUE takes for the constraints that only CUE can check")
	o.compile.AddFlags(cmd.Flags())
	return cmd
}

func (o *options) run(cmd *cobra.Command, args []string) error {
	if err := o.Check(); err != nil {
		return err
	}
	targets, err := compiling.Targets(args)
	if err != nil {
		return err
	}
	report := document{APIVersion: client.DocumentVersion, Kind: "BundleReport", Bundles: []*vetted{}}
	failed, wrong := 0, 0
	for _, t := range targets {
		v, err := o.vet(cmd, t)
		if err != nil {
			return err
		}
		report.Bundles = append(report.Bundles, v)
		if !v.Valid {
			failed, wrong = failed+1, wrong+len(v.Errors)
		}
	}
	if o.Format != "" {
		if err := o.Document(cmd, report); err != nil {
			return err
		}
	}
	switch {
	case failed == 0:
		return nil
	case len(targets) == 1:
		return errors.New(usage.Count(wrong, "error") + " in " + targets[0].Name)
	}
	return fmt.Errorf("%s in %d of %s", usage.Count(wrong, "error"), failed, usage.Count(len(targets), "bundle"))
}

// document is the JSON of the results of vet.
type document struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"`
	Bundles    []*vetted `json:"bundles"`
}

// vetted is the result for a bundle.
type vetted struct {
	Bundle   string    `json:"bundle"`
	Valid    bool      `json:"valid"`
	Policy   string    `json:"policy,omitempty"` // digest
	Kinds    int       `json:"kinds"`
	Contents []count   `json:"contents,omitempty"`
	Errors   []finding `json:"errors,omitempty"`
	Warnings []finding `json:"warnings,omitempty"`
}

// count is the number of entries of a part of a bundle.
type count struct {
	Part  string `json:"part"`
	Count int    `json:"count"`
}

// finding is an error or a warning about a bundle.
type finding struct {
	File    string `json:"file,omitempty"`
	Line    int    `json:"line,omitempty"`
	Column  int    `json:"column,omitempty"`
	Path    string `json:"path,omitempty"`
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
}

func findings(diags schemas.Diagnostics) []finding {
	all := make([]finding, len(diags))
	for i, d := range diags {
		all[i] = finding{File: d.Pos.File, Line: d.Pos.Line, Column: d.Pos.Column, Path: d.Path, Message: d.Message, Hint: d.Hint}
	}
	return all
}

// vet checks a bundle and prints the result.
func (o *options) vet(cmd *cobra.Command, t compiling.Target) (*vetted, error) {
	v := &vetted{Bundle: t.Name}
	compiled, diags, err := o.compile.Compile(cmd.Context(), t.Source)
	if err != nil {
		return nil, err
	}
	if len(diags) == 0 {
		v.Warnings = findings(compiled.Warnings)
		if o.Format == "" && !o.Quiet {
			show.Warn(cmd.ErrOrStderr(), compiled)
			for _, d := range compiled.Costs {
				if o.verbose {
					fmt.Fprintln(cmd.ErrOrStderr(), d)
				}
			}
		}
		stderr := cmd.ErrOrStderr()
		if o.Quiet {
			stderr = io.Discard
		}
		if diags, err = checkPlugins(cmd.Context(), stderr, compiled, t.Source, o.pluginDir); err != nil {
			return nil, err
		}
	}
	if len(diags) > 0 {
		v.Errors = findings(diags)
		if o.Format == "" {
			_ = show.ErrDiagnostics(cmd.ErrOrStderr(), t.Source, diags, t.Name) // which prints them
		}
		return v, nil
	}
	encoded, _ := compiled.Form.Encode()
	p, err := policy.New(encoded)
	if err != nil {
		return nil, err
	}
	for _, k := range p.Kinds() {
		if !k.Builtin {
			v.Kinds++
		}
	}
	for _, c := range compiled.Form.Contents(nil) {
		v.Contents = append(v.Contents, count{c.Part, c.Count})
	}
	v.Valid, v.Policy = true, p.DigestString()
	if o.Format == "" {
		o.Say(cmd, "%s is valid: %s, policy %.12s", t.Name, show.ContentsText(compiled.Form), v.Policy)
	}
	return v, nil
}
