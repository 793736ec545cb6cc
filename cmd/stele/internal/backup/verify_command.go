package backup

import (
	"context"
	"errors"
	"fmt"

	"filippo.io/age"
	"github.com/spf13/cobra"
	"stele.dev/stele/cmd/stele/internal/buckets"
	"stele.dev/stele/cmd/stele/internal/show"
	"stele.dev/stele/cmd/stele/internal/usage"
	"stele.dev/stele/core/keep/encryption"
	"stele.dev/stele/eventlog/backup"
	"stele.dev/stele/eventlog/backup/stores"
	"stele.dev/stele/eventlog/proof"
)

// ReadHead reads a tree head from a file. One of the public keys must have signed it, if there are any.
type ReadHead func(file string, keys []string) (proof.TreeHead, error)

type verifyOptions struct {
	placeFlags
	chooseFlags
	readHead    ReadHead
	heads, keys []string
	encryption  string
	all         bool
}

func verifyCommand(readHead ReadHead) *cobra.Command {
	o := &verifyOptions{readHead: readHead}
	cmd := &cobra.Command{
		Use:   "verify PLACE",
		Short: "Read a backup back, and check all of it",
		Long: `Verify reads all files of a backup, and compares them with the checksums in its manifest. It then
follows the hash chain of the log from the first change to the last, so that no change is missing
or different, and compares the checkpoint with what the log has recorded of it. It names every file
that is missing or damaged. Without --identity it compares only the checksums of an encrypted backup.
--all reads all backups of the place.

Whoever can write to the place can replace a backup as a whole, with checksums that are right. Only
--signers finds that, if create has signed the backup, and --head, a tree head of
` + "`stele proof checkpoint`" + ` that you have kept elsewhere.

To repair a place, delete the damaged file: the next create sends it again, if the server still
has it. The exit code is 1 if something is wrong. It is 3 if nothing is wrong, but something could
not be compared: a checkpoint without a record in the log, as those of former versions, which a
restore leaves out; changes before a part that a former version has erased without a record; what
the manifest says is erased; or a head around which the log is forgotten.`,
		Example: `  stele backup verify /var/backups/stele
  stele backup verify /var/backups/stele --all
  stele backup verify s3://backups/stele?region=eu-central-1 --identity backup.key --head head.txt`,
		Args:              usage.Exactly("PLACE"),
		ValidArgsFunction: completePlaces,
		RunE:              func(cmd *cobra.Command, args []string) error { return o.run(cmd, args[0]) },
	}
	o.placeFlags.addFlags(cmd, "json", "yaml")
	o.chooseFlags.addFlags(cmd)
	f := cmd.Flags()
	f.BoolVar(&o.all, "all", false, "verify all backups of the place, and not only the newest")
	f.StringVar(&o.encryption, "encryption-provider-config", "", "`FILE` with the keys under which the server encrypts what it stores, to compare checkpoints, too")
	f.StringArrayVar(&o.heads, "head", nil, "file of a tree head that the log must agree with; may be repeated")
	f.StringArrayVar(&o.keys, "key", nil, "public key that must have signed the heads, or a file with it; may be repeated if any of several will do")
	cmd.MarkFlagsMutuallyExclusive("all", "backup")
	_ = cmd.MarkFlagFilename("head")
	_ = cmd.MarkFlagFilename("key")
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
	// NotCompared says what could not be compared.
	NotCompared []string `json:"notCompared,omitempty"`
	Heads       int      `json:"heads"` // tree heads that agree
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
	allowed, err := o.readSigners()
	if err != nil {
		return err
	}
	var heads []proof.TreeHead
	for _, file := range o.heads {
		head, err := o.readHead(file, o.keys)
		if err != nil {
			return err
		}
		heads = append(heads, head)
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
	chosen, err := backup.Choose(found, o.backup, o.log)
	if err != nil {
		return err
	}
	backups := []backup.Found{{Name: chosen.Name(), Manifest: chosen}}
	if o.all {
		backups = backups[:0]
		for _, f := range found {
			if f.Log == chosen.Log {
				backups = append(backups, f)
			}
		}
	}
	var results []verified
	for _, f := range backups {
		result := verified{Name: f.Name}
		if f.Err != nil {
			result.Problems = []string{f.Err.Error()}
		} else if err := checkSignature(ctx, place, patience, f.Manifest, allowed); errors.As(err, new(*backup.SignatureError)) {
			result.Problems = []string{err.Error()}
		} else if err != nil {
			return err
		} else if result, err = o.verify(ctx, place, f.Manifest, identities, heads, patience, line); err != nil {
			return err
		}
		results = append(results, result)
	}
	return o.answer(cmd, results)
}

// verify verifies one backup. Heads that end behind it say nothing of it, and are left out if all backups are verified.
func (o *verifyOptions) verify(ctx context.Context, place stores.Store, m *backup.Manifest, identities []age.Identity, heads []proof.TreeHead, patience stores.Patience, line *progressLine) (verified, error) {
	var of []proof.TreeHead
	for _, h := range heads {
		if !o.all || h.Revision <= m.Head.Revision {
			of = append(of, h)
		}
	}
	keys, err := encryption.OpenIn("", o.encryption)
	if err != nil {
		return verified{}, err
	}
	defer keys.Close()
	v, err := backup.Verify(ctx, backup.VerifyOptions{Store: place, Manifest: m, Identities: identities, FoldOf: foldBy(keys), Heads: of, Patience: patience, Progress: line.show})
	line.end()
	if err != nil {
		return verified{}, err
	}
	result := verified{Name: m.Name(), Revision: m.Head.Revision, Files: v.Files, Bytes: v.Bytes, Batches: v.Batches, Events: v.Events, Chain: v.Chain, Problems: []string{}}
	for _, p := range v.Problems {
		result.Problems = append(result.Problems, p.Error())
	}
	for _, revision := range v.Unrecorded {
		result.NotCompared = append(result.NotCompared, (&backup.UnrecordedError{Revision: revision}).Error()+"; a restore leaves it out")
	}
	for _, sealed := range v.Sealed {
		result.NotCompared = append(result.NotCompared, sealed.Error())
	}
	if v.Floors != nil {
		result.NotCompared = append(result.NotCompared, v.Floors.Error())
	}
	switch {
	case v.Incomparable != nil:
		result.NotCompared = append(result.NotCompared, v.Incomparable.Error())
	case len(of) > 0 && !v.Chain && len(v.Problems) == 0:
		result.NotCompared = append(result.NotCompared, "the tree heads cannot be compared: the backup is encrypted; give --identity")
	case len(v.Problems) == 0:
		result.Heads = len(of)
	}
	return result, nil
}

// answer prints the results, and returns the error that says how the program exits.
func (o *verifyOptions) answer(cmd *cobra.Command, results []verified) error {
	var document any = results
	if !o.all {
		document = results[0]
	}
	err := o.Print(cmd, document, func(out *show.Output) error {
		for _, r := range results {
			r.print(out)
		}
		return nil
	}, nil)
	if err != nil {
		return err
	}
	unknown := false
	var broken []error
	for _, r := range results {
		unknown = unknown || len(r.NotCompared) > 0
		if n := len(r.Problems); n > 0 {
			broken = append(broken, fmt.Errorf("backup %s has %s; delete these files and make a new backup, or choose another one", r.Name, usage.Count(n, "problem")))
		}
	}
	switch {
	case len(broken) > 0:
		return usage.Exit(usage.ExitFailure, errors.Join(broken...))
	case unknown:
		return usage.Exit(usage.ExitIncomparable, errors.New("nothing is wrong, but not everything could be compared"))
	}
	return nil
}

func (v verified) print(out *show.Output) {
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
	for _, what := range v.NotCompared {
		fmt.Fprintf(out, "Not compared: %s.\n", what)
	}
	if v.Heads > 0 {
		fmt.Fprintf(out, "The log is that of %s.\n", usage.Count(v.Heads, "tree head"))
	}
}
