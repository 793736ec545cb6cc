package backup

import (
	"fmt"

	"github.com/spf13/cobra"
	"stele.dev/stele/cmd/stele/internal/buckets"
	"stele.dev/stele/cmd/stele/internal/show"
	"stele.dev/stele/cmd/stele/internal/usage"
	"stele.dev/stele/eventlog/backup"
)

type verifyOptions struct {
	placeFlags
	chooseFlags
}

func verifyCommand() *cobra.Command {
	o := &verifyOptions{}
	cmd := &cobra.Command{
		Use:   "verify PLACE",
		Short: "Read a backup back, and check all of it",
		Long: `Verify reads all files of a backup, and compares them with the checksums in its manifest. It then
follows the hash chain of the log from the first change to the last, so that no change is missing
or different. It names every file that is missing or damaged. Without --identity it compares only
the checksums of an encrypted backup.

To repair a place, delete the damaged file: the next create sends it again, if the server still
has it. The exit code is 1 if something is wrong.`,
		Example: `  stele backup verify /var/backups/stele
  stele backup verify s3://backups/stele?region=eu-central-1 --identity backup.key`,
		Args:              usage.Exactly("PLACE"),
		ValidArgsFunction: completePlaces,
		RunE:              func(cmd *cobra.Command, args []string) error { return o.run(cmd, args[0]) },
	}
	o.placeFlags.addFlags(cmd, "json", "yaml")
	o.chooseFlags.addFlags(cmd)
	return cmd
}

// verified is the output of verify for programs.
type verified struct {
	Name     string   `json:"name"`
	Revision uint64   `json:"revision"`
	Files    int      `json:"files"`
	Bytes    int64    `json:"bytes"`
	Batches  uint64   `json:"batches"`
	Events   uint64   `json:"events"`
	Chain    bool     `json:"chain"`
	Problems []string `json:"problems"`
}

func (o *verifyOptions) run(cmd *cobra.Command, name string) error {
	ctx, stop := usage.Interruptible(cmd)
	defer stop()
	if err := o.check(); err != nil {
		return err
	}
	identities, err := o.readIdentities()
	if err != nil {
		return err
	}
	place, err := buckets.Open(ctx, name)
	if err != nil {
		return err
	}
	defer place.Close()
	line := newProgressLine(cmd, o.Quiet, "Reading")
	patience := o.patience(func(format string, args ...any) { line.end(); fmt.Fprintf(cmd.ErrOrStderr(), format+"\n", args...) })
	found, err := backup.List(ctx, place, patience)
	if err != nil {
		return err
	}
	m, err := backup.Choose(found, o.backup, o.log)
	if err != nil {
		return err
	}
	v, err := backup.Verify(ctx, backup.VerifyOptions{Store: place, Manifest: m, Identities: identities, Patience: patience, Progress: line.show})
	line.end()
	if err != nil {
		return err
	}
	result := verified{Name: m.Name(), Revision: m.Head.Revision, Files: v.Files, Bytes: v.Bytes, Batches: v.Batches, Events: v.Events, Chain: v.Chain, Problems: []string{}}
	for _, p := range v.Problems {
		result.Problems = append(result.Problems, p.Error())
	}
	if err := o.Print(cmd, result, result.print, nil); err != nil {
		return err
	}
	if len(v.Problems) > 0 {
		return usage.Exit(usage.ExitFailure, fmt.Errorf("backup %s has %s; delete these files and make a new backup, or choose another one", m.Name(), usage.Count(len(v.Problems), "problem")))
	}
	return nil
}

func (v verified) print(out *show.Output) error {
	for _, p := range v.Problems {
		fmt.Fprintln(out, p)
	}
	switch {
	case len(v.Problems) > 0:
	case v.Chain:
		fmt.Fprintf(out, "%s is whole: %s, %s; the chain of %d changes up to revision %d is unbroken.\n", v.Name, usage.Count(v.Files, "file"), show.Bytes(v.Bytes), v.Events, v.Revision)
	default:
		fmt.Fprintf(out, "The checksums of %s, %s, are right. The backup is encrypted: give --identity to check the chain of changes, too.\n", usage.Count(v.Files, "file"), show.Bytes(v.Bytes))
	}
	return nil
}
