package plugincheck

import (
	"fmt"

	"github.com/spf13/cobra"
	"stele.dev/stele/cmd/stele/internal/show"
	"stele.dev/stele/cmd/stele/internal/usage"
	"stele.dev/stele/plugins/conformance"
)

func pluginTestCommand() *cobra.Command {
	var o pluginOptions
	cmd := &cobra.Command{
		Use:   "test PROGRAM TABLE",
		Short: "Test the decisions of a plugin against a table",
		Long: `Test asks a plugin each request of a table, a file of YAML or JSON, and compares:

  config: {timezone: Europe/Berlin, from: 9, to: 17}
  cases:
  - name: deletes wait for the window
    time: 2026-03-04T20:00:00Z
    user: alice
    groups: [developers]
    extra: {example.com/ticket: [CHG-1]}
    verb: delete
    apiGroup: example.com
    resource: databases
    namespace: default
    objectName: orders
    expect: deny                  # or allow, no opinion, error
    reason: ^deletes wait         # a regular expression

  reviews:
  - name: the owner is filled in
    stage: mutation               # or validation
    operation: CREATE             # or UPDATE, DELETE
    user: alice
    resource: databases
    object: {apiVersion: example.com/v1, kind: Database, metadata: {name: orders, namespace: default}}
    expect: admit                 # or refuse, error
    message: ""                   # a regular expression
    becomes: {apiVersion: example.com/v1, kind: Database, metadata: {name: orders, namespace: default, labels: {owner: alice}}}

Cases are for authorizers, reviews for admission plugins. A review may also have time, uid, groups, extra,
subresource, oldObject, namespaceLabels, dryRun, options and warnings. Without becomes its object must stay as it is.
A request may also have uid, apiVersion, subresource, fieldSelector and labelSelector, or a path
instead of a resource. A table may have secrets beside config.
The exit code is 1 if a case failed.`,
		Example: `  stele plugin test ./change-window decisions.yaml
  stele plugin test ./change-window decisions.yaml -o json`,
		Args: usage.Exactly("PROGRAM", "TABLE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			table, err := conformance.ReadTable(args[1])
			if err != nil {
				return err
			}
			p, subject, err := o.open(cmd, args[0], table)
			if err != nil {
				return err
			}
			results, err := table.Play(cmd.Context(), subject)
			if err != nil {
				return err
			}
			return p.print(cmd, results, &o.FormatFlags)
		},
	}
	o.addFlags(cmd)
	o.FormatFlags.AddFlags(cmd, "json", "yaml")
	return cmd
}

// played is the JSON of the results of a table.
type played struct {
	Plugin  string               `json:"plugin"`
	Version string               `json:"version"`
	SHA256  string               `json:"sha256"`
	Passed  bool                 `json:"passed"`
	Cases   []conformance.Result `json:"cases"`
}

// print prints the results of a table.
func (p *pluginProgram) print(cmd *cobra.Command, results []conformance.Result, o *show.FormatFlags) error {
	failed := 0
	for _, r := range results {
		if !r.Passed {
			failed++
		}
	}
	out := &show.Output{Writer: cmd.OutOrStdout()}
	if o.Format != "" {
		if err := out.Document(o.Format, played{Plugin: p.GetName(), Version: p.GetVersion(), SHA256: p.sha256, Passed: failed == 0, Cases: results}); err != nil {
			return err
		}
	} else {
		for _, r := range results {
			if r.Passed {
				o.Say(cmd, "ok    %s", r.Name)
				continue
			}
			fmt.Fprintf(out, "FAIL  %s\n      %s, %s\n", r.Name, answer(r), r.Wrong)
		}
	}
	if failed > 0 {
		return fmt.Errorf("%d of %s failed", failed, usage.Count(len(results), "case"))
	}
	if o.Format == "" {
		o.Say(cmd, "%s: %s as expected", p.GetName(), usage.Count(len(results), "case"))
	}
	return nil
}

// answer returns the answer of a plugin.
func answer(r conformance.Result) string {
	if r.Reason == "" {
		return string(r.Verdict)
	}
	return fmt.Sprintf("%s %q", r.Verdict, r.Reason)
}
