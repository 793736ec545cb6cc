// Package policytest has the command `stele policy test`: it finds the tests of a module, reads them in child processes, runs
// them under each bundle that they are for, and reports the results.
package policytest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"regexp"
	"time"

	"github.com/spf13/cobra"
	"stele.dev/stele/cmd/stele/internal/client"
	"stele.dev/stele/cmd/stele/internal/compiling"
	"stele.dev/stele/cmd/stele/internal/report"
	"stele.dev/stele/cmd/stele/internal/usage"
	"stele.dev/stele/limits/child"
	"stele.dev/stele/policy/bundles"
	"stele.dev/stele/policy/suites"
	"stele.dev/stele/schemas"
)

// suiteLimits bound the process that evaluates a package of tests.
var suiteLimits = child.Limits{CPU: 20 * time.Second, Wall: 80 * time.Second, Memory: compiling.Memory, Output: 256 << 20}

type options struct {
	client.Flags
	compile  compiling.Options
	format   string
	run      string
	verbose  bool
	coverage bool
	update   bool
	watch    bool
	auditID  string
	all      bool // all tests of the module
	pattern  *regexp.Regexp
	limits   child.Limits
}

// Command returns the command `stele policy test`.
func Command() *cobra.Command {
	o := &options{limits: suiteLimits}
	cmd := &cobra.Command{
		Use:   "test [DIR...]",
		Short: "Run the tests of bundles, without a server",
		Long: `Test runs the suites in the folders and below them; without a folder, all suites of the module. A
suite is the field suite of a package of its own, such as clusters/dev/tests. It runs under each bundle
that contains the package of the folder above, or under those that it names in clusters.

Each test is one request. It takes every stage that it would take in a server, in memory and as a dry
run: no test sees what another one does. Plugins and webhooks are not started; a suite says what they
answer. Invariants are decided from the grants and denies, for every request that can be made.

The exit code is 0 if all tests pass, 1 if some fail, and 2 if the tests cannot be run: a suite or a
bundle has errors, or a test names a kind or a rule that does not exist.

--from-audit prints a test of a recorded request, with what the server answered.`,
		Example: `  stele policy test
  stele policy test ./clusters/... -run 'self service'
  stele policy test -o github
  stele policy test --update teams/data/tests
  stele policy test --from-audit 3c6d1a0e-5d0f-4f57-9d8e-6b1f0c2a4b11 > clusters/dev/tests/incident.cue`,
		Args: cobra.ArbitraryArgs,
		RunE: o.command,
	}
	o.Flags.AddFlags(cmd)
	f := cmd.Flags()
	formats := append([]string{"text", "json"}, report.Formats...)
	f.StringVarP(&o.format, "output", "o", "text", "output `FORMAT`: "+usage.Enumerate(formats))
	f.StringVar(&o.run, "run", "", "run only tests and invariants whose names match this `REGEX`; a case is TEST/CASE")
	f.BoolVarP(&o.verbose, "verbose", "v", false, "list tests that pass, too")
	f.BoolVar(&o.coverage, "coverage", false, "list the rules, bounds and values that no test exercises")
	f.BoolVar(&o.update, "update", false, "write what the tests got into their files, as what they expect")
	f.BoolVar(&o.watch, "watch", false, "run the tests again whenever a file is saved")
	f.StringVar(&o.auditID, "from-audit", "", "print a test of the recorded request that had this audit `ID`")
	o.compile.AddFlags(f)
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func (o *options) command(cmd *cobra.Command, args []string) error {
	ctx, stop := usage.Interruptible(cmd)
	defer stop()
	if err := usage.OneOf("-o", o.format, append([]string{"text", "json"}, report.Formats...)); err != nil {
		return err
	}
	var err error
	if o.pattern, err = regexp.Compile(o.run); err != nil {
		return usage.Errorf("-run %s: %v", o.run, err)
	}
	if o.auditID != "" {
		return usage.NoAnswer(o.fromAudit(ctx, cmd))
	}
	if o.all = len(args) == 0; o.all {
		args = []string{"."}
	}
	if o.watch {
		return o.runOnChange(ctx, cmd, args)
	}
	return o.runOnce(ctx, cmd, args)
}

// errFailed is the error of a run in which tests failed.
var errFailed = usage.Exit(usage.ExitFailure, usage.ErrPrinted)

// runOnce runs the tests and prints the results.
func (o *options) runOnce(ctx context.Context, cmd *cobra.Command, args []string) error {
	outcome, err := o.results(ctx, cmd, args)
	if err == nil && o.update {
		var written []string
		if written, err = outcome.update(); err == nil && len(written) > 0 {
			for _, file := range written {
				fmt.Fprintln(cmd.ErrOrStderr(), "updated "+file)
			}
			outcome, err = o.results(ctx, cmd, args)
		}
	}
	if err != nil {
		return usage.NoAnswer(err)
	}
	if err := outcome.print(cmd.OutOrStdout(), o); err != nil {
		return err
	}
	if outcome.failed() > 0 {
		return errFailed
	}
	return nil
}

// suiteAnswer is the answer of the child process that reads a suite.
type suiteAnswer struct {
	Suite       *suites.Suite       `json:"suite,omitempty"`
	Diagnostics schemas.Diagnostics `json:"diagnostics,omitempty"`
}

// read evaluates a package of tests in a child process.
func (o *options) read(ctx context.Context, source *bundles.Source) (*suites.Suite, schemas.Diagnostics, error) {
	var a suiteAnswer
	err := compiling.RunOnSource(ctx, o.limits, "suite", nil, source, func(d *json.Decoder, _ io.Reader) error { return d.Decode(&a) })
	var failure *child.Failure
	if errors.As(err, &failure) {
		return nil, schemas.Diagnostics{{Pos: schemas.Position{File: bundles.FirstFile(source), Line: 1, Column: 1},
			Message: "the tests could not be evaluated: " + failure.Why, Hint: "look for a definition that contains itself, and for comprehensions over long lists"}}, nil
	}
	return a.Suite, a.Diagnostics, err
}

// SuiteCommand returns the hidden command that reads a suite, as a child process.
func SuiteCommand() *cobra.Command {
	return compiling.ChildCommand("suite", "Read the suite on standard input, for stele itself", func(cmd *cobra.Command, _ []string) error {
		source, _, err := compiling.ReadSource(cmd.InOrStdin())
		if err != nil {
			return err
		}
		var a suiteAnswer
		a.Suite, a.Diagnostics = suites.Read(source)
		return json.NewEncoder(cmd.OutOrStdout()).Encode(a)
	})
}

// worker returns the command of a process that evaluates CUE for objects.
func worker() (*exec.Cmd, error) { return child.Command("policy", "evaluate") }
