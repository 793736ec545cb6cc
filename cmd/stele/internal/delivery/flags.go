package delivery

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/resource"
	"stele.dev/stele/cmd/stele/internal/usage"
	"stele.dev/stele/core/delivery"
)

// Flags are the flags of serve about the source of its policy.
type Flags struct {
	git      Git
	from     string
	unsigned bool
	maxSize  resource.QuantityValue
	heal     bool
	every    time.Duration
}

const (
	gitTimeout = 2 * time.Minute
	gitMaxSize = 512 << 20
	// leastEvery bounds how often a source is asked.
	leastEvery = time.Second
)

// AddFlags adds the flags.
func (o *Flags) AddFlags(f *pflag.FlagSet) {
	o.maxSize.Quantity = *resource.NewQuantity(gitMaxSize, resource.BinarySI)
	f.StringVar(&o.from, "policy-git", "", "take the policy from a git repository, as `URL#REF:DIR`: a URL of https, ssh or file; a branch, or a full name such as refs/tags/v1; and the folder of the bundle")
	f.StringVar(&o.git.Signers, "policy-git-signers", "", "file of the SSH keys whose signatures of commits are accepted, as of git's gpg.ssh.allowedSignersFile; read for every pull")
	f.BoolVar(&o.unsigned, "policy-git-unsigned", false, "accept commits without verifying who signed them")
	f.StringVar(&o.git.Credentials, "policy-git-credentials", "", "file of lines https://USER:PASSWORD@HOST, as of git's credential-store; read for every pull")
	f.StringVar(&o.git.SSHKey, "policy-git-ssh-key", "", "private key for URLs of ssh; read for every pull")
	f.StringVar(&o.git.KnownHosts, "policy-git-known-hosts", "", "file of the keys of SSH servers; read for every pull")
	f.StringVar(&o.git.Accept, "policy-git-accept", "", "`COMMIT` that is accepted although it does not follow the one before, after a rewrite of the branch")
	usage.DurationVar(f, &o.git.Timeout, "policy-git-timeout", gitTimeout, "limit of a pull")
	f.Var(&o.maxSize, "policy-git-max-size", "limit of the size of the repository")
	usage.DurationVar(f, &o.every, "policy-git-every", time.Minute, "how often the repository is asked")
	f.BoolVar(&o.heal, "policy-git-heal", false, "replace a policy that was activated by hand; without it, that policy stays in force until the policy in the repository changes")
}

// Given reports whether the policy is taken from a source.
func (o *Flags) Given() bool { return o.from != "" }

// Options returns the options of the follower, without a source if none was given. folder is for the source's files.
func (o *Flags) Options(folder string) (d delivery.Options, err error) {
	g := &o.git
	if !o.Given() {
		if g.Signers != "" || g.Credentials != "" || g.SSHKey != "" || g.KnownHosts != "" || g.Accept != "" || o.unsigned || o.heal {
			return d, errors.New("the flags --policy-git-* need --policy-git, the repository")
		}
		return d, nil
	}
	if err := g.Parse(o.from); err != nil {
		return d, fmt.Errorf("--policy-git %w", err)
	}
	switch {
	case g.Signers == "" && !o.unsigned:
		return d, errors.New("--policy-git needs --policy-git-signers, a file of the SSH keys whose signatures are accepted; --policy-git-unsigned accepts every commit")
	case g.Signers != "" && o.unsigned:
		return d, errors.New("--policy-git-signers and --policy-git-unsigned cannot be given together")
	case o.every < leastEvery:
		return d, fmt.Errorf("--policy-git-every %s: want at least %s", o.every, leastEvery)
	case g.Timeout <= 0:
		return d, fmt.Errorf("--policy-git-timeout %s: want a duration above 0", g.Timeout)
	case g.Accept != "" && !validCommit.MatchString(g.Accept):
		return d, fmt.Errorf("--policy-git-accept %q: want the full hash of a commit", g.Accept)
	}
	for flag, file := range map[string]string{"--policy-git-signers": g.Signers, "--policy-git-credentials": g.Credentials, "--policy-git-ssh-key": g.SSHKey, "--policy-git-known-hosts": g.KnownHosts} {
		if _, err := os.Stat(file); file != "" && err != nil {
			return d, fmt.Errorf("%s: %w", flag, err)
		}
	}
	// git and ssh run in the folder of the mirror.
	for _, file := range []*string{&folder, &g.SSHKey, &g.KnownHosts} {
		if *file == "" {
			continue
		}
		if *file, err = filepath.Abs(*file); err != nil {
			return d, err
		}
	}
	g.Folder, g.MaxBytes = folder, o.maxSize.Value()
	return delivery.Options{Source: g, Every: o.every, Heal: o.heal}, nil
}
