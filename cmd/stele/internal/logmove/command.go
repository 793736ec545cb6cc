// Package logmove has the commands that take a log to another store, or on from one that was restored: `stele store move`, whose work
// package eventlog/moving does, and `stele store new-epoch`.
package logmove

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"stele.dev/stele/cmd/stele/internal/build"
	"stele.dev/stele/cmd/stele/internal/flags"
	"stele.dev/stele/cmd/stele/internal/show"
	"stele.dev/stele/cmd/stele/internal/usage"
	"stele.dev/stele/core/run/plane/datadir"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/archive"
	"stele.dev/stele/eventlog/etcdlog"
	"stele.dev/stele/eventlog/moving"
)

// moveOptions are the flags of the command.
type moveOptions struct {
	show.OutputFlags
	dataDir, to string
	abandon     bool
	check       func(ctx context.Context, file string) error
	cluster     flags.Etcd
}

const (
	toEtcd    = "etcd"
	toDataDir = "data-dir"
)

// Command returns the command `log move`. check looks for damage in the database of an embedded etcd.
func Command(check func(ctx context.Context, file string) error) *cobra.Command {
	o := &moveOptions{check: check}
	cmd := &cobra.Command{
		Use:   "move --to etcd|data-dir --data-dir DIR --etcd-endpoints URL,…",
		Short: "Move the log between the embedded etcd of a data directory and an etcd cluster",
		Long: `Move moves the log of a control plane from the etcd that is embedded in a data directory to an etcd
cluster, or back. Ids, revisions and certificates stay the same, and clients go on as after a restart.

Stop the servers first. No server can use the data directory meanwhile; one that still runs on the
cluster stops as soon as the move begins, and loses nothing that it has acknowledged. The place that
the log leaves is marked, and no server starts on it any more.

Segments, checkpoints and keys stay in the data directory, which goes on being used. The place to
move to must be empty, or one that this log has left before. What was copied is read back before it
is used. If the command is interrupted, repeat it: it continues. Until it is complete no server can
use the log; --abandon gives up an incomplete move instead.`,
		Example: `  stele store move --to etcd --data-dir /var/lib/stele --etcd-endpoints https://etcd-1:2379,https://etcd-2:2379 --etcd-cafile etcd-ca.crt
  stele serve --data-dir /var/lib/stele --etcd-endpoints https://etcd-1:2379,https://etcd-2:2379 --etcd-cafile etcd-ca.crt

  stele store move --to data-dir --data-dir /var/lib/stele --etcd-endpoints http://localhost:2379
  stele serve --data-dir /var/lib/stele`,
		Args:              usage.NoArguments,
		RunE:              func(cmd *cobra.Command, _ []string) error { return o.run(cmd) },
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	f := cmd.Flags()
	f.StringVar(&o.dataDir, "data-dir", "", "data directory of the server that goes on with the log")
	f.StringVar(&o.to, "to", "", "where to move the log: etcd or data-dir")
	f.BoolVar(&o.abandon, "abandon", false, "give up a move that is not complete, with the same other flags: its copy is removed, and the log can be used where it was")
	o.cluster.AddFlags(f, "required")
	usage.Required(cmd, "data-dir")
	usage.Required(cmd, "to")
	usage.Required(cmd, "etcd-endpoints")
	_ = cmd.MarkFlagDirname("data-dir")
	_ = cmd.RegisterFlagCompletionFunc("to", cobra.FixedCompletions([]cobra.Completion{toEtcd, toDataDir}, cobra.ShellCompDirectiveNoFileComp))
	o.OutputFlags.AddFlags(cmd, "json", "yaml")
	return cmd
}

// movedLog is the output for programs.
type movedLog struct {
	Log      string `json:"log"`
	Revision uint64 `json:"revision"`
	Hash     string `json:"hash"`
	Place    string `json:"place"`
	Batches  int    `json:"batches"`
	// Before is set if an earlier call had completed the move.
	Before bool `json:"before,omitempty"`
}

func (o *moveOptions) run(cmd *cobra.Command) (err error) {
	ctx, stop := usage.Interruptible(cmd)
	defer stop()
	if o.to != toEtcd && o.to != toDataDir {
		return usage.Errorf("--to %q: want %s or %s", o.to, toEtcd, toDataDir)
	}
	if err := o.cluster.Check(); err != nil {
		return err
	}
	etcd := o.cluster.Dial(slog.New(slog.DiscardHandler))
	if _, err := os.Stat(o.dataDir); err != nil { // a folder that is created here would have no segments
		return fmt.Errorf("--data-dir: %w", err)
	}
	dir, err := datadir.Open(o.dataDir, datadir.Options{Software: "stele " + build.Version, CheckDatabase: o.check})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	embedded, err := dir.EmbeddedStore(ctx, o.to == toDataDir)
	if err != nil {
		return err
	}
	cluster, err := etcdlog.Dial(ctx, *etcd)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cluster.Close()) }()
	if err := cluster.CheckKeys(ctx); err != nil && !errors.As(err, new(*eventlog.MarkedError)) {
		return err
	}
	host, _ := os.Hostname()
	atFolder, atCluster := fmt.Sprintf("the data directory %s of %s", dir.Path(), host), fmt.Sprintf("the etcd at %s, prefix %s", strings.Join(etcd.Endpoints, ","), cmp.Or(etcd.Prefix, etcdlog.DefaultPrefix))
	options := moving.Options{From: embedded, To: cluster, FromPlace: atFolder, ToPlace: atCluster}
	if o.to == toDataDir {
		options = moving.Options{From: cluster, To: embedded, FromPlace: atCluster, ToPlace: atFolder}
	}
	if o.abandon {
		if err := moving.Abandon(ctx, options); err != nil {
			return err
		}
		o.Hint(cmd, "The move is given up. The log is where it was: %s.", options.FromPlace)
		return nil
	}
	options.Older = func(ctx context.Context, b *eventlog.Batch) error { return checkSegments(ctx, dir, b) }
	options.Check = func(head eventlog.Head) error { return dir.Claim(head.Log) }
	shown := time.Time{}
	options.Progress = func(revision, head uint64) {
		if !o.Quiet && show.IsTerminal(cmd.ErrOrStderr()) && time.Since(shown) > 100*time.Millisecond {
			shown = time.Now()
			fmt.Fprintf(cmd.ErrOrStderr(), "\r\x1b[KMoving revision %d of %d\r", revision, head)
		}
	}
	moved, err := moving.Move(ctx, options)
	if err != nil {
		return err
	}
	return o.print(cmd, moved, options.ToPlace, etcd)
}

