package pushing

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/spf13/cobra"
	"golang.org/x/crypto/ssh"
	"stele.dev/stele/cmd/stele/internal/artifact"
	"stele.dev/stele/cmd/stele/internal/compiling"
	"stele.dev/stele/cmd/stele/internal/signers"
)

// TestMain lets the test binary be the child processes that compile bundles.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "policy" {
		root, policy := &cobra.Command{Use: "stele"}, &cobra.Command{Use: "policy"}
		policy.AddCommand(compiling.Command())
		root.AddCommand(policy)
		if root.Execute() != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// write writes files below a folder: names and texts.
func write(t *testing.T, dir string, files ...string) {
	t.Helper()
	for i := 0; i < len(files); i += 2 {
		file := filepath.Join(dir, files[i])
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(files[i+1]), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// newModule returns a folder with a bundle in clusters/test, and a file that the bundle does not use.
func newModule(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	write(t, dir, "cue.mod/module.cue", "module: \"test.example\"\nlanguage: version: \"v0.17.0\"\n", "other/other.cue", "package other\n", "clusters/test/bundle.cue", `package test
import "stele.dev/policy"
bundle: policy.#Bundle & {cluster: "test", teams: t: {contact: "#t", groups: ["*"], namespaces: ["*"], rbac: clusterRoles: reader: rules: r: {apiGroups: [""], resources: ["configmaps"], verbs: ["get"]}}}
`)
	return dir
}

// newRegistry starts a registry and returns the reference of a tag in it.
func newRegistry(t *testing.T) string {
	t.Helper()
	t.Setenv("HOME", t.TempDir()) // no credentials of the user
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	return server.Listener.Addr().String() + "/platform/policy:prod"
}

// publish runs the command and returns the digest that it printed.
func publish(t *testing.T, ref string, args ...string) (digest, stderr string, err error) {
	t.Helper()
	cmd := PublishCommand()
	var out, warnings bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(&warnings)
	cmd.SetArgs(append(args, ref))
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	err = cmd.ExecuteContext(t.Context())
	digest, found := strings.CutPrefix(strings.TrimSpace(out.String()), ref+"@")
	if found != (err == nil) {
		t.Errorf("printed %q, %v", out.String(), err)
	}
	return digest, warnings.String(), err
}

// published returns the manifest of a tag.
func published(t *testing.T, text string) (*artifact.Registry, *artifact.Manifest, error) {
	t.Helper()
	ref, err := artifact.ParseReference(text)
	if err != nil {
		t.Fatal(err)
	}
	r, err := artifact.Open(ref, "")
	if err != nil {
		t.Fatal(err)
	}
	m, err := r.Manifest(t.Context())
	return r, m, err
}

func TestABundleIsPublished(t *testing.T) {
	dir, ref := newModule(t), newRegistry(t)
	bundle := filepath.Join(dir, "clusters", "test")
	one, _, err := publish(t, ref, bundle)
	if err != nil {
		t.Fatal(err)
	}
	write(t, dir, "other/other.cue", "package other\n// not part of the bundle\n")
	if two, _, err := publish(t, ref, bundle); err != nil || two != one {
		t.Errorf("the same bundle has digest %s, then %s, %v", one, two, err)
	}
	r, m, err := published(t, ref)
	if err != nil || m.Digest != one || m.Package != "clusters/test" || m.Commit != "" {
		t.Fatalf("%v, %v", m, err)
	}
	source, err := r.Read(t.Context(), m)
	if err != nil || len(source.Files) != 2 || source.Files[0].Path != "clusters/test/bundle.cue" {
		t.Errorf("%v, %v", source, err)
	}
	if _, err := r.Signature(t.Context(), one); err != artifact.ErrUnsigned {
		t.Errorf("signature: %v", err)
	}
}

func TestTheCommitIsNamedIfTheBundleIsCommitted(t *testing.T) {
	dir, ref := newModule(t), newRegistry(t)
	git := func(args ...string) string {
		t.Helper()
		cmd := exec.Command("git", append([]string{"-C", dir, "-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "commit.gpgSign=false"}, args...)...)
		cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL="+os.DevNull, "GIT_CONFIG_NOSYSTEM=1")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	git("init", "--quiet")
	git("add", "--all")
	git("commit", "--quiet", "--message=m")
	bundle := filepath.Join(dir, "clusters", "test")
	for changed, want := range map[bool]string{false: git("rev-parse", "HEAD"), true: ""} {
		if changed {
			write(t, dir, "other/other.cue", "package other\n// changed\n")
		} else {
			git("checkout", "--quiet", "--", ".")
		}
		if _, _, err := publish(t, ref, bundle); err != nil {
			t.Fatal(err)
		}
		if _, m, err := published(t, ref); err != nil || m.Commit != want {
			t.Errorf("changed %v: commit %q, %v; want %q", changed, m.Commit, err, want)
		}
		if _, _, err := publish(t, ref, bundle, "--require-clean"); (err != nil) != changed {
			t.Errorf("changed %v: --require-clean: %v", changed, err)
		}
	}
}

func TestABundleIsSigned(t *testing.T) {
	dir, ref := newModule(t), newRegistry(t)
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	block, err := ssh.MarshalPrivateKey(private, "")
	if err != nil {
		t.Fatal(err)
	}
	locked, err := ssh.MarshalPrivateKeyWithPassphrase(private, "", []byte("secret"))
	if err != nil {
		t.Fatal(err)
	}
	key, err := ssh.NewPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	files := t.TempDir()
	write(t, files, "key", string(pem.EncodeToMemory(block)), "locked", string(pem.EncodeToMemory(locked)), "nokey", "x",
		"signers", `alice@example.com namespaces="policy@stele.dev" `+string(ssh.MarshalAuthorizedKey(key)))
	bundle := filepath.Join(dir, "clusters", "test")
	for name, want := range map[string]string{"locked": "has a passphrase", "nokey": "is no private SSH key", "missing": "no such file"} {
		if _, _, err := publish(t, ref, bundle, "--sign-key", filepath.Join(files, name)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, _, err := published(t, ref); err == nil {
		t.Error("it is published although it could not be signed")
	}
	digest, _, err := publish(t, ref, bundle, "--sign-key", filepath.Join(files, "key"))
	if err != nil {
		t.Fatal(err)
	}
	r, m, err := published(t, ref)
	if err != nil || m.Digest != digest {
		t.Fatalf("%v, %v", m, err)
	}
	signature, err := r.Signature(t.Context(), digest)
	if err != nil {
		t.Fatal(err)
	}
	allowed, err := signers.Read(filepath.Join(files, "signers"))
	if err != nil {
		t.Fatal(err)
	}
	// What is signed is the text of the digest, as ssh-keygen -Y verify reads it.
	if who, err := allowed.Verify([]byte(digest), signature, "policy@stele.dev", time.Now()); err != nil || who != "alice@example.com" {
		t.Errorf("signed by %s, %v", who, err)
	}
}

func TestABrokenBundleIsNotPublished(t *testing.T) {
	dir, ref := newModule(t), newRegistry(t)
	bundle := filepath.Join(dir, "clusters", "test")
	write(t, bundle, "broken.cue", "package test\nbundle: cluster: 5\n")
	if _, stderr, err := publish(t, ref, bundle); err == nil || !strings.Contains(stderr, "broken.cue:2") {
		t.Errorf("%v: %s", err, stderr)
	}
	if _, m, err := published(t, ref); err == nil {
		t.Errorf("%v is published", m)
	}
	if _, _, err := publish(t, ref+"@sha256:"+strings.Repeat("0", 64), bundle); err == nil || !strings.Contains(err.Error(), "without a digest") {
		t.Errorf("%v", err)
	}
}
