package client_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"stele.dev/stele/cmd/stele/internal/client"
)

const kubeconfig = `apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: s, user: u}}]
clusters: [{name: s, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: u, user: {USER}}]
`

// A folder that somebody else wrote can have a stele-data/admin.kubeconfig.
func TestOnlyTheKubeconfigOfOnesOwnServerIsUsedUnasked(t *testing.T) {
	for name, c := range map[string]struct {
		user, want string
		mode       os.FileMode
	}{
		"a server's":              {"client-certificate-data: AA==, client-key-data: AA==", "", 0o600},
		"readable by others":      {"token: x", "other users may read or write it", 0o644},
		"writable by a group":     {"token: x", "other users may read or write it", 0o620},
		"with an exec plugin":     {"exec: {apiVersion: client.authentication.k8s.io/v1, command: ./spy, interactiveMode: Never}", "has an exec plugin", 0o600},
		"with an auth-provider":   {"auth-provider: {name: gcp}", "has an auth-provider", 0o600},
		"with a token of a file":  {"tokenFile: /etc/passwd", "has a tokenFile", 0o600},
		"with a key in a file":    {"client-key: k, client-certificate: c", "has a certificate in another file", 0o600},
		"with a certificate only": {"client-certificate: c", "has a certificate in another file", 0o600},
	} {
		t.Run(name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			t.Setenv("KUBECONFIG", "")
			file := filepath.Join("stele-data", "admin.kubeconfig")
			if err := os.Mkdir("stele-data", 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, []byte(strings.Replace(kubeconfig, "USER", c.user, 1)), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(file, c.mode); err != nil {
				t.Fatal(err)
			}
			_, _, err := new(client.Flags).Config()
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "--kubeconfig")) {
				t.Errorf("the error is %v, and should have %q", err, c.want)
			}
			if c.mode == 0o644 {
				if _, _, err := (&client.Flags{Kubeconfig: file}).Config(); err != nil {
					t.Errorf("a file that is named is used: %v", err)
				}
			}
		})
	}
}

// A shell completes words in whatever folder its user stands.
func TestCompletionUsesNoKubeconfigUnasked(t *testing.T) {
	t.Chdir(t.TempDir())
	t.Setenv("KUBECONFIG", "")
	if err := os.Mkdir("stele-data", 0o700); err != nil {
		t.Fatal(err)
	}
	text := strings.Replace(kubeconfig, "USER", "token: x", 1)
	if err := os.WriteFile(filepath.Join("stele-data", "admin.kubeconfig"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	flags, cmd := new(client.Flags), new(cobra.Command)
	flags.AddFlags(cmd)
	complete, _ := cmd.GetFlagCompletionFunc("context")
	if got, _ := complete(cmd, nil, ""); len(got) > 0 {
		t.Errorf("offers %v", got)
	}
	t.Setenv("KUBECONFIG", filepath.Join("stele-data", "admin.kubeconfig"))
	if got, _ := complete(cmd, nil, ""); len(got) != 1 {
		t.Errorf("with $KUBECONFIG it offers %v", got)
	}
}
