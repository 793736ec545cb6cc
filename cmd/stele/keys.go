package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"stele.dev/stele/cmd/stele/internal/usage"
	"stele.dev/stele/core/auth/pki"
	"stele.dev/stele/core/auth/tokens"
)

// keysCommand returns the command that makes the keys of a control plane before it starts.
func keysCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "keys DIR",
		Short: "Make the keys that replicas share, before the first one starts",
		Long: `Keys makes a certificate authority (ca.crt, ca.key) and a key for tokens of service accounts (sa.key) in a
folder, for --pki-dir of all replicas of a log. It keeps keys that are there, and makes no others for a
part of them. A single server needs no
such folder: it makes its own keys. Whoever has the files can be any user of the control plane.`,
		Example: `  stele keys keys
  kubectl create secret generic stele-keys --from-file=keys
  stele kubeconfig --pki-dir keys --user admin --group system:masters --server https://api.example.com --file admin.kubeconfig`,
		Args: usage.Exactly("DIR"),
		RunE: func(cmd *cobra.Command, args []string) error { return makeKeys(cmd, args[0]) },
	}
}

// makeKeys makes the keys in a folder that are missing.
func makeKeys(cmd *cobra.Command, dir string) error {
	unlock, err := pki.Lock(dir)
	if err != nil {
		return err
	}
	defer unlock()
	if exists(filepath.Join(dir, "ca.key")) && !exists(filepath.Join(dir, "ca.crt")) {
		return fmt.Errorf("%s has ca.key without ca.crt; put the certificate back, or remove the key if nothing uses it", dir)
	}
	for _, name := range []string{"ca.crt", "sa.key"} {
		file := filepath.Join(dir, name)
		verb := "kept"
		if !exists(file) {
			verb = "made"
		}
		if name == "sa.key" {
			if err = tokens.MakeKey(file); err == nil {
				_, err = tokens.OpenKeys(file, nil)
			}
		} else {
			_, err = pki.LoadAuthority(dir)
		}
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(cmd.OutOrStdout(), "%s %s\n", verb, file); err != nil {
			return err
		}
	}
	return nil
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
