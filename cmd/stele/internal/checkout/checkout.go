// Package checkout finds the git commit of the files of a bundle, and whether the files differ from it.
package checkout

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"stele.dev/stele/policy/bundles"
)

// Checkout is the commit of a bundle's files.
type Checkout struct {
	commit  string // HEAD; empty outside of a repository
	changed string // the first file that differs from the commit; empty if there is none
}

// Of returns the commit of the module that a bundle belongs to. The checkout counts as changed if a tracked file of the module differs
// from the commit, or if git does not track a file of the bundle.
func Of(ctx context.Context, dir string, source *bundles.Source) (Checkout, error) {
	root, err := moduleRoot(dir, source.Package)
	if err != nil {
		return Checkout{}, err
	}
	git := func(args ...string) (string, error) {
		out, err := exec.CommandContext(ctx, "git", append([]string{"-C", root, "--no-optional-locks"}, args...)...).Output()
		return string(out), err
	}
	head, err := git("rev-parse", "--verify", "--quiet", "HEAD")
	if err != nil {
		return Checkout{}, ctx.Err() // no git, no repository, or no commit in it
	}
	c := Checkout{commit: strings.TrimSpace(head)}
	changes, err := git("status", "--porcelain", "-z", "--untracked-files=no", "--ignore-submodules=none", "--", ".")
	if err != nil {
		return c, fmt.Errorf("git status: %w", err)
	}
	if entry, _, found := strings.Cut(changes, "\x00"); found && len(entry) > 3 {
		c.changed = entry[3:]
		return c, nil
	}
	tracked, err := git("ls-files", "-z", "--", ".")
	if err != nil {
		return c, fmt.Errorf("git ls-files: %w", err)
	}
	known := map[string]bool{}
	for name := range strings.SplitSeq(tracked, "\x00") {
		known[name] = true
	}
	for _, f := range source.Files {
		if !known[f.Path] || leaves(root, f.Path) {
			c.changed = f.Path
			return c, nil
		}
	}
	return c, nil
}

// moduleRoot returns the folder of the module whose package is in dir.
func moduleRoot(dir, pkg string) (string, error) {
	abs, err := filepath.Abs(dir)
	if err != nil || pkg == "." {
		return abs, err
	}
	return strings.TrimSuffix(abs, filepath.FromSlash("/"+pkg)), nil
}

// leaves reports whether a file is a link to a file outside of the module. The commit has only the link.
func leaves(root, file string) bool {
	real, err := filepath.EvalSymlinks(root)
	if err != nil {
		return true
	}
	target, err := filepath.EvalSymlinks(filepath.Join(root, filepath.FromSlash(file)))
	return err != nil || !strings.HasPrefix(target, strings.TrimSuffix(real, string(os.PathSeparator))+string(os.PathSeparator))
}

// String returns the commit in the form in which policies name it.
func (c Checkout) String() string {
	if c.changed != "" {
		return c.commit + "+changes"
	}
	return c.commit
}

// Clean returns an error if the bundle differs from the commit.
func (c Checkout) Clean(dir string) error {
	switch {
	case c.commit == "":
		return fmt.Errorf("--require-clean: %s is in no git repository with a commit; push it from a checkout", dir)
	case c.changed != "":
		return errors.New("--require-clean: " + c.changed + " is not as in commit " + c.commit[:min(12, len(c.commit))] + "; commit it, or push without --require-clean")
	}
	return nil
}
