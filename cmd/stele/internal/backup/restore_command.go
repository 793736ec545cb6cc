package backup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"stele.dev/stele/cmd/stele/internal/buckets"
	"stele.dev/stele/cmd/stele/internal/client"
	"stele.dev/stele/cmd/stele/internal/show"
	"stele.dev/stele/cmd/stele/internal/signers"
	"stele.dev/stele/cmd/stele/internal/usage"
	"stele.dev/stele/core/auth/pki"
	"stele.dev/stele/core/auth/tokens"
	"stele.dev/stele/core/keep/encryption"
	"stele.dev/stele/core/keep/retention"
	"stele.dev/stele/core/run/plane/datadir"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/backup"
	"stele.dev/stele/eventlog/backup/stores"
)

type restoreOptions struct {
	placeFlags
	chooseFlags
	dataDir, to   string
	next          uint64
	accept        bool
	encryption    string
	checkDatabase CheckDatabase
}

func restoreCommand(check CheckDatabase) *cobra.Command {
	o := &restoreOptions{checkDatabase: check}
	cmd := &cobra.Command{
		Use:   "restore PLACE --data-dir DIR",
		Short: "Make a data directory of a backup",
		Long: `Restore makes an empty folder the data directory of a control plane, as it was at the end of a
backup, or with --to at an earlier revision or time. It checks the backup as verify does. If it is
interrupted, repeat it: it continues. Until it is complete no server starts on the folder.

With --to and a time the log ends with the last change that is not later; with a revision it ends exactly
there. Changes that were written together stay together: a revision among them is refused, with the two
nearest that are possible.

A checkpoint of which the log has no record is left out: the first start then reads the whole log. If
the log cannot be read without it, because the server had forgotten its beginning, restore refuses.
Backups of former versions have such checkpoints, and so has a backup that somebody forged. With
--signers only a backup is restored that one of these keys has signed.

Revisions that were issued behind the restored one are lost, and a new epoch begins above them:
1,000,000 above the newest revision of any backup in the place, because the old server may have
gone on after it. Give --next if it may have issued more. With --signers only backups count that one
of these keys has signed. Clients that know lost revisions are answered with 410, and read everything
again.

Never run the old server again beside the restored one: they would be two histories.

` + client.MomentHelp,
		Example: `  stele backup restore /var/backups/stele --data-dir ./restored
  stele backup restore s3://backups/stele?region=eu-central-1 --identity backup.key --data-dir /var/lib/stele
  stele backup restore /var/backups/stele --data-dir ./restored --to "2026-11-20 14:00"`,
		Args:              usage.Exactly("PLACE"),
		ValidArgsFunction: completePlaces,
		RunE:              func(cmd *cobra.Command, args []string) error { return o.run(cmd, args[0]) },
	}
	o.placeFlags.addFlags(cmd, "json", "yaml")
	o.chooseFlags.addFlags(cmd)
	f := cmd.Flags()
	f.StringVar(&o.dataDir, "data-dir", "", "folder to restore into, which must be empty or not exist")
	f.StringVar(&o.to, "to", "", "the last state to restore, as a `MOMENT` (default: the end of the backup)")
	f.Uint64Var(&o.next, "next", 0, "first `REVISION` of the new epoch; it must be above every revision that was ever issued (default: see above)")
	f.StringVar(&o.encryption, "encryption-provider-config", "", "`FILE` with the keys under which the server encrypted what it stored, to compare a checkpoint with the log already now")
	f.BoolVar(&o.accept, "accept-unrecorded-checkpoint", false, "restore the checkpoint, and changes before erased ones, although the log has no record of them; whoever can write to the place can forge them")
	usage.Required(cmd, "data-dir")
	_ = cmd.MarkFlagDirname("data-dir")
	_ = cmd.RegisterFlagCompletionFunc("to", cobra.NoFileCompletions)
	_ = cmd.RegisterFlagCompletionFunc("next", cobra.NoFileCompletions)
	return cmd
}

// restored is the output of restore for programs.
type restored struct {
	Log      string    `json:"log"`
	Backup   string    `json:"backup"`
	Revision uint64    `json:"revision"`
	Time     time.Time `json:"time"`
	Next     uint64    `json:"next"`
	Keys     bool      `json:"keys"`
	LeftOut  uint64    `json:"leftOutCheckpoint,omitempty"`
	DataDir  string    `json:"dataDir"`
}

