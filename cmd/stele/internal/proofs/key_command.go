package proofs

import (
	"crypto/rand"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"stele.dev/stele/cmd/stele/internal/usage"
	"stele.dev/stele/core/auth/pki"
	"stele.dev/stele/eventlog/proof"
)

func keyCommand() *cobra.Command {
	o := &serverFlags{}
	cmd := &cobra.Command{
		Use:   "keygen FILE",
		Short: "Make a key that signs tree heads",
		Long: `Keygen makes a key pair for the tree heads of the server's log, in the encoding of signed notes. It
writes the secret key to the file, and the public key to the file with .pub behind its name.

Keep the secret key on another machine than the server: whoever runs the server must not be able to sign.`,
		Example: `  stele proof keygen log.key`,
		Args:    usage.Exactly("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, stop := usage.Interruptible(cmd)
			defer stop()
			server, err := o.connect()
			if err != nil {
				return err
			}
			head, err := server.head(ctx, 0)
			if err != nil {
				return err
			}
			secret, public, err := proof.GenerateKey(rand.Reader, head.Log)
			if err != nil {
				return err
			}
			for _, file := range []string{args[0], args[0] + ".pub"} {
				if _, err := os.Lstat(file); err == nil {
					return fmt.Errorf("%s exists; name another file, or remove it if nothing was signed with it", file)
				}
			}
			if err := pki.WritePrivate(args[0], []byte(secret+"\n")); err != nil {
				return err
			}
			if err := pki.WritePrivate(args[0]+".pub", []byte(public+"\n")); err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), public)
			return err
		},
	}
	o.addFlags(cmd)
	return cmd
}
