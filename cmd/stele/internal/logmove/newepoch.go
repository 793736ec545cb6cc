package logmove

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"stele.dev/stele/cmd/stele/internal/build"
	"stele.dev/stele/cmd/stele/internal/flags"
	"stele.dev/stele/cmd/stele/internal/usage"
	"stele.dev/stele/core/run/plane/datadir"
)

// NewEpochCommand returns `stele store new-epoch`.
func NewEpochCommand() *cobra.Command {
	var etcd flags.Etcd
	var dataDir string
	var next uint64
	cmd := &cobra.Command{
		Use:   "new-epoch",
		Short: "Declare that an etcd that was restored has lost the newest revisions",
		Long: `New-epoch is for an etcd cluster that was restored from a snapshot, or has lost writes. The log in
it then ends before a revision that clients have seen, and no server starts on it. New-epoch writes an
event that declares the revisions after the end as lost, and continues above them, so that no revision
means two things. Clients that have seen a lost revision get 410 (Expired) and list again.

Stop all servers of the log first. Run it on the data directory of the replica that was in use last;
the other replicas must begin with empty data directories, see docs/REPLICAS.md.

It changes nothing if the log has everything that this data directory has seen.`,
		Example: `  stele store new-epoch --data-dir /var/lib/stele --etcd-endpoints https://10.0.0.1:2379,https://10.0.0.2:2379`,
		Args:    usage.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := usage.Interruptible(cmd)
			defer stop()
			if len(etcd.Endpoints) == 0 {
				return usage.Mark(errors.New("--etcd-endpoints is needed: the embedded etcd of a data directory is restored by `stele backup restore`"))
			}
			if err := etcd.Check(); err != nil {
				return usage.Mark(err)
			}
			if used, err := datadir.HasLog(dataDir); err != nil || !used {
				return errors.Join(fmt.Errorf("%s is not the data directory of a server", dataDir), err)
			}
			dir, err := datadir.Open(dataDir, datadir.Options{Software: "stele " + build.Version, Etcd: etcd.Dial(nil)})
			if err != nil {
				return err
			}
			defer dir.Close()
			started, err := dir.StartEpoch(ctx, next)
			if errors.Is(err, datadir.ErrNothingLost) {
				fmt.Fprintln(cmd.OutOrStdout(), "Nothing was changed: the log has everything that this data directory has seen.")
				return nil
			}
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "Epoch %d begins at revision %d. Revisions %d to %d are lost.\n",
				started.Epoch, started.First, started.Events[0].Meta.GetEpochStarted().GetLostFrom(), started.First-1)
			return nil
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	f := cmd.Flags()
	f.StringVar(&dataDir, "data-dir", "./stele-data", "data directory of the replica that was in use last")
	f.Uint64Var(&next, "next", 0, "first `REVISION` of the new epoch, above all that any replica has seen (default: a million above what this data directory has seen)")
	etcd.AddFlags(f, "needed")
	_ = cmd.MarkFlagDirname("data-dir")
	return cmd
}
