package delivery

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	"stele.dev/stele/cmd/stele/internal/gitrepo"
	"stele.dev/stele/cmd/stele/internal/signers"
	"stele.dev/stele/core/resources/activation"
	"stele.dev/stele/core/resources/delivery"
	"stele.dev/stele/limits/steady"
	"stele.dev/stele/policy/bundles"
)

const (
	// gitActor is the user in the log who activates policies of a git repository.
	gitActor = activation.ServerActor + ":policy-git"
	// candidate and accepted are the references of the mirror: to what was fetched, and to the last commit that was
	// accepted.
	candidate = "refs/stele/candidate"
	accepted  = "refs/stele/accepted"
	// measured is how often the size of the mirror is measured while git fetches.
	measured = 100 * time.Millisecond
)

// Git is a folder of a branch or tag of a git repository. It implements [delivery.Source] with a mirror of the
// repository in a folder of its own, and the git program.
type Git struct {
	// Folder is where the mirror is. It is created, and belongs to this source.
	Folder string
	// Signers is the file of allowed signers, which is read for every pull; "" to verify no signatures.
	Signers string
	// Credentials is a file of lines https://USER:PASSWORD@HOST, SSHKey a private key, and KnownHosts the keys of SSH
	// servers. They are read for every pull. "" for none.
	Credentials, SSHKey, KnownHosts string
	// Accept is a commit that is accepted although it does not follow the one before; "" for none.
	Accept string
	// Timeout limits a pull, and MaxBytes the size of the mirror.
	Timeout  time.Duration
	MaxBytes int64

	url, ref, dir string
}

// Parse sets what the source follows: URL#REF:DIR. REF is a branch, or a full name such as refs/tags/v1. DIR is the
// folder of the bundle, by default the root.
func (g *Git) Parse(text string) error {
	at := strings.LastIndex(text, "#")
	if at <= 0 || at == len(text)-1 {
		return fmt.Errorf("%q: want URL#REF:DIR, for example https://git.example.com/platform/policy.git#main:clusters/prod", Redacted(text))
	}
	ref, dir, _ := strings.Cut(text[at+1:], ":")
	g.url, g.ref, g.dir = text[:at], ref, cmp.Or(strings.Trim(dir, "/"), ".")
	if strings.Contains(g.url, "://") {
		if _, err := url.Parse(g.url); err != nil { // its error could show a password
			return errors.New("the URL of the repository cannot be parsed; special characters of a password are written as %XX")
		}
	}
	switch {
	case strings.HasPrefix(g.url, "-"), strings.Contains(g.url, "::"):
		return fmt.Errorf("%q is not a URL of a repository", Redacted(g.url))
	case g.protocol() == "":
		return fmt.Errorf("%q: want a URL of https, ssh or file", Redacted(g.url))
	case !validRef.MatchString(ref) || strings.Contains(ref, ".."):
		return fmt.Errorf("%q is not the name of a branch, or a full name such as refs/tags/v1", ref)
	}
	if !strings.HasPrefix(g.ref, "refs/") {
		g.ref = "refs/heads/" + g.ref
	}
	return nil
}

