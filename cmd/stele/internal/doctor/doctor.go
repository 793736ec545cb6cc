// Package doctor has the command `stele doctor`. It looks at a data directory or a server, and says what is wrong and
// what to type. It changes nothing: a data directory may be that of a running server.
package doctor

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"stele.dev/stele/cmd/stele/internal/client"
	"stele.dev/stele/cmd/stele/internal/show"
	"stele.dev/stele/cmd/stele/internal/usage"
)

// Level says how bad a finding is.
type Level string

// The levels.
const (
	OK   Level = "ok"
	Warn Level = "warn" // it will become a failure, or may already have lost redundancy
	Fail Level = "fail" // something does not work, or is lost
)

// Finding is one thing that was looked at.
type Finding struct {
	Level Level  `json:"level"`
	Name  string `json:"name"` // of what was looked at
	What  string `json:"what"`
	Do    string `json:"do,omitempty"` // what to type
}

// Report is what was found, as a document.
type Report struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"`
	Subject    string    `json:"subject"` // the data directory or the server
	Worst      Level     `json:"worst"`
	Findings   []Finding `json:"findings"`
}

// add adds a finding.
func (r *Report) add(level Level, name, do, format string, args ...any) {
	r.Findings = append(r.Findings, Finding{level, name, fmt.Sprintf(format, args...), do})
}

// finish computes the worst level.
func (r *Report) finish() *Report {
	r.Worst = OK
	for _, level := range []Level{Warn, Fail} {
		if slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Level == level }) {
			r.Worst = level
		}
	}
	return r
}

// options are the flags of the command.
type options struct {
	client.Flags
	show.FormatFlags
	directory
}

// Command returns the command. check looks for damage in a file of etcd's database.
func Command(check DatabaseCheck) *cobra.Command {
	o := &options{directory: directory{check: check}}
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Say what is wrong with a server or a data directory, and what to type",
		Long: `Doctor looks at a running server, or with --data-dir at a data directory, and prints a line for each
thing that it has looked at: ok, warn or fail. Below a line that is not ok stands what to do.

It changes nothing. A data directory may be in use; more is looked at if it is not. ` + "`stele proof verify`" + `
reads the whole log.

The exit code is 1 if a line says fail.`,
		Example: `  stele doctor
  stele doctor --data-dir /var/lib/stele
  stele doctor -o json`,
		Args: usage.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd) },
	}
	o.Flags.AddFlags(cmd)
	_ = cmd.Flags().MarkHidden("namespace")
	o.AddIdentity(cmd)
	o.FormatFlags.AddFlags(cmd, "json", "yaml")
	cmd.Flags().StringVar(&o.Dir, "data-dir", "", "look at this data directory (default: at the server of the kubeconfig)")
	_ = cmd.MarkFlagDirname("data-dir")
	cmd.ValidArgsFunction = cobra.NoFileCompletions
	return cmd
}

func (o *options) run(cmd *cobra.Command) error {
	ctx, stop := usage.Interruptible(cmd)
	defer stop()
	var report *Report
	var err error
	if o.Dir != "" {
		report, err = o.directory.examine(ctx)
	} else {
		report, err = o.server(ctx)
	}
	if err != nil {
		return err
	}
	report.APIVersion, report.Kind = client.DocumentVersion, "Diagnosis"
	if o.Format != "" {
		err = o.Document(cmd, report)
	} else {
		_, err = fmt.Fprint(cmd.OutOrStdout(), report.text(o.Quiet))
	}
	if err == nil && report.Worst == Fail {
		return usage.Exit(usage.ExitFailure, usage.ErrPrinted)
	}
	return err
}

// text returns the report as text: one line for each finding, and the command below it. If quiet is set, findings that
// are ok are left out.
func (r *Report) text(quiet bool) string {
	width := 0
	for _, f := range r.Findings {
		width = max(width, len(f.Name))
	}
	var b strings.Builder
	for _, f := range r.Findings {
		if quiet && f.Level == OK {
			continue
		}
		fmt.Fprintf(&b, "%-4s  %-*s  %s\n", f.Level, width, f.Name, show.Harmless(f.What))
		if f.Do != "" {
			fmt.Fprintf(&b, "      %-*s  %s\n", width, "", f.Do)
		}
	}
	return b.String()
}
