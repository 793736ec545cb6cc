// Package proofs has the subcommands of `stele log` for auditors: they make and sign tree heads, ask a server for
// proofs, and check heads and proofs without one. docs/PROOF.md describes what they prove.
package proofs

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/mod/sumdb/note"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"stele.dev/stele/cmd/stele/internal/client"
	"stele.dev/stele/cmd/stele/internal/usage"
	"stele.dev/stele/core/auth/pki"
	"stele.dev/stele/core/keep/logapi"
	"stele.dev/stele/eventlog/proof"
	"stele.dev/stele/eventlog/verify"
)

// Commands returns the subcommands.
func Commands(check DatabaseCheck) []*cobra.Command {
	return []*cobra.Command{headCommand(), keyCommand(), proveCommand(), checkCommand(), verifyCommand(check)}
}

// incomparable gives an error its exit code if it says that a head cannot be compared.
func incomparable(err error) error {
	if errors.As(err, new(*verify.IncomparableError)) || apierrors.IsResourceExpired(err) {
		return usage.Exit(usage.ExitIncomparable, err)
	}
	return err
}

// serverFlags are the flags of commands that ask a server.
type serverFlags struct{ client.Flags }

func (o *serverFlags) addFlags(cmd *cobra.Command) {
	o.Flags.AddFlags(cmd)
	o.AddIdentity(cmd)
	_ = cmd.Flags().MarkHidden("namespace")
}

// server is the part of a server that makes proofs.
type server struct{ config *rest.Config }

func (o *serverFlags) connect() (server, error) {
	config, _, err := o.Config()
	return server{config}, err
}

// head reads the tree head of a size, 0 for the newest.
func (s server) head(ctx context.Context, size uint64) (proof.TreeHead, error) {
	text, err := client.Read(ctx, s.config, logapi.HeadPath, sizes("size", size))
	if err != nil {
		return proof.TreeHead{}, err
	}
	head, err := proof.ParseHead(string(text))
	if err != nil {
		return proof.TreeHead{}, fmt.Errorf("%s: %w", logapi.HeadPath, err)
	}
	return head, nil
}

// consistency reads the proof that the tree of one head begins with that of an earlier one, and checks it. The texts
// of the heads become part of the proof. The error wraps [proof.ErrInvalid] if the server's log does not go on from
// the earlier head, and it has the exit code [usage.ExitIncomparable] if the server cannot say.
func (s server) consistency(ctx context.Context, from, to namedHead) (*proof.Consistency, error) {
	query := sizes("from", from.head.Size)
	query.Set("to", strconv.FormatUint(to.head.Size, 10))
	document, err := client.Read(ctx, s.config, logapi.ConsistencyPath, query)
	if err != nil {
		return nil, incomparable(err)
	}
	p, err := proof.DecodeConsistency(document)
	if err != nil {
		return nil, err
	}
	// The hashes of forgotten batches, which lead to the root, may be made up. The newest batch of the head is not.
	if own, err := proof.ParseHead(proof.Body(p.From)); err != nil || from.head.Revision > 0 && own != from.head {
		return nil, fmt.Errorf("%w: the server's log does not go on from the head of size %d: its own head of that size is another", proof.ErrInvalid, from.head.Size)
	}
	p.From, p.To = from.text, to.text
	if err := p.Verify(from.head, to.head); err != nil {
		return nil, fmt.Errorf("the server's log does not go on from the head of size %d: %w", from.head.Size, err)
	}
	return p, nil
}

// namedHead is a head, and its text with signatures.
type namedHead struct {
	text string
	head proof.TreeHead
}

// sizes returns a query with one number, without it if it is 0.
func sizes(name string, n uint64) url.Values {
	if n == 0 {
		return url.Values{}
	}
	return url.Values{name: {strconv.FormatUint(n, 10)}}
}

// keyFlags are the keys that must have signed heads.
type keyFlags struct{ keys []string }

func (o *keyFlags) addFlags(cmd *cobra.Command) {
	cmd.Flags().StringArrayVar(&o.keys, "key", nil, "public key that must have signed the heads, or a file with it; may be repeated if any of several will do")
	_ = cmd.MarkFlagFilename("key")
}

// verifiers returns the keys of the flags.
func (o *keyFlags) verifiers() ([]note.Verifier, error) {
	var all []note.Verifier
	for _, key := range o.keys {
		v, err := note.NewVerifier(key)
		if err != nil {
			text, fileErr := os.ReadFile(key)
			if fileErr != nil {
				return nil, fmt.Errorf("--key %s: neither a public key nor a file that can be read: %w", key, fileErr)
			}
			if v, err = note.NewVerifier(strings.TrimSpace(string(text))); err != nil {
				return nil, fmt.Errorf("--key %s: the file has no public key of a note; `stele proof keygen` makes one", key)
			}
		}
		all = append(all, v)
	}
	return all, nil
}

// readHead reads a head from a file. With keys one of them must have signed it.
func (o *keyFlags) readHead(file string) (namedHead, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return namedHead{}, err
	}
	head, err := o.openHead(string(raw))
	if err != nil {
		return namedHead{}, fmt.Errorf("%s: %w", file, err)
	}
	return namedHead{string(raw), head}, nil
}

// ReadHead reads a head from a file. With public keys, or files of them, one of them must have signed it.
func ReadHead(file string, keys []string) (proof.TreeHead, error) {
	head, err := (&keyFlags{keys}).readHead(file)
	return head.head, err
}

// openHead reads a head. With keys one of them must have signed it.
func (o *keyFlags) openHead(text string) (proof.TreeHead, error) {
	keys, err := o.verifiers()
	if err != nil {
		return proof.TreeHead{}, err
	}
	if len(keys) == 0 {
		return proof.ParseHead(proof.Body(text))
	}
	if proof.Body(text) == text {
		return proof.TreeHead{}, errors.New("this tree head is not signed, so --key cannot check it; sign heads by `stele proof checkpoint --sign`")
	}
	return proof.OpenHead([]byte(text), keys...)
}

// write writes a result to a file, or to the output if the name is empty. Files that exist are replaced as a whole.
func write(cmd *cobra.Command, file string, text []byte) error {
	if file == "" {
		_, err := cmd.OutOrStdout().Write(text)
		return err
	}
	return pki.WritePrivate(file, text)
}
