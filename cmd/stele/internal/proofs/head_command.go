package proofs

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/mod/sumdb/note"
	"stele.dev/stele/cmd/stele/internal/usage"
	"stele.dev/stele/eventlog/proof"
)

// headOptions are the flags of checkpoint.
type headOptions struct {
	serverFlags
	sign     string
	previous string
	file     string
	size     uint64
}

func headCommand() *cobra.Command {
	o := &headOptions{}
	cmd := &cobra.Command{
		Use:   "checkpoint",
		Short: "Print a tree head: a hash of the whole log",
		Long: `Checkpoint prints the tree head of the log: the number of its batches, and a hash of all of them. Keep
heads where the server's operators cannot change them: then nobody can change the log up to there
without being found out. The format is the checkpoint of C2SP.

--sign signs the head, with a key of ` + "`stele proof keygen`" + ` that the server does not have. --previous names
the last head that was signed: the new one is signed only if the log goes on from it. The file may be
that of --file, which is then replaced.

A head ends with an event that is never forgotten, so that it can always be compared. The server adds one
if it is needed, ten at once and then one a minute; else the head is up to a minute old. --size is the size
of a head that was handed out before: others are refused.`,
		Example: `  stele proof checkpoint
  stele proof checkpoint --sign log.key --previous head.txt --file head.txt`,
		Args: usage.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd) },
	}
	o.addFlags(cmd)
	f := cmd.Flags()
	f.StringVar(&o.sign, "sign", "", "file of the key to sign with")
	f.StringVar(&o.previous, "previous", "", "file of the last head: the new one must go on from it")
	f.StringVar(&o.file, "file", "", "write to this file (default: standard output)")
	f.Uint64Var(&o.size, "size", 0, "head of the log's first so many batches, if it was handed out before (default: all)")
	for _, name := range []string{"sign", "previous", "file"} {
		_ = cmd.MarkFlagFilename(name)
	}
	cmd.ValidArgsFunction = cobra.NoFileCompletions
	return cmd
}

func (o *headOptions) run(cmd *cobra.Command) error {
	ctx, stop := usage.Interruptible(cmd)
	defer stop()
	var signer note.Signer
	if o.sign != "" {
		var err error
		if signer, err = readSigner(o.sign); err != nil {
			return err
		}
	}
	server, err := o.connect()
	if err != nil {
		return err
	}
	head, err := server.head(ctx, o.size)
	if err != nil {
		return err
	}
	if o.previous != "" {
		if err := server.goesOn(ctx, o.previous, signer, head); err != nil {
			return err
		}
	}
	text := []byte(head.Text())
	if signer != nil {
		if signer.Name() != proof.Origin(head.Log) {
			fmt.Fprintf(cmd.ErrOrStderr(), "warning: the key is named %s, the log %s\n", signer.Name(), proof.Origin(head.Log))
		}
		if text, err = head.Sign(signer); err != nil {
			return err
		}
	}
	return write(cmd, o.file, text)
}

// goesOn returns an error if a head is not one of the same log as the head in a file, later or the same. If there is
// a signer, the earlier head must be signed by it.
func (s server) goesOn(ctx context.Context, file string, signer note.Signer, head proof.TreeHead) error {
	previous, err := new(keyFlags).readHead(file)
	if err != nil {
		return err
	}
	if signer != nil {
		if err := signedBy(previous.text, signer); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
	if previous.head.Log != head.Log {
		return fmt.Errorf("%s is a head of log %v, the server has log %v", file, previous.head.Log, head.Log)
	}
	if previous.head.Size > head.Size {
		return fmt.Errorf("the server's log has %d batches and ends at revision %d, fewer than the head in %s, %d up to revision %d: what was behind is lost, or was taken away", head.Size, head.Revision, file, previous.head.Size, previous.head.Revision)
	}
	_, err = s.consistency(ctx, previous, namedHead{head.Text(), head})
	return err
}

// signedBy returns an error if a head does not have the signature that the signer would make. Signatures of Ed25519 are
// always the same for the same text.
func signedBy(head string, signer note.Signer) error {
	body := proof.Body(head)
	signed, err := note.Sign(&note.Note{Text: body}, signer)
	if err != nil {
		return err
	}
	if !strings.Contains(head, strings.TrimPrefix(string(signed), body+"\n")) {
		return fmt.Errorf("this tree head is not signed by the key of --sign, %s", signer.Name())
	}
	return nil
}

// readSigner reads a key that signs.
func readSigner(file string) (note.Signer, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	signer, err := note.NewSigner(strings.TrimSpace(string(text)))
	if err != nil {
		return nil, fmt.Errorf("%s has no key that signs notes; `stele proof keygen` makes one", file)
	}
	return signer, nil
}
