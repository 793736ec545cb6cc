package delivery_test

import (
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"stele.dev/stele/cmd/stele/internal/delivery"
)

// The list of processes is for everybody on the machine.
func TestTheLoginOfAURLIsNoArgumentOfAProcess(t *testing.T) {
	const token = "glpat-0123456789abcdef"
	for name, c := range map[string]struct{ login, file, user, password string }{
		"a password":                         {"ci:" + token + "@", "", "ci", token},
		"a password, and a file":             {"ci:" + token + "@", "https://ci:other@HOST\n", "ci", token},
		"a token as the user":                {token + "@", "", token, ""},
		"a name, and a file":                 {"ci@", "https://ci:" + token + "@HOST\n", "ci", token},
		"a file":                             {"", "https://ci:" + token + "@HOST\n", "ci", token},
		"a password with special characters": {"ci:a%2Fb%40c" + token + "@", "", "ci", "a/b@c" + token},
	} {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			var shown, logins []string
			s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				mu.Lock()
				defer mu.Unlock()
				user, password, ok := r.BasicAuth()
				if !ok || user != c.user || password != c.password { // git first tries the user without a password
					w.Header().Set("WWW-Authenticate", `Basic realm="git"`)
					w.WriteHeader(http.StatusUnauthorized)
					return
				}
				logins = append(logins, user+" "+password)
				lines, _ := filepath.Glob("/proc/[0-9]*/cmdline") // of git and its children, which wait for this answer
				for _, line := range lines {
					if text, _ := os.ReadFile(line); strings.Contains(string(text), token) {
						shown = append(shown, strings.ReplaceAll(string(text), "\x00", " "))
					}
				}
				w.WriteHeader(http.StatusNotFound)
			}))
			defer s.Close()
			host := strings.TrimPrefix(s.URL, "https://")
			ca := filepath.Join(t.TempDir(), "ca.crt")
			if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}), 0o600); err != nil {
				t.Fatal(err)
			}
			t.Setenv("GIT_SSL_CAINFO", ca)
			g := &delivery.Git{Folder: t.TempDir(), Timeout: time.Minute, MaxBytes: 1 << 20}
			if c.file != "" {
				g.Credentials = filepath.Join(t.TempDir(), "credentials")
				if err := os.WriteFile(g.Credentials, []byte(strings.ReplaceAll(c.file, "HOST", host)), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if err := g.Parse("https://" + c.login + host + "/policy.git#main"); err != nil {
				t.Fatal(err)
			}
			_, err := g.Pull(t.Context(), "")
			if err == nil || strings.Contains(err.Error(), token) || strings.Contains(g.String(), token) {
				t.Errorf("the source is %s, its error %v", g, err)
			}
			mu.Lock()
			defer mu.Unlock()
			if len(logins) == 0 || logins[0] != c.user+" "+c.password {
				t.Errorf("git logs in as %q: %v", logins, err)
			}
			if len(shown) > 0 {
				t.Errorf("processes show the token: %q", shown)
			}
		})
	}
}