// checkSegments returns an error if the segments in a data directory do not reach up to a batch.
func checkSegments(ctx context.Context, dir *datadir.Dir, b *eventlog.Batch) error {
	segments, err := archive.Open(archive.Options{Dir: dir.Path("segments"), Log: b.Log})
	if err != nil {
		return err
	}
	damaged := segments.Damaged()
	older, err := segments.Back(ctx, b.First-1, 1)
	switch {
	case err == nil && len(damaged) == 0 && len(older) == 1 && older[0].Hash == b.Previous:
		return nil // also if an epoch, which leaves revisions out, lies between the two
	case len(damaged) > 0 || segments.Tip().Revision < b.First-1:
		return errors.Join(append(damaged, fmt.Errorf("revisions before %d have left the log's store, and %s does not have all of them: start a server on it once, with the --bucket of this log, or use the data directory of another replica", b.First, dir.Path("segments")))...)
	case err != nil:
		return err
	}
	return fmt.Errorf("revision %d does not continue the segments in %s: %w", b.First, dir.Path("segments"), eventlog.ErrDiverged)
}

func (o *moveOptions) print(cmd *cobra.Command, m *moving.Moved, place string, etcd *etcdlog.DialOptions) error {
	result := movedLog{Log: m.Head.Log.String(), Revision: m.Head.Revision, Hash: m.Head.Hash.String(), Place: place, Batches: m.Batches, Before: m.Before}
	return o.Print(cmd, result, func(out *show.Output) error {
		if m.Before {
			fmt.Fprintf(out, "Log %s had moved to %s already, at revision %d.\n", result.Log, place, result.Revision)
		} else {
			fmt.Fprintf(out, "Log %s is now in %s, up to revision %d. It was read back: %d batches, hash %.16s.\n", result.Log, place, result.Revision, m.Batches, result.Hash)
		}
		if o.to == toEtcd {
			o.Hint(cmd, "Start it: stele serve --data-dir %s --etcd-endpoints %s, with the other --etcd flags of this command", usage.Quote(o.dataDir), strings.Join(etcd.Endpoints, ","))
		} else {
			o.Hint(cmd, "Start it: stele serve --data-dir %s", usage.Quote(o.dataDir))
		}
		return nil
	}, nil)
}
