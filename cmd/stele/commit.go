package main

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

// commitOf is the commit that a push names: the one that was given, or else what git says.
func (o *pushOptions) commitOf(ctx context.Context, dir string, source *bundles.Source) (string, error) {
	if o.commit != "" {
		return o.commit, nil
	}
	c, err := checkoutOf(ctx, dir, source)
	if err == nil && o.clean {
		err = c.clean(dir)
	}
	return c.String(), err
}

// checkout is what git knows of the files that a bundle was compiled from.
type checkout struct {
	commit  string // HEAD; empty outside of a repository
	changed string // the first file that is not as in the commit; empty if there is none
}

// checkoutOf asks git about the module of a bundle. A file of the module that is not as in the commit makes the
// checkout changed, wherever in the module it is; so does a file of the bundle that git does not track, because it is new
// or ignored.
func checkoutOf(ctx context.Context, dir string, source *bundles.Source) (checkout, error) {
	root, err := moduleRoot(dir, source.Package)
	if err != nil {
		return checkout{}, err
	}
	git := func(args ...string) (string, error) {
		out, err := exec.CommandContext(ctx, "git", append([]string{"-C", root, "--no-optional-locks"}, args...)...).Output()
		return string(out), err
	}
	head, err := git("rev-parse", "--verify", "--quiet", "HEAD")
	if err != nil {
		return checkout{}, ctx.Err() // no git, no repository, or no commit in it
	}
	c := checkout{commit: strings.TrimSpace(head)}
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

// moduleRoot is the folder of the module whose package is in dir.
func moduleRoot(dir, pkg string) (string, error) {
	abs, err := filepath.Abs(dir)
	if err != nil || pkg == "." {
		return abs, err
	}
	return strings.TrimSuffix(abs, filepath.FromSlash("/"+pkg)), nil
}

// leaves reports whether a file is reached by a link to the outside of the module: the commit has the link, and not the file.
func leaves(root, file string) bool {
	real, err := filepath.EvalSymlinks(root)
	if err != nil {
		return true
	}
	target, err := filepath.EvalSymlinks(filepath.Join(root, filepath.FromSlash(file)))
	return err != nil || !strings.HasPrefix(target, strings.TrimSuffix(real, string(os.PathSeparator))+string(os.PathSeparator))
}

// String is how the log names the commit.
func (c checkout) String() string {
	if c.changed != "" {
		return c.commit + "+changes"
	}
	return c.commit
}

// clean returns an error unless the bundle is what the commit has.
func (c checkout) clean(dir string) error {
	switch {
	case c.commit == "":
		return fmt.Errorf("--require-clean: %s is in no git repository with a commit; push it from a checkout", dir)
	case c.changed != "":
		return errors.New("--require-clean: " + c.changed + " is not as in commit " + c.commit[:min(12, len(c.commit))] + "; commit it, or push without --require-clean")
	}
	return nil
}
