package delivery

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/resource"
	"stele.dev/stele/cmd/stele/internal/usage"
	"stele.dev/stele/core/resources/delivery"
)

// Flags are the flags of serve about the source of its policy.
type Flags struct {
	git gitFlags
	oci ociFlags
}

// gitFlags are the flags about a git repository.
type gitFlags struct {
	Git
	from     string
	unsigned bool
	maxSize  resource.QuantityValue
	heal     bool
	every    time.Duration
}

// ociFlags are the flags about a registry.
type ociFlags struct {
	OCI
	from     string
	unsigned bool
	maxSize  resource.QuantityValue
	heal     bool
	every    time.Duration
}

const (
	gitTimeout = 2 * time.Minute
	gitMaxSize = 512 << 20
	ociTimeout = time.Minute
	ociMaxSize = 64 << 20
	// leastEvery bounds how often a source is asked.
	leastEvery = time.Second
)

// AddGitFlags adds the flags about a git repository.
func (o *Flags) AddGitFlags(f *pflag.FlagSet) {
	g := &o.git
	g.maxSize.Quantity = *resource.NewQuantity(gitMaxSize, resource.BinarySI)
	f.StringVar(&g.from, "policy-git", "", "take the policy from a git repository, as `URL#REF:DIR`: a URL of https, ssh or file; a branch, or a full name such as refs/tags/v1; and the folder of the bundle; a password or a token belongs into --policy-git-credentials, because the list of processes shows this one")
	f.StringVar(&g.Signers, "policy-git-signers", "", "file of the SSH keys whose signatures of commits are accepted, as of git's gpg.ssh.allowedSignersFile; read for every pull")
	f.BoolVar(&g.unsigned, "policy-git-unsigned", false, "accept commits without verifying who signed them")
	f.StringVar(&g.Credentials, "policy-git-credentials", "", "file of lines https://USER:PASSWORD@HOST, as of git's credential-store; read for every pull")
	f.StringVar(&g.SSHKey, "policy-git-ssh-key", "", "private key for URLs of ssh; read for every pull")
	f.StringVar(&g.KnownHosts, "policy-git-known-hosts", "", "file of the keys of SSH servers; read for every pull")
	f.StringVar(&g.Accept, "policy-git-accept", "", "`COMMIT` that is accepted although it does not follow the one before, after a rewrite of the branch")
	usage.DurationVar(f, &g.Timeout, "policy-git-timeout", gitTimeout, "limit of a pull")
	f.Var(&g.maxSize, "policy-git-max-size", "limit of the size of the repository")
	usage.DurationVar(f, &g.every, "policy-git-every", time.Minute, "how often the repository is asked")
	f.BoolVar(&g.heal, "policy-git-heal", false, "replace a policy that was activated by hand; without it, that policy stays in force until the policy in the repository changes")
}

// AddOCIFlags adds the flags about a registry.
func (o *Flags) AddOCIFlags(f *pflag.FlagSet) {
	r := &o.oci
	r.maxSize.Quantity = *resource.NewQuantity(ociMaxSize, resource.BinarySI)
	f.StringVar(&r.from, "policy-oci", "", "take the policy from an OCI registry, where stele policy publish has put it: `REGISTRY/REPOSITORY:TAG`, or with @sha256:HEX always the same one")
	f.StringVar(&r.Signers, "policy-oci-signers", "", "file of the SSH keys whose signatures are accepted, as of git's gpg.ssh.allowedSignersFile; read for every pull")
	f.BoolVar(&r.unsigned, "policy-oci-unsigned", false, "accept what the tag names without verifying who signed it")
	f.StringVar(&r.Credentials, "policy-oci-credentials", "", "file like docker's config.json, or the content of a Secret of type kubernetes.io/dockerconfigjson; read for every pull (default: the configuration of docker or podman of the user)")
	usage.DurationVar(f, &r.Timeout, "policy-oci-timeout", ociTimeout, "limit of a pull")
	f.Var(&r.maxSize, "policy-oci-max-size", "limit of the size of the artifact")
	usage.DurationVar(f, &r.every, "policy-oci-every", time.Minute, "how often the registry is asked")
	f.BoolVar(&r.heal, "policy-oci-heal", false, "replace a policy that was activated by hand; without it, that policy stays in force until the policy in the registry changes")
}

// Given reports whether the policy is taken from a source.
func (o *Flags) Given() bool { return o.git.from != "" || o.oci.from != "" }

