package backup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"stele.dev/stele/cmd/stele/internal/buckets"
	"stele.dev/stele/cmd/stele/internal/client"
	"stele.dev/stele/cmd/stele/internal/show"
	"stele.dev/stele/cmd/stele/internal/signers"
	"stele.dev/stele/cmd/stele/internal/usage"
	"stele.dev/stele/core/commit"
	"stele.dev/stele/core/keep/encryption"
	"stele.dev/stele/core/keep/logapi"
	"stele.dev/stele/core/keep/retention"
	"stele.dev/stele/core/run/plane/datadir"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/archive"
	"stele.dev/stele/eventlog/backup"
	"stele.dev/stele/projections/checkpoint"
)

// createOptions are the flags of backup create.
type createOptions struct {
	client.Flags
	placeFlags
	dataDir        string
	keys           bool
	encryption     string
	recipients     []string
	recipientsFile string
	signKey        string
	checkDatabase  CheckDatabase
}

func createCommand(check CheckDatabase) *cobra.Command {
	o := &createOptions{checkDatabase: check}
	cmd := &cobra.Command{
		Use:   "create PLACE",
		Short: "Make a backup, while the server runs or is stopped",
		Long: `Create copies the log of a control plane to a place: all objects, their history and the policies,
up to the newest revision. It sends only files that the place does not have. If it is interrupted, the
next create uses the files that were sent. Each file is read back after it was sent, and compared.

The log is read from the server of the kubeconfig. You need permission to get the nonResourceURLs
/log/*, and so to read everything that was ever written. With --data-dir it is read from the folder
if the server is stopped, and else from its server.

Keys are not in the log: the certificate authority, and the key of service account tokens. Without
them a restored server makes new keys, and refuses every kubeconfig and token made so far. Keys are
added from --data-dir if the backup is encrypted, or if --keys is given.

With --sign-key the backup is signed with an SSH key, and verify and restore accept only signed
backups if they have --signers. So nobody who can write to the place can put another backup there.

With --recipient the backup is encrypted for age recipients; age-keygen makes a pair of recipient
and identity. Keep the identity elsewhere: nothing can be restored without it.

` + buckets.Help,
		Example: `  stele backup create /var/backups/stele
  stele backup create s3://backups/stele?region=eu-central-1 --data-dir /var/lib/stele --recipients-file backup.pub
  stele backup create ./before-upgrade.tar --data-dir ./stele-data --keys`,
		Args:              usage.Exactly("PLACE"),
		ValidArgsFunction: completePlaces,
		RunE:              func(cmd *cobra.Command, args []string) error { return o.run(cmd, args[0]) },
	}
	o.Flags.AddFlags(cmd)
	_ = cmd.Flags().MarkHidden("namespace")
	o.placeFlags.addFlags(cmd, "json", "yaml", "name")
	f := cmd.Flags()
	f.StringVar(&o.dataDir, "data-dir", "", "data directory of the control plane: for keys, and for the log of a stopped server")
	f.StringVar(&o.encryption, "encryption-provider-config", "", "`FILE` with the keys under which the server encrypts what it stores, if --data-dir is that of a stopped server")
	f.BoolVar(&o.keys, "keys", false, "add the keys in --data-dir, although the backup is not encrypted")
	f.StringArrayVar(&o.recipients, "recipient", nil, "encrypt for this age recipient, age1…; may be repeated")
	f.StringVar(&o.recipientsFile, "recipients-file", "", "encrypt for the age recipients in this file")
	f.StringVar(&o.signKey, "sign-key", "", "`FILE` of the private SSH key that signs the backup")
	_ = cmd.MarkFlagFilename("sign-key")
	_ = cmd.MarkFlagDirname("data-dir")
	_ = cmd.MarkFlagFilename("recipients-file")
	_ = cmd.RegisterFlagCompletionFunc("recipient", cobra.NoFileCompletions)
	return cmd
}

