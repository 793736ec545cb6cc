package backup_test

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/json"
	"encoding/pem"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"
	"stele.dev/stele/cmd/stele/internal/usage"
	"stele.dev/stele/eventlog/backup"
)

// newKey writes a private SSH key, and returns its file and its line among allowed signers.
func newKey(t *testing.T, namespaces string) (file, line string) {
	t.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	block, err := ssh.MarshalPrivateKey(private, "")
	if err != nil {
		t.Fatal(err)
	}
	key, err := ssh.NewPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	file = filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
		t.Fatal(err)
	}
	return file, "nightly namespaces=\"" + namespaces + "\" " + string(ssh.MarshalAuthorizedKey(key))
}

// Who can write to the place, and has no key, can neither change a signed backup nor put another one in its place.
func TestOnlySignedBackupsAreBelieved(t *testing.T) {
	key, line := newKey(t, "backup@stele.dev")
	signers := filepath.Join(t.TempDir(), "signers")
	allow := func(line string) {
		t.Helper()
		if err := os.WriteFile(signers, []byte(line), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	allow(line)
	data := filepath.Join(t.TempDir(), "data")
	if _, err := try(t, "restore", filepath.Join(golden, "batches"), "--data-dir", data); err != nil {
		t.Fatal(err)
	}
	place := t.TempDir()
	create := func(flags ...string) {
		t.Helper()
		if said, err := try(t, append([]string{"create", place, "--data-dir", data}, flags...)...); err != nil {
			t.Fatal(said, err)
		}
	}
	// check verifies and restores, and wants an error that says this; "" for none.
	check := func(want string) {
		t.Helper()
		said, err := try(t, "verify", place, "--signers", signers)
		if want == "" && err != nil || want != "" && (usage.ExitCode(err) != 1 || !strings.Contains(said, want)) {
			t.Errorf("verify: %s, %v; want %q", said, err, want)
		}
		to := filepath.Join(t.TempDir(), "restored")
		said, err = try(t, "restore", place, "--data-dir", to, "--signers", signers)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("restore: %s, %v; want %q", said, err, want)
		}
		if _, err := os.Stat(to); want != "" && err == nil {
			t.Error("a refused restore has made the folder")
		}
	}
	create("--sign-key", key)
	check("")
	signatures, err := filepath.Glob(filepath.Join(place, "*", "backups", "*.json.sig"))
	if err != nil || len(signatures) != 1 {
		t.Fatal(signatures, err)
	}
	signature, err := os.ReadFile(signatures[0])
	if err != nil {
		t.Fatal(err)
	}

	other, otherLine := newKey(t, "backup@stele.dev")
	allow(otherLine)
	check("which " + signers + " does not allow")
	allow(strings.Replace(line, "backup@", "policy@", 1))
	check("allows for policy@stele.dev only")
	allow(line)

	create() // a newer one, without a signature
	check("it is not signed; `stele backup create --sign-key` signs new ones")
	manifests, err := filepath.Glob(filepath.Join(place, "*", "backups", "*.json"))
	if err != nil || len(manifests) != 2 {
		t.Fatal(manifests, err)
	}
	if err := os.WriteFile(manifests[1]+".sig", signature, 0o600); err != nil { // that of the older one
		t.Fatal(err)
	}
	check("does not fit")
	create("--sign-key", other)
	check("does not allow")
	if _, err := try(t, "verify", place, "--signers", signers+".none"); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("%v", err)
	}
	if said, err := try(t, "verify", place); err != nil {
		t.Errorf("without --signers: %s, %v", said, err)
	}
	if _, err := try(t, "create", place, "--data-dir", data, "--sign-key", signers); err == nil || !strings.Contains(err.Error(), "is no private SSH key") {
		t.Errorf("%v", err)
	}
}

// Where the new epoch begins is decided by signed backups alone: revisions only grow, so a forged one could use them up for ever.
func TestOnlySignedBackupsSayWhereAnEpochBegins(t *testing.T) {
	key, line := newKey(t, "backup@stele.dev")
	signers := filepath.Join(t.TempDir(), "signers")
	if err := os.WriteFile(signers, []byte(line), 0o600); err != nil {
		t.Fatal(err)
	}
	place, far := t.TempDir(), strconv.FormatUint(1<<62, 10)
	next := func(from, data string, flags ...string) float64 {
		t.Helper()
		said, err := try(t, append([]string{"restore", from, "--data-dir", data, "-o", "json"}, flags...)...)
		if err != nil {
			t.Fatal(said, err)
		}
		var restored struct{ Next float64 }
		if err := json.Unmarshal([]byte(said), &restored); err != nil {
			t.Fatal(err)
		}
		return restored.Next
	}
	add := func(data string, flags ...string) (name string) {
		t.Helper()
		said, err := try(t, append([]string{"create", place, "--data-dir", data, "-o", "name"}, flags...)...)
		if err != nil {
			t.Fatal(said, err)
		}
		return strings.TrimSpace(said)
	}
	dir := t.TempDir()
	want := next(filepath.Join(golden, "batches"), filepath.Join(dir, "ours")) + 1 + backup.DefaultGap
	signed := add(filepath.Join(dir, "ours"), "--sign-key", key)
	next(filepath.Join(golden, "batches"), filepath.Join(dir, "theirs"), "--next", far)
	add(filepath.Join(dir, "theirs"))

	if got := next(place, filepath.Join(dir, "restored"), "--backup", signed, "--signers", signers); got != want {
		t.Errorf("the new epoch begins at revision %.0f, want %.0f", got, want)
	}
	if got := next(place, filepath.Join(dir, "believed"), "--backup", signed); got < 1<<62 {
		t.Errorf("without --signers the new epoch begins at revision %.0f, below one that may have been issued", got)
	}
}
