package delivery_test

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hiddeco/sshsig"
	"github.com/spf13/pflag"
	"golang.org/x/crypto/ssh"
	"stele.dev/stele/cmd/stele/internal/delivery"
	core "stele.dev/stele/core/resources/delivery"
)

// repository is a git repository with a bundle in its root.
type repository struct {
	t   *testing.T
	dir string
}

func newRepository(t *testing.T) *repository {
	r := &repository{t, t.TempDir()}
	r.git(nil, "init", "--quiet", "--initial-branch=main")
	r.write("cue.mod/module.cue", "module: \"example.com/policy\"\nlanguage: version: \"v0.17.0\"\n")
	return r
}

func (r *repository) git(in []byte, args ...string) string {
	r.t.Helper()
	cmd := exec.Command("git", append([]string{"-C", r.dir, "-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "commit.gpgSign=false"}, args...)...)
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL="+os.DevNull, "GIT_CONFIG_NOSYSTEM=1")
	cmd.Stdin = bytes.NewReader(in)
	out, err := cmd.CombinedOutput()
	if err != nil {
		r.t.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

func (r *repository) write(name, text string) {
	r.t.Helper()
	file := filepath.Join(r.dir, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		r.t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		r.t.Fatal(err)
	}
}

// commit makes a commit that differs by its text, and signs it unless the key is nil.
func (r *repository) commit(text string, by ssh.Signer) string {
	r.t.Helper()
	r.write("bundle.cue", "package policy\n// "+text+"\n")
	r.git(nil, "add", "--all")
	r.git(nil, "commit", "--quiet", "--message="+text)
	if by != nil {
		object := r.git(nil, "cat-file", "commit", "HEAD") + "\n"
		signature, err := sshsig.Sign(strings.NewReader(object), by, sshsig.HashSHA512, "git")
		if err != nil {
			r.t.Fatal(err)
		}
		armored := strings.ReplaceAll(strings.TrimSpace(string(sshsig.Armor(signature))), "\n", "\n ")
		head, body, _ := strings.Cut(object, "\n\n")
		hash := r.git([]byte(head+"\ngpgsig "+armored+"\n\n"+body), "hash-object", "-t", "commit", "-w", "--stdin")
		r.git(nil, "reset", "--quiet", "--hard", hash)
	}
	return r.git(nil, "rev-parse", "HEAD")
}

func newKey(t *testing.T) ssh.Signer {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	key, err := ssh.NewSignerFromKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// allow writes a file of allowed signers: each line is the name, options, and the key.
func allow(t *testing.T, file string, lines ...any) {
	t.Helper()
	var text strings.Builder
	for i := 0; i < len(lines); i += 2 {
		fmt.Fprintf(&text, "%s %s", lines[i], ssh.MarshalAuthorizedKey(lines[i+1].(ssh.Signer).PublicKey()))
	}
	if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
}

// follow returns a source that follows the branch main.
func (r *repository) follow(signers string) *delivery.Git {
	r.t.Helper()
	g := &delivery.Git{Folder: filepath.Join(r.t.TempDir(), "source"), Signers: signers, Timeout: time.Minute, MaxBytes: 64 << 20}
	if err := g.Parse("file://" + r.dir + "#main"); err != nil {
		r.t.Fatal(err)
	}
	return g
}

// pulls checks which commit a pull returns.
func pulls(t *testing.T, g *delivery.Git, delivered, want string) *core.Version {
	t.Helper()
	v, err := g.Pull(t.Context(), delivered)
	if err != nil || v.ID != want {
		t.Fatalf("%v, %v; want %s", v, err, want)
	}
	return v
}

// refuses checks that a pull refuses a commit.
func refuses(t *testing.T, g *delivery.Git, delivered, commit, want string) {
	t.Helper()
	_, err := g.Pull(t.Context(), delivered)
	var refused *core.RefusedError
	if !errors.As(err, &refused) || refused.ID != commit || !strings.Contains(refused.Why, want) {
		t.Errorf("%v; want a refusal of %s: %s", err, commit, want)
	}
}

func TestSignedCommitsArePulled(t *testing.T) {
	r, alice, bob := newRepository(t), newKey(t), newKey(t)
	file := filepath.Join(t.TempDir(), "signers")
	allow(t, file, `alice@example.com namespaces="git"`, alice)
	g := r.follow(file)
	one := r.commit("one", alice)
	v := pulls(t, g, "", one)
	source, err := v.Read(t.Context())
	if err != nil || v.Signer != "alice@example.com" || len(source.Files) != 2 || !strings.Contains(string(source.Files[0].Data), "// one") {
		t.Fatalf("%v, %v, signed by %s", source, err, v.Signer)
	}
	refuses(t, g, one, r.commit("two", nil), "it is not signed")
	three := r.commit("three", bob)
	refuses(t, g, one, three, ssh.FingerprintSHA256(bob.PublicKey()))
	allow(t, file, "bob@example.com", bob)
	pulls(t, g, one, three)
	allow(t, file, `bob@example.com namespaces="!git,*"`, bob)
	if v, err := g.Pull(t.Context(), one); err == nil || !strings.Contains(err.Error(), `"!git": patterns are not supported`) {
		t.Errorf("%v, %v", v, err)
	}
	allow(t, file, `bob@example.com namespaces="file"`, bob)
	refuses(t, g, one, three, "allows for file only, not for git")
	allow(t, file, `bob@example.com valid-before="20200101Z"`, bob)
	refuses(t, g, one, three, "allowed until 2020-01-01T00:00:00Z")
	allow(t, file, `bob@example.com valid-after="29990101Z"`, bob)
	refuses(t, g, one, three, "allows from 2999-01-01T00:00:00Z on")
}

func TestAKeyThatExpiredLaterStillHoldsForWhatWasDelivered(t *testing.T) {
	r, alice := newRepository(t), newKey(t)
	file := filepath.Join(t.TempDir(), "signers")
	allow(t, file, "alice", alice)
	g, one := r.follow(file), r.commit("one", alice)
	pulls(t, g, "", one)
	time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(time.Second))) // the times in the file have seconds
	allow(t, file, `alice valid-before="`+time.Now().UTC().Format("20060102150405")+`Z"`, alice)
	pulls(t, g, one, one)
	refuses(t, g, one, r.commit("two", alice), "allowed until")
}

func TestAChangedCommitHasNoValidSignature(t *testing.T) {
	r, alice := newRepository(t), newKey(t)
	file := filepath.Join(t.TempDir(), "signers")
	allow(t, file, "alice", alice)
	r.commit("one", alice)
	changed := strings.Replace(r.git(nil, "cat-file", "commit", "HEAD")+"\n", "\n\none", "\n\nother", 1)
	hash := r.git([]byte(changed), "hash-object", "-t", "commit", "-w", "--stdin")
	r.git(nil, "reset", "--quiet", "--hard", hash)
	refuses(t, r.follow(file), "", hash, "does not fit")
}

func TestABranchOnlyGoesForward(t *testing.T) {
	r := newRepository(t)
	one, two := r.commit("one", nil), r.commit("two", nil)
	g := r.follow("")
	pulls(t, g, one, two)
	r.git(nil, "reset", "--quiet", "--hard", one)
	refuses(t, g, one, one, "the branch was reset to it, from commit "+two[:12])
	again := r.follow("") // a replica that has not seen the second commit, but the log has
	refuses(t, again, two, one, "it does not follow commit "+two[:12])
	other := r.commit("another two", nil)
	refuses(t, g, one, other, "the branch was rewritten")
	g.Accept = other
	pulls(t, g, two, other)
	three := r.commit("three", nil)
	pulls(t, g, other, three)
	r.git(nil, "reset", "--quiet", "--hard", other)
	refuses(t, g, three, other, "the branch was reset to it")
}

// A rewritten branch may begin with the policy that is in force. Nothing is activated then, and the log still has the
// commit before.
func TestCommitsFollowAnAcceptedOne(t *testing.T) {
	r := newRepository(t)
	old := r.commit("old", nil)
	g := r.follow("")
	pulls(t, g, "", old)
	r.git(nil, "checkout", "--quiet", "--orphan", "new")
	first := r.commit("first", nil)
	r.git(nil, "branch", "--force", "main", "HEAD")
	refuses(t, g, old, first, "the branch was rewritten")
	g.Accept = first
	pulls(t, g, old, first)
	second := r.commit("second", nil)
	r.git(nil, "branch", "--force", "main", "HEAD")
	pulls(t, g, old, second)
	r.git(nil, "reset", "--quiet", "--hard", first)
	other := r.commit("another second", nil)
	r.git(nil, "branch", "--force", "main", "HEAD")
	refuses(t, g, second, other, "the branch was rewritten")
	refuses(t, g, old, other, "the branch was rewritten")
}

func TestATagIsFollowed(t *testing.T) {
	r := newRepository(t)
	one := r.commit("one", nil)
	r.git(nil, "tag", "--annotate", "--message=m", "v1")
	r.commit("two", nil)
	g := r.follow("")
	if err := g.Parse("file://" + r.dir + "#refs/tags/v1:."); err != nil {
		t.Fatal(err)
	}
	pulls(t, g, "", one)
}

func TestALargeRepositoryIsRefused(t *testing.T) {
	r := newRepository(t)
	noise := make([]byte, 3<<20)
	_, _ = rand.Read(noise)
	r.write("noise", hex.EncodeToString(noise))
	commit := r.commit("large", nil)
	g := r.follow("")
	g.MaxBytes = 1 << 20
	if _, err := g.Pull(t.Context(), ""); err == nil || !strings.Contains(err.Error(), "it has more than 1 MiB") {
		t.Errorf("%v", err)
	}
	if left, _ := os.ReadDir(filepath.Join(g.Folder, "mirror.git")); len(left) > 0 {
		t.Error("the mirror is kept")
	}
	g.MaxBytes = 64 << 20
	pulls(t, g, "", commit)
}

// A commit of zeros is small in a repository, and large in memory.
func TestALargeCommitIsRefused(t *testing.T) {
	r := newRepository(t)
	r.commit("one", nil)
	text := r.git(nil, "cat-file", "commit", "HEAD") + strings.Repeat("0", 32<<20)
	r.git(nil, "update-ref", "refs/heads/main", r.git([]byte(text), "hash-object", "-t", "commit", "-w", "--stdin"))
	g := r.follow("")
	g.MaxBytes = 1 << 20
	if _, err := g.Pull(t.Context(), ""); err == nil || !strings.Contains(err.Error(), "over limit") {
		t.Errorf("%v", err)
	}
}

func TestAServerThatDoesNotAnswerIsGivenUp(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	g := newRepository(t).follow("")
	g.Timeout = 300 * time.Millisecond
	if err := g.Parse("https://" + silent.Addr().String() + "/policy.git#main"); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	if _, err := g.Pull(t.Context(), ""); err == nil || !strings.Contains(err.Error(), "did not answer within 300ms") || time.Since(start) > 20*time.Second {
		t.Errorf("%v after %s", err, time.Since(start))
	}
}

func TestWhatDoesNotExistIsNamed(t *testing.T) {
	r := newRepository(t)
	r.commit("one", nil)
	g := r.follow("")
	if err := g.Parse("file://" + r.dir + "#release"); err != nil {
		t.Fatal(err)
	}
	if _, err := g.Pull(t.Context(), ""); err == nil || !strings.Contains(err.Error(), "refs/heads/release") {
		t.Error(err)
	}
	g.Credentials = filepath.Join(t.TempDir(), "missing")
	if _, err := g.Pull(t.Context(), ""); err == nil || !strings.Contains(err.Error(), "--policy-git-credentials") {
		t.Error(err)
	}
}

func TestNothingOfTheRepositoryOrTheUserRuns(t *testing.T) {
	r := newRepository(t)
	ran := filepath.Join(t.TempDir(), "ran")
	home := t.TempDir()
	t.Setenv("HOME", home)
	config := fmt.Sprintf("[core]\n\tfsmonitor = touch %s\n\tsshCommand = touch %[1]s\n[url \"ext::touch %[1]s\"]\n\tinsteadOf = file://\n", ran)
	if err := os.WriteFile(filepath.Join(home, ".gitconfig"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	commit := r.commit("one", nil)
	pulls(t, r.follow(""), "", commit)
	if _, err := os.Stat(ran); err == nil {
		t.Error("a program of the user's configuration ran")
	}
}

func TestSourcesAreParsed(t *testing.T) {
	for text, want := range map[string]string{
		"https://git.example.com/p.git#main:clusters/prod": "git https://git.example.com/p.git#main:clusters/prod",
		"https://me:secret@git.example.com/p.git#main":     "git https://me:xxxxx@git.example.com/p.git#main:.",
		"git@git.example.com:team/p.git#refs/tags/v1:law":  "git git@git.example.com:team/p.git#refs/tags/v1:law",
		"https://token@git.example.com/p.git#main":         "git https://xxxxx@git.example.com/p.git#main:.",
		"ssh://git@git.example.com/p.git#release/2:a/":     "git ssh://git@git.example.com/p.git#release/2:a",
		"/srv/p.git#main": "git /srv/p.git#main:.",
	} {
		var g delivery.Git
		if err := g.Parse(text); err != nil || g.String() != want {
			t.Errorf("%s: %s, %v; want %s", text, &g, err, want)
		}
	}
	for _, text := range []string{
		"", "#main", "https://git.example.com/p.git", "https://git.example.com/p.git#", "http://git.example.com/p.git#main", "ext::sh -c x#main",
		"--upload-pack=x#main", "https://me:50%secret@git.example.com/p.git#main", "https://git.example.com/p.git#-x", "https://git.example.com/p.git#a..b", "https://me:secret@git.example.com/p.git", "https://me:secret::x@git.example.com/p.git#main", "ftp://secret@git.example.com/p.git#main", "https://secret%x@git.example.com/p.git", "https://git.example.com/p.git#+a", "git.example.com#main",
	} {
		if err := new(delivery.Git).Parse(text); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// git runs in the folder of the mirror, and finds the files that flags name all the same.
func TestPathsOfFlagsMayBeRelative(t *testing.T) {
	r := newRepository(t)
	commit := r.commit("one", nil)
	t.Chdir(t.TempDir())
	for _, name := range []string{"key", "hosts"} {
		if err := os.WriteFile(name, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var flags delivery.Flags
	set := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	flags.AddGitFlags(set)
	if err := set.Parse([]string{"--policy-git", "file://" + r.dir + "#main", "--policy-git-unsigned", "--policy-git-ssh-key", "key", "--policy-git-known-hosts", "hosts"}); err != nil {
		t.Fatal(err)
	}
	o, err := flags.Options("data/source", "")
	if err != nil {
		t.Fatal(err)
	}
	g := o.Source.(*delivery.Git)
	for _, path := range []string{g.Folder, g.SSHKey, g.KnownHosts} {
		if !filepath.IsAbs(path) {
			t.Errorf("%s is relative", path)
		}
	}
	pulls(t, g, "", commit)
}