func (o *createOptions) run(cmd *cobra.Command, name string) (err error) {
	ctx, stop := usage.Interruptible(cmd)
	defer stop()
	if err := o.placeFlags.check(); err != nil {
		return err
	}
	options := backup.CreateOptions{By: software}
	if options.Recipients, err = o.parseRecipients(); err != nil {
		return err
	}
	if o.signKey != "" {
		key, err := signers.ReadKey(o.signKey)
		if err != nil {
			return fmt.Errorf("--sign-key: %w", err)
		}
		options.Sign = func(manifest []byte) ([]byte, error) { return key.Sign(manifest, signatureNamespace) }
		options.Verify = func(manifest, signature []byte) error { return key.Verify(manifest, signature, signatureNamespace) }
	}
	if options.Keys, err = o.readKeys(cmd, len(options.Recipients) > 0); err != nil {
		return err
	}
	line := newProgressLine(cmd, o.Quiet, "Copying the log")
	say := func(format string, args ...any) {
		line.end()
		fmt.Fprintf(cmd.ErrOrStderr(), format+"\n", args...)
	}
	options.Patience, options.Progress, options.Warn = o.patience(say), line.show, func(err error) { say("%v", err) }
	source, closeSource, err := o.source(ctx, cmd)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeSource()) }()
	place, err := buckets.Create(ctx, name)
	if err != nil {
		return err
	}
	defer place.Close()
	options.Source, options.Store = source, place
	m, err := backup.Create(ctx, options)
	line.end()
	if err == nil {
		err = place.Commit()
	}
	if err != nil {
		return err
	}
	return o.print(cmd, m, name)
}

func (o *createOptions) print(cmd *cobra.Command, m *backup.Manifest, place string) error {
	text := func(out *show.Output) error {
		fmt.Fprintf(out, "%s has the log up to revision %d: %s, of which %s are new.\n", m.Name(), m.Head.Revision, show.Bytes(m.Size()), show.Bytes(m.NewBytes))
		if len(m.Keys) == 0 {
			o.Hint(cmd, "%s", "Keys are not in it: a restored server makes new ones, refuses kubeconfigs and tokens made so far, and starts with Secrets only if it has a copy of pki/encryption.yaml. Give --data-dir, with a recipient or --keys, to add them.")
		}
		return nil
	}
	return o.Print(cmd, m, text, func(out *show.Output) error {
		_, err := fmt.Fprintln(out, m.Name())
		return err
	})
}

// parseRecipients returns the recipients of the flags.
func (o *createOptions) parseRecipients() ([]backup.Recipient, error) {
	var recipients []backup.Recipient
	for _, text := range o.recipients {
		parsed, err := backup.ParseRecipients(strings.NewReader(text))
		if err != nil || len(parsed) == 0 {
			return nil, usage.Errorf("--recipient is not an age recipient, which begins with age1; `age-keygen -y FILE` prints that of an identity")
		}
		recipients = append(recipients, parsed...)
	}
	if o.recipientsFile == "" {
		return recipients, nil
	}
	parsed, err := parseFile(o.recipientsFile, backup.ParseRecipients)
	if err == nil && len(parsed) == 0 {
		err = fmt.Errorf("%s has no recipients", o.recipientsFile)
	}
	return append(recipients, parsed...), err
}

