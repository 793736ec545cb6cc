// Package backup has the commands that make, list, verify and restore backups of a control plane's log. Package
// eventlog/backup does the work; this package connects it with servers, data directories and places.
package backup

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"filippo.io/age"
	"github.com/spf13/cobra"
	"stele.dev/stele/cmd/stele/internal/buckets"
	"stele.dev/stele/cmd/stele/internal/build"
	"stele.dev/stele/cmd/stele/internal/show"
	"stele.dev/stele/cmd/stele/internal/signers"
	"stele.dev/stele/cmd/stele/internal/usage"
	"stele.dev/stele/core/keep/encryption"
	"stele.dev/stele/eventlog/backup"
	"stele.dev/stele/eventlog/backup/stores"
	"stele.dev/stele/projections/checkpoint"
)

// software is what manifests and new logs say about this program.
var software = "stele " + build.Version

// signatureNamespace is the namespace of signatures of backups, for which a line of allowed signers must allow a key.
const signatureNamespace = "backup@stele.dev"

// CheckDatabase checks etcd's database before etcd opens it.
type CheckDatabase func(ctx context.Context, file string) error

// Command returns the command `backup`.
func Command(check CheckDatabase, readHead ReadHead) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "backup",
		Short: "Back up a control plane, and restore it",
		Long: `Backup copies the log of a control plane to another place, and makes a data directory of such a
copy. A backup is consistent at one revision, and is made while the server runs. A place keeps
many backups; each sends only what the place does not have.

` + buckets.Help,
		Example: `  stele backup create /var/backups/stele
  stele backup list /var/backups/stele
  stele backup verify /var/backups/stele
  stele backup restore /var/backups/stele --data-dir ./restored`,
	}
	cmd.AddCommand(createCommand(check), listCommand(), verifyCommand(readHead), restoreCommand(check))
	return cmd
}

// foldBy returns what reads the file of a checkpoint, with the keys under which a part of it is encrypted; nil for none.
func foldBy(keys *encryption.Keys) backup.FoldOf {
	return func(ctx context.Context, file io.ReadCloser) ([32]byte, error) {
		info, err := checkpoint.InfoOf(ctx, file, keys.OfLog())
		return info.Fold, err
	}
}

// placeFlags are the flags of all commands: for how long a place is asked.
type placeFlags struct {
	show.OutputFlags
	attempts int
	stall    time.Duration
}

func (o *placeFlags) addFlags(cmd *cobra.Command, formats ...string) {
	o.OutputFlags.AddFlags(cmd, formats...)
	f := cmd.Flags()
	f.IntVar(&o.attempts, "attempts", 5, "how often an operation of the place is tried before the command fails")
	usage.DurationVar(f, &o.stall, "stall-timeout", time.Minute, "how long an operation may make no progress before it is tried again")
}

func (o *placeFlags) check() error {
	if o.attempts < 1 {
		return usage.Errorf("--attempts %d: use a number above 0", o.attempts)
	}
	if o.stall <= 0 {
		return usage.Errorf("--stall-timeout %s: use a duration above 0", o.stall)
	}
	return nil
}

func (o *placeFlags) patience(say func(string, ...any)) stores.Patience {
	return stores.Patience{Attempts: o.attempts, Stall: o.stall, Report: func(err error) { say("%v", err) }}
}

// chooseFlags select a backup of a place.
type chooseFlags struct {
	backup, log string
	identities  []string
	signers     string
}

func (o *chooseFlags) addFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&o.backup, "backup", "", "`NAME` of the backup, see `stele backup list` (default: the newest)")
	f.StringVar(&o.log, "log", "", "`ID` of the log, or its beginning, if the place has backups of several")
	f.StringArrayVar(&o.identities, "identity", nil, "`FILE` of age identities that decrypt the backup; may be repeated")
	f.StringVar(&o.signers, "signers", "", "`FILE` of the SSH keys of which one must have signed the backup, as of git's gpg.ssh.allowedSignersFile")
	_ = cmd.MarkFlagFilename("identity")
	_ = cmd.MarkFlagFilename("signers")
	_ = cmd.RegisterFlagCompletionFunc("backup", o.completeNames)
	_ = cmd.RegisterFlagCompletionFunc("log", cobra.NoFileCompletions)
}