func (o *restoreOptions) run(cmd *cobra.Command, name string) (err error) {
	ctx, stop := usage.Interruptible(cmd)
	defer stop()
	if err := o.check(); err != nil {
		return err
	}
	keys, err := encryption.OpenIn("", o.encryption)
	if err != nil {
		return err
	}
	defer keys.Close()
	options := backup.RestoreOptions{Next: o.next, Software: software, FoldOf: foldBy(keys), AcceptUnrecorded: o.accept}
	if options.To, err = o.target(); err != nil {
		return err
	}
	if options.Identities, err = o.readIdentities(); err != nil {
		return err
	}
	allowed, err := o.readSigners()
	if err != nil {
		return err
	}
	place, err := buckets.Open(ctx, name)
	if err != nil {
		return err
	}
	defer place.Close()
	line := newProgressLine(cmd, o.Quiet, "Restoring")
	options.Store, options.Progress = place, line.show
	warn := func(format string, args ...any) { line.end(); fmt.Fprintf(cmd.ErrOrStderr(), format+"\n", args...) }
	options.Patience = o.patience(warn)
	found, err := backup.List(ctx, place, options.Patience)
	if err != nil {
		return err
	}
	if options.Manifest, err = backup.Choose(found, o.backup, o.log); err != nil {
		return err
	}
	if err := checkSignature(ctx, place, options.Patience, options.Manifest, allowed); err != nil {
		return err
	}
	if options.Issued, err = newestRevision(ctx, place, options.Patience, found, options.Manifest.Log, allowed, warn); err != nil {
		return err
	}
	if options.Dir, err = filepath.Abs(o.dataDir); err != nil {
		return err
	}
	options.Marker, options.Ignored = filepath.Join(options.Dir, datadir.Unfinished), []string{datadir.Lock}
	if err := options.CheckFolder(); err != nil { // before it is locked
		return err
	}
	dir, err := datadir.Open(o.dataDir, datadir.Options{Software: software, CheckDatabase: o.checkDatabase, Restoring: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	options.Dir, options.Marker, options.OpenStore = dir.Path(), dir.Path(datadir.Unfinished), dir.NewLogStore
	options.Floors = dir.Path(retention.Folder, retention.FloorsFile)
	options.Complete = func(r *backup.Restored) error { return errors.Join(makeKeys(dir, r.Keys), dir.Claim(r.Log)) }
	r, err := backup.Restore(ctx, options)
	line.end()
	if err != nil {
		return err
	}
	return o.print(cmd, options.Manifest, r, dir.Path())
}

// newestRevision returns the newest revision of all backups of a log; of those that an allowed key has signed, if there are such keys:
// nobody else decides where the new epoch begins. warn is told of a newer one that no key has signed.
func newestRevision(ctx context.Context, place stores.Store, patience stores.Patience, found []backup.Found, log string, allowed *signers.File, warn func(string, ...any)) (uint64, error) {
	var all []*backup.Manifest
	for _, f := range found {
		if f.Manifest != nil && f.Manifest.Log == log {
			all = append(all, f.Manifest)
		}
	}
	slices.SortFunc(all, func(a, b *backup.Manifest) int { return cmp.Compare(b.Head.Revision, a.Head.Revision) })
	for _, m := range all {
		err := checkSignature(ctx, place, patience, m, allowed)
		if err == nil {
			return m.Head.Revision, nil
		}
		if !errors.As(err, new(*backup.SignatureError)) {
			return 0, err
		}
		warn("Revision %d of it does not count for where the new epoch begins: %v. If the backup is yours, give --next.", m.Head.Revision, err)
	}
	return 0, nil
}

// target returns the moment of --to.
func (o *restoreOptions) target() (backup.Target, error) {
	if o.to == "" {
		return backup.Target{}, nil
	}
	moment, err := client.ParseMoment(o.to, time.Now())
	return backup.Target{Revision: moment.Revision(), Time: moment.At}, err
}

// makeKeys makes keys if the backup has none. The server would take their absence for a loss.
func makeKeys(dir *datadir.Dir, restored bool) error {
	if restored {
		return nil
	}
	if err := os.MkdirAll(dir.Path("pki"), 0o700); err != nil {
		return err
	}
	_, err := pki.LoadAuthority(dir.Path("pki"))
	return errors.Join(err, tokens.MakeKey(dir.Path("pki", "sa.key")))
}

func (o *restoreOptions) print(cmd *cobra.Command, m *backup.Manifest, r *backup.Restored, dir string) error {
	result := restored{Log: m.Log, Backup: m.Name(), Revision: r.At.Revision, Time: r.Time, Next: r.Next, Keys: r.Keys, LeftOut: r.LeftOut, DataDir: dir}
	return o.Print(cmd, result, func(out *show.Output) error {
		fmt.Fprintf(out, "%s has the log of backup %s up to revision %d, of %s.\n", dir, m.Name(), r.At.Revision, out.Time(r.Time))
		fmt.Fprintf(out, "New revisions begin with %d; those between are lost.\n", r.Next)
		if !r.Keys {
			fmt.Fprintf(out, "The backup has no keys, so new ones were made: kubeconfigs, client certificates and tokens of service accounts made so far are refused. The server writes a new %s/admin.kubeconfig.\n", dir)
			if r.Level >= eventlog.SealingLevel {
				fmt.Fprintf(out, "Secrets are encrypted: before the start, copy pki/encryption.yaml of the former server to %s/pki, and give its --encryption-provider-config, if it had one.\n", dir)
			}
		}
		if r.LeftOut > 0 {
			fmt.Fprintf(out, "The checkpoint of revision %d was left out, because the log has no record of it. The first start reads the whole log, which takes longer.\n", r.LeftOut)
		}
		if len(r.Erased) > 0 {
			fmt.Fprintf(out, "Retention had erased versions of %s of that time: objects of these kinds may be missing.\n", strings.Join(r.Erased, ", "))
		}
		o.Hint(cmd, "Start it: stele serve --data-dir %s", usage.Quote(dir))
		return nil
	}, nil)
}