// readKeys returns the keys of the data directory that belong into the backup.
func (o *createOptions) readKeys(cmd *cobra.Command, encrypted bool) ([]backup.KeyFile, error) {
	switch {
	case o.dataDir == "" && o.keys:
		return nil, usage.Errorf("--keys needs --data-dir, the folder that has them")
	case o.dataDir == "" || !encrypted && !o.keys:
		return nil, nil
	case !encrypted:
		fmt.Fprintln(cmd.ErrOrStderr(), "Warning: the keys are in the backup and it is not encrypted. Whoever can read it can act as any user; give --recipient to encrypt it.")
	}
	entries, err := os.ReadDir(filepath.Join(o.dataDir, "pki"))
	if err != nil {
		return nil, err
	}
	var keys []backup.KeyFile
	for _, e := range entries {
		// The server makes its own certificate and the administrator's again.
		if !e.Type().IsRegular() || strings.HasPrefix(e.Name(), ".") || strings.HasPrefix(e.Name(), "server.") || strings.HasPrefix(e.Name(), "admin.") {
			continue
		}
		content, err := os.ReadFile(filepath.Join(o.dataDir, "pki", e.Name()))
		if err != nil {
			return nil, err
		}
		keys = append(keys, backup.KeyFile{Name: "pki/" + e.Name(), Content: content})
	}
	if !slices.ContainsFunc(keys, func(k backup.KeyFile) bool { return k.Name == "pki/ca.key" }) {
		return nil, fmt.Errorf("%s has no pki/ca.key: is it the data directory of a control plane?", o.dataDir)
	}
	return keys, nil
}

// source returns the log to back up: that of the data directory if no server has it, else that of the server.
func (o *createOptions) source(ctx context.Context, cmd *cobra.Command) (backup.Source, func() error, error) {
	if o.dataDir != "" {
		used, err := datadir.HasLog(o.dataDir)
		if err != nil {
			return nil, nil, err
		}
		if !used {
			return nil, nil, fmt.Errorf("%s is not the data directory of a control plane: it has no log.id", o.dataDir)
		}
		dir, err := datadir.Open(o.dataDir, datadir.Options{Software: software, CheckDatabase: o.checkDatabase})
		if inUse := (*datadir.InUseError)(nil); err != nil && !errors.As(err, &inUse) {
			return nil, nil, err
		}
		if err == nil {
			source, err := o.openFolder(ctx, dir)
			if err != nil {
				return nil, nil, errors.Join(err, dir.Close())
			}
			o.Hint(cmd, "No server runs on %s, so the log is read from there.", o.dataDir)
			return source, dir.Close, nil
		}
		if admin := filepath.Join(o.dataDir, "admin.kubeconfig"); o.Kubeconfig == "" && o.Context == "" {
			o.Kubeconfig = admin
		}
	}
	config, _, err := o.Config()
	if err != nil {
		return nil, nil, err
	}
	s, err := NewServer(config)
	return s, func() error { return nil }, err
}

// openFolder opens the log in a data directory, with its segments and checkpoints.
func (o *createOptions) openFolder(ctx context.Context, dir *datadir.Dir) (backup.Source, error) {
	log, err := dir.OpenLog(ctx)
	if err != nil {
		return nil, err
	}
	log.SetKeys(eventlog.LeaveSealed)
	keys, err := encryption.OpenIn(dir.Path("pki"), o.encryption)
	if err != nil {
		return nil, err
	}
	segments, err := archive.Open(archive.Options{Dir: dir.Path("segments"), Log: log.ID()})
	if err != nil {
		return nil, err
	}
	log.SetArchive(segments)
	checkpoints, err := checkpoint.Open(dir.Path("checkpoints"), nil, keys.OfLog())
	if err != nil {
		return nil, err
	}
	revisions, err := checkpoints.Revisions()
	if err != nil {
		return nil, err
	}
	for _, revision := range revisions {
		var unrecorded error
		_, err := checkpoints.Verify(ctx, revision, 0, func(info checkpoint.Info) error {
			unrecorded = commit.CheckRecorded(ctx, log, revision, info.Fold)
			if errors.Is(unrecorded, commit.ErrForged) {
				return unrecorded
			}
			return nil
		})
		if key := (*eventlog.KeyError)(nil); errors.As(err, &key) {
			return nil, fmt.Errorf("the checkpoint of revision %d: %w; give the file with the key by --encryption-provider-config", revision, err)
		}
		if err == nil && unrecorded == nil { // a bad one is not needed
			checkpoints.Record(revision)
			break
		}
	}
	return logapi.FileOptions{Log: log, Archive: segments, Checkpoints: checkpoints, Retention: dir.Path(retention.Folder)}.Source(), nil
}