// completeNames offers the backups of a local place. It does not ask buckets.
func (o *chooseFlags) completeNames(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) == 0 || strings.Contains(args[0], "://") {
		return nil, usage.NoFiles
	}
	place, err := buckets.Open(cmd.Context(), args[0])
	if err != nil {
		return nil, usage.NoFiles
	}
	defer place.Close()
	found, err := backup.List(cmd.Context(), place, stores.Patience{Attempts: 1})
	var names []cobra.Completion
	for _, f := range found {
		if err == nil && f.Err == nil {
			names = append(names, cobra.CompletionWithDesc(f.Name, fmt.Sprintf("revision %d", f.Manifest.Head.Revision)))
		}
	}
	return names, usage.NoFiles
}

// readIdentities reads the files of --identity.
func (o *chooseFlags) readIdentities() ([]age.Identity, error) {
	var identities []age.Identity
	for _, name := range o.identities {
		more, err := parseFile(name, backup.ParseIdentities)
		if err != nil {
			return nil, err
		}
		identities = append(identities, more...)
	}
	return identities, nil
}

// readSigners reads the file of --signers; the result is nil without the flag.
func (o *chooseFlags) readSigners() (*signers.File, error) {
	if o.signers == "" {
		return nil, nil
	}
	return signers.Read(o.signers)
}

// checkSignature returns a [*backup.SignatureError] unless one of the allowed keys has signed the backup. A key must be allowed now: the
// time in a manifest is what its author says. Without allowed keys nothing is checked.
func checkSignature(ctx context.Context, place stores.Store, patience stores.Patience, m *backup.Manifest, allowed *signers.File) error {
	if allowed == nil {
		return nil
	}
	return backup.CheckSignature(ctx, place, patience, m, func(manifest, signature []byte) error {
		_, err := allowed.Verify(manifest, signature, signatureNamespace, time.Now())
		return err
	})
}

// parseFile parses a file. Errors name it.
func parseFile[T any](name string, parse func(io.Reader) (T, error)) (parsed T, err error) {
	f, err := os.Open(name)
	if err != nil {
		return parsed, err
	}
	defer f.Close()
	if parsed, err = parse(f); err != nil {
		return parsed, fmt.Errorf("%s: %w", name, err)
	}
	return parsed, nil
}

// completePlaces lets the shell complete the first argument as a path.
func completePlaces(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, usage.NoFiles
	}
	return nil, cobra.ShellCompDirectiveDefault
}

// progressLine shows the progress of an operation on a terminal: what is done, and how far it is. It is for one
// goroutine.
type progressLine struct {
	out   io.Writer // nil if standard error is no terminal
	what  string
	shown time.Time
}

func newProgressLine(cmd *cobra.Command, quiet bool, what string) *progressLine {
	p := &progressLine{what: what}
	if stderr := cmd.ErrOrStderr(); show.IsTerminal(stderr) && !quiet {
		p.out = stderr
	}
	return p
}

func (p *progressLine) show(progress backup.Progress) {
	if p.out == nil || time.Since(p.shown) < 100*time.Millisecond {
		return
	}
	p.shown = time.Now()
	percent := uint64(0)
	if progress.Head > 0 {
		percent = progress.Revision * 100 / progress.Head
	}
	fmt.Fprintf(p.out, "\r\x1b[K%s %d %% (revision %d of %d), %s", p.what, percent, progress.Revision, progress.Head, show.Bytes(progress.Bytes))
}

// end removes the line.
func (p *progressLine) end() {
	if p.out != nil {
		fmt.Fprint(p.out, "\r\x1b[K")
	}
}