// Options returns the options of the follower, without a source if none was given. folder is for the source's files,
// and policyDir the value of --policy.
func (o *Flags) Options(folder, policyDir string) (delivery.Options, error) {
	given := slices.DeleteFunc([]string{"--policy", "--policy-git", "--policy-oci"}, func(flag string) bool {
		return map[string]string{"--policy": policyDir, "--policy-git": o.git.from, "--policy-oci": o.oci.from}[flag] == ""
	})
	if len(given) > 1 {
		return delivery.Options{}, fmt.Errorf("%s cannot be given together: the policy of a source is in force from the first start on", strings.Join(given, " and "))
	}
	if err := errors.Join(o.git.checkSource(), o.oci.checkSource()); err != nil {
		return delivery.Options{}, err
	}
	switch {
	case o.git.from != "":
		return o.git.options(folder)
	case o.oci.from != "":
		return o.oci.options()
	}
	return delivery.Options{}, nil
}

// checkSource returns an error if flags are given without the source that they are about.
func (g *gitFlags) checkSource() error {
	if g.from == "" && (g.Signers != "" || g.Credentials != "" || g.SSHKey != "" || g.KnownHosts != "" || g.Accept != "" || g.unsigned || g.heal) {
		return errors.New("the flags --policy-git-* need --policy-git, the repository")
	}
	return nil
}

func (g *gitFlags) options(folder string) (d delivery.Options, err error) {
	if err := g.Parse(g.from); err != nil {
		return d, fmt.Errorf("--policy-git %w", err)
	}
	switch {
	case g.Signers == "" && !g.unsigned:
		return d, errors.New("--policy-git needs --policy-git-signers, a file of the SSH keys whose signatures are accepted; --policy-git-unsigned accepts every commit")
	case g.Signers != "" && g.unsigned:
		return d, errors.New("--policy-git-signers and --policy-git-unsigned cannot be given together")
	case g.Accept != "" && !validCommit.MatchString(g.Accept):
		return d, fmt.Errorf("--policy-git-accept %q: want the full hash of a commit", g.Accept)
	}
	if err := errors.Join(checkTimes("--policy-git", g.every, g.Timeout), exist(map[string]string{
		"--policy-git-signers": g.Signers, "--policy-git-credentials": g.Credentials, "--policy-git-ssh-key": g.SSHKey, "--policy-git-known-hosts": g.KnownHosts,
	})); err != nil {
		return d, err
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
	g.Folder, g.MaxBytes = folder, g.maxSize.Value()
	return delivery.Options{Source: &g.Git, Every: g.every, Heal: g.heal}, nil
}

// checkSource returns an error if flags are given without the source that they are about.
func (r *ociFlags) checkSource() error {
	if r.from == "" && (r.Signers != "" || r.Credentials != "" || r.unsigned || r.heal) {
		return errors.New("the flags --policy-oci-* need --policy-oci, the artifact")
	}
	return nil
}

func (r *ociFlags) options() (d delivery.Options, err error) {
	if err := r.Parse(r.from); err != nil {
		return d, fmt.Errorf("--policy-oci %w", err)
	}
	switch {
	case r.Signers == "" && !r.unsigned && !r.ref.Pinned():
		return d, errors.New("--policy-oci with a tag needs --policy-oci-signers, a file of the SSH keys whose signatures are accepted; or name the artifact by its digest; --policy-oci-unsigned accepts what the tag names")
	case r.Signers != "" && r.unsigned:
		return d, errors.New("--policy-oci-signers and --policy-oci-unsigned cannot be given together")
	}
	if err := errors.Join(checkTimes("--policy-oci", r.every, r.Timeout), exist(map[string]string{"--policy-oci-signers": r.Signers, "--policy-oci-credentials": r.Credentials})); err != nil {
		return d, err
	}
	r.MaxBytes = r.maxSize.Value()
	return delivery.Options{Source: &r.OCI, Every: r.every, Heal: r.heal}, nil
}

// checkTimes checks the flags --FLAG-every and --FLAG-timeout.
func checkTimes(flag string, every, timeout time.Duration) error {
	switch {
	case every < leastEvery:
		return fmt.Errorf("%s-every %s: want at least %s", flag, every, leastEvery)
	case timeout <= 0:
		return fmt.Errorf("%s-timeout %s: want a duration above 0", flag, timeout)
	}
	return nil
}

// exist returns an error if a file of a flag does not exist.
func exist(files map[string]string) error {
	for flag, file := range files {
		if _, err := os.Stat(file); file != "" && err != nil {
			return fmt.Errorf("%s: %w", flag, err)
		}
	}
	return nil
}