var (
	validCommit = regexp.MustCompile(`^([0-9a-f]{40}|[0-9a-f]{64})$`)

	validRef = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._/+-]*$`)
	scpLike  = regexp.MustCompile(`^[A-Za-z0-9._-]+@[A-Za-z0-9._-]+:`)
)

// protocol returns the protocol of the URL: https, ssh or file; "" for any other.
func (g *Git) protocol() string {
	if scheme, _, ok := strings.Cut(g.url, "://"); ok {
		if scheme == "https" || scheme == "ssh" || scheme == "file" {
			return scheme
		}
		return ""
	}
	if scpLike.MatchString(g.url) {
		return "ssh"
	}
	if filepath.IsAbs(g.url) {
		return "file"
	}
	return ""
}

// Redacted returns a URL without its password, or without its user if it has no password: a token may stand there. The
// user of ssh is no secret.
func Redacted(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		scheme, rest, _ := strings.Cut(text, "://")
		if at := strings.LastIndex(rest, "@"); at >= 0 {
			return scheme + "://xxxxx" + rest[at:]
		}
		return text
	}
	if _, ok := u.User.Password(); !ok && u.User != nil && u.Scheme != "ssh" {
		u.User = url.User("xxxxx")
	}
	return u.Redacted()
}

// String returns the URL without its password, the branch and the folder.
func (g *Git) String() string {
	return "git " + Redacted(g.url) + "#" + strings.TrimPrefix(g.ref, "refs/heads/") + ":" + g.dir
}

// Actor returns the user in the log who activates its policies.
func (g *Git) Actor() string { return gitActor }

// Pull fetches the reference, and verifies the commit that it names: its signature, and that it follows the commit that
// was delivered or accepted last.
func (g *Git) Pull(ctx context.Context, delivered string) (*delivery.Version, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, g.Timeout, fmt.Errorf("%s did not answer within %s", g, g.Timeout))
	defer cancel()
	if err := g.fetch(ctx); err != nil {
		return nil, fmt.Errorf("pull %s: %w", g, err)
	}
	mirror := g.mirror()
	commit, err := mirror.Commit(ctx, candidate)
	if err != nil {
		return nil, err
	}
	signer, err := g.verify(ctx, commit, commit == delivered)
	if err != nil {
		return nil, err
	}
	before := []string{delivered}
	if last, err := mirror.Commit(ctx, accepted); err == nil {
		before = append(before, last)
	}
	for _, b := range before {
		if err := g.follows(ctx, commit, b); err != nil {
			return nil, err
		}
	}
	if err := g.git(ctx, "update-ref", accepted, commit); err != nil {
		return nil, err
	}
	return &delivery.Version{ID: commit, Signer: signer, Read: func(ctx context.Context) (*bundles.Source, error) {
		return mirror.Bundle(ctx, commit, g.dir)
	}}, nil
}

// follows returns an error if a commit may not come after the one that was accepted before.
func (g *Git) follows(ctx context.Context, commit, before string) error {
	follows := func(commit, before string) bool {
		return g.git(ctx, "merge-base", "--is-ancestor", before, commit) == nil
	}
	if before == "" || before == commit || follows(commit, before) {
		return nil
	}
	back := follows(before, commit)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case back:
		return &delivery.RefusedError{ID: commit, Why: fmt.Sprintf("the branch was reset to it, from commit %.12s; revert with a new commit instead", before)}
	case commit == g.Accept:
		return nil
	case g.Accept != "" && follows(commit, g.Accept) && !follows(before, g.Accept):
		return nil // the commit before is one of those that were replaced
	}
	return &delivery.RefusedError{ID: commit, Why: fmt.Sprintf("it does not follow commit %.12s, which was accepted before: the branch was rewritten; if that is meant, start the server with --policy-git-accept %s", before, commit)}
}

// verify returns who signed a commit. The key must be allowed now: the date in a commit is what its author says. For a
// commit that was delivered before, a key is enough that was allowed when it was committed.
func (g *Git) verify(ctx context.Context, commit string, before bool) (string, error) {
	if g.Signers == "" {
		return "", nil
	}
	allowed, err := signers.Read(g.Signers)
	if err != nil {
		return "", fmt.Errorf("--policy-git-signers: %w", err)
	}
	text, err := g.mirror().CommitObject(ctx, commit)
	if err != nil {
		return "", err
	}
	message, signature, err := signers.Commit(text)
	if err == nil {
		at := time.Now()
		if before {
			at = committed(text)
		}
		var principals string
		if principals, err = allowed.Verify(message, signature, "git", at); err == nil {
			return principals, nil
		}
	}
	return "", &delivery.RefusedError{ID: commit, Why: err.Error()}
}

var committer = regexp.MustCompile(`(?m)^committer .*> (\d+) [+-]\d{4}$`)

// committed returns the committer's date of a commit.
func committed(text []byte) time.Time {
	head, _, _ := bytes.Cut(text, []byte("\n\n"))
	m := committer.FindSubmatch(head)
	if m == nil {
		return time.Time{}
	}
	var seconds int64
	_, _ = fmt.Sscan(string(m[1]), &seconds)
	return time.Unix(seconds, 0)
}

func (g *Git) home() string { return filepath.Join(g.Folder, "home") }
func (g *Git) path() string { return filepath.Join(g.Folder, "mirror.git") }

func (g *Git) mirror() *gitrepo.Repository {
	return &gitrepo.Repository{Dir: g.path(), Env: g.environment()}
}

// fetch fetches the reference into the mirror. It removes a mirror that is too large.
func (g *Git) fetch(ctx context.Context) error {
	if err := g.prepare(ctx); err != nil {
		return err
	}
	limited, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		g.watchSize(limited, cancel)
	}()
	err := g.git(limited, "-c", "fetch.fsckObjects=true", "-c", "fetch.unpackLimit=1", "-c", "transfer.bundleURI=false", "-c", "credential.helper=",
		"-c", "credential.helper="+g.helper(), "-c", "http.lowSpeedLimit=1000", "-c", "http.lowSpeedTime=30",
		"fetch", "--quiet", "--no-tags", "--no-recurse-submodules", "--no-write-fetch-head", "--no-auto-maintenance", "--force", "--end-of-options", g.remote(), "+"+g.ref+":"+candidate)
	cancel(nil)
	<-ended
	if errors.Is(context.Cause(limited), errTooLarge) || g.size() > g.MaxBytes {
		return errors.Join(fmt.Errorf("%w: it has more than %d MiB; --policy-git-max-size raises the limit", errTooLarge, g.MaxBytes>>20), os.RemoveAll(g.path()))
	}
	return err
}

var errTooLarge = errors.New("the repository is too large")

// helper returns the credential helper of git: the copy of the credentials, from which git may erase what is refused.
func (g *Git) helper() string {
	if g.Credentials == "" && g.login() == nil {
		return ""
	}
	return "store"
}

// login returns the user and the password in the URL, nil if there is none. A user without a password may be a token.
func (g *Git) login() *url.Userinfo {
	u, err := url.Parse(g.url)
	if err != nil || u.User == nil || u.Scheme != "https" {
		return nil
	}
	if _, ok := u.User.Password(); ok {
		return u.User
	}
	if name := u.User.Username(); g.Credentials == "" && len(name) >= shortestToken {
		return url.UserPassword(name, "")
	}
	return nil
}

// remote returns the URL for git without the login: the list of processes shows the arguments of git and of its children.
func (g *Git) remote() string {
	if g.login() == nil {
		return g.url
	}
	u, err := url.Parse(g.url)
	if err != nil {
		return g.url
	}
	u.User = nil
	return u.String()
}

// logins returns the lines of the copy of the credentials: that of the URL comes first.
func (g *Git) logins() (text []byte, err error) {
	if user := g.login(); user != nil {
		u, err := url.Parse(g.url)
		if err != nil {
			return nil, err
		}
		text = fmt.Appendln(nil, &url.URL{Scheme: u.Scheme, User: user, Host: u.Host})
	}
	if g.Credentials == "" {
		return text, nil
	}
	file, err := os.ReadFile(g.Credentials)
	if err != nil {
		return nil, fmt.Errorf("--policy-git-credentials: %w", err)
	}
	return append(text, file...), nil
}

// prepare creates the mirror if it is missing, and copies the credentials, which may have changed.
func (g *Git) prepare(ctx context.Context) error {
	if err := os.MkdirAll(g.home(), 0o700); err != nil {
		return err
	}
	logins, err := g.logins()
	if err != nil {
		return err
	}
	if file := filepath.Join(g.home(), ".git-credentials"); len(logins) > 0 {
		err = os.WriteFile(file, logins, 0o600)
	} else if err = os.Remove(file); errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if err != nil {
		return err
	}
	for flag, file := range map[string]string{"--policy-git-ssh-key": g.SSHKey, "--policy-git-known-hosts": g.KnownHosts} {
		if _, err := os.Stat(file); file != "" && err != nil {
			return fmt.Errorf("%s: %w", flag, err)
		}
	}
	if _, err := os.Stat(filepath.Join(g.path(), "HEAD")); err == nil {
		return nil
	}
	if err := os.MkdirAll(g.path(), 0o700); err != nil {
		return err
	}
	return g.git(ctx, "init", "--quiet", "--bare", "--template=")
}

// watchSize measures the mirror until the context ends, and ends it if the mirror is too large.
func (g *Git) watchSize(ctx context.Context, cancel context.CancelCauseFunc) {
	for range steady.Every(ctx, measured) {
		if g.size() > g.MaxBytes {
			cancel(errTooLarge)
			return
		}
	}
}

// size returns the size of the mirror's files.
func (g *Git) size() (n int64) {
	_ = filepath.WalkDir(g.path(), func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil // removed meanwhile
		}
		if info, err := d.Info(); err == nil && !d.IsDir() {
			n += info.Size()
		}
		return nil
	})
	return n
}

// git runs git in the mirror, and ends it and all that it has started when the context ends.
func (g *Git) git(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, "git", append([]string{"-C", g.path(), "-c", "core.hooksPath=" + os.DevNull, "-c", "gc.auto=0", "-c", "maintenance.auto=false"}, args...)...)
	cmd.Env = g.environment()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	var stderr limitedText
	cmd.Stderr = &stderr
	err := cmd.Run()
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil && len(stderr.text) > 0:
		return fmt.Errorf("%s: %w", strings.TrimSpace(g.redact(string(stderr.text))), err)
	}
	return err
}

// shortestToken is the length from which on a user without a password may be a token. Shorter ones are names, such as git.
const shortestToken = 12

// redact removes the password of the URL from a text, and a token that is its user, as they are written and as they are.
func (g *Git) redact(text string) string {
	u, err := url.Parse(g.url)
	if err != nil || u.User == nil || u.Scheme == "ssh" {
		return text
	}
	secret, ok := u.User.Password()
	written := strings.TrimPrefix(url.UserPassword("", secret).String(), ":")
	if !ok {
		if secret, written = u.User.Username(), u.User.String(); len(secret) < shortestToken {
			return text
		}
	}
	for _, s := range []string{written, secret} {
		if s != "" {
			text = strings.ReplaceAll(text, s, "xxxxx")
		}
	}
	return text
}

// leastMemory is the least that git may take at once.
const leastMemory = 16 << 20

// environment returns the environment of git: nothing of the machine's or the user's configuration, no prompts, and the
// allowed protocols only. An object may not be larger than the repository: git has objects in memory, and a small
// repository can have a large one.
func (g *Git) environment() []string {
	env := []string{
		"HOME=" + g.home(), "XDG_CONFIG_HOME=" + g.home(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=" + os.DevNull, "GIT_ATTR_NOSYSTEM=1",
		"GIT_TERMINAL_PROMPT=0", "GIT_ASKPASS=true", "SSH_ASKPASS=true", "GIT_ALLOW_PROTOCOL=https:ssh:file", "GIT_SSH_COMMAND=" + g.ssh(), "GIT_NO_REPLACE_OBJECTS=1", "LC_ALL=C",
		fmt.Sprintf("GIT_ALLOC_LIMIT=%d", max(g.MaxBytes, leastMemory)),
	}
	for _, name := range []string{"PATH", "SSL_CERT_FILE", "SSL_CERT_DIR", "GIT_SSL_CAINFO", "https_proxy", "HTTPS_PROXY", "no_proxy", "NO_PROXY", "TMPDIR"} {
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	return env
}

// ssh returns the command by which git connects to SSH servers. Their keys must be known.
func (g *Git) ssh() string {
	command := "ssh -F none -o BatchMode=yes -o StrictHostKeyChecking=yes -o ConnectTimeout=20 -o ForwardAgent=no -o PermitLocalCommand=no"
	if g.KnownHosts != "" {
		command += " -o GlobalKnownHostsFile=none -o UserKnownHostsFile=" + quoted(g.KnownHosts)
	}
	if g.SSHKey != "" {
		command += " -o IdentitiesOnly=yes -i " + quoted(g.SSHKey)
	}
	return command
}

// quoted quotes a word for the shell.
func quoted(word string) string { return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'" }

// limitedText keeps the beginning of what is written.
type limitedText struct{ text []byte }

func (l *limitedText) Write(p []byte) (int, error) {
	const most = 4096
	l.text = append(l.text, p[:min(len(p), most-len(l.text))]...)
	return len(p), nil
}
