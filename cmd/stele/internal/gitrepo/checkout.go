// Package gitrepo reads git repositories in folders that strangers may have written: the commit of a bundle's files, what
// differs from it, bundles of other commits.
package gitrepo

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"stele.dev/stele/policy/bundles"
)

// Checkout is the commit of a bundle's files.
type Checkout struct {
	commit string // HEAD; empty outside of a repository
	// Changed are the files that differ from the commit, relative to the module, sorted: tracked files of the module, and
	// files of the bundle that are not in the commit.
	Changed []string
}

// ReadCheckout returns the commit of the module that a bundle belongs to, and what differs from it. It does not trust git's
// index for the files of the bundle: it compares their contents with the commit. The environment decides nothing: it is
// the repository that contains the module.
func ReadCheckout(ctx context.Context, dir string, source *bundles.Source) (Checkout, error) {
	root, err := ModuleRoot(dir, source.Package)
	if err != nil {
		return Checkout{}, err
	}
	r := repository{ctx, root}
	head, err := r.git("", "rev-parse", "--verify", "--quiet", "HEAD")
	if err != nil {
		return Checkout{}, ctx.Err() // no git, no repository, or no commit in it
	}
	c := Checkout{commit: strings.TrimSpace(head)}
	// The mode of a file is not part of a bundle.
	changes, err := r.git("", "-c", "core.fileMode=false", "status", "--porcelain", "-z", "--no-renames", "--untracked-files=no", "--ignore-submodules=dirty", "--", ".")
	if err != nil {
		return c, fmt.Errorf("git status: %w", err)
	}
	prefix, err := r.git("", "rev-parse", "--show-prefix")
	if err != nil {
		return c, fmt.Errorf("git rev-parse: %w", err)
	}
	prefix = strings.TrimSuffix(prefix, "\n")
	for entry := range strings.SplitSeq(changes, "\x00") {
		if len(entry) > 3 { // its paths are relative to the repository
			c.Changed = append(c.Changed, strings.TrimPrefix(entry[3:], prefix))
		}
	}
	differing, err := r.differing(source)
	if err != nil {
		return c, err
	}
	c.Changed = append(c.Changed, differing...)
	slices.Sort(c.Changed)
	c.Changed = slices.Compact(c.Changed)
	return c, nil
}

// repository runs git in the folder of a module.
type repository struct {
	ctx  context.Context
	root string
}

// git runs git with an input, and returns its output.
func (r *repository) git(input string, args ...string) (string, error) {
	cmd, err := command(r.ctx, r.root, args...)
	if err != nil {
		return "", err
	}
	cmd.Stdin = strings.NewReader(input)
	out, err := cmd.Output()
	return string(out), err
}

// differing returns the files of a bundle whose contents are not those of the commit.
func (r *repository) differing(source *bundles.Source) (changed []string, err error) {
	tree, err := r.git("", "ls-tree", "-r", "-z", "HEAD", "--", ".")
	if err != nil {
		return nil, fmt.Errorf("git ls-tree: %w", err)
	}
	blobs := map[string]string{}
	for entry := range strings.SplitSeq(tree, "\x00") {
		head, name, _ := strings.Cut(entry, "\t")
		if fields := strings.Fields(head); len(fields) == 3 {
			blobs[name] = fields[2]
		}
	}
	real, err := filepath.EvalSymlinks(r.root)
	if err != nil {
		return nil, err
	}
	var names, targets []string // the files, and what they are after links
	for _, f := range source.Files {
		target, err := filepath.EvalSymlinks(filepath.Join(real, filepath.FromSlash(f.Path)))
		if err == nil {
			target, err = filepath.Rel(real, target)
		}
		target = filepath.ToSlash(target)
		if err != nil || blobs[f.Path] == "" || blobs[target] == "" || strings.ContainsRune(target, '\n') {
			changed = append(changed, f.Path) // not in the commit, or a link to what is not
			continue
		}
		names, targets = append(names, f.Path), append(targets, target)
	}
	if len(targets) == 0 {
		return changed, nil
	}
	// The paths are relative to the root of the repository: older versions of git read them so in any folder.
	place, err := r.git("", "rev-parse", "--show-toplevel", "--show-prefix")
	if err != nil {
		return nil, fmt.Errorf("git rev-parse: %w", err)
	}
	top, prefix, _ := strings.Cut(strings.TrimSuffix(place, "\n"), "\n")
	var paths strings.Builder
	for _, name := range targets {
		paths.WriteString(prefix + name + "\n")
	}
	hashes, err := (&repository{r.ctx, top}).git(paths.String(), "hash-object", "--stdin-paths")
	if err != nil {
		return nil, fmt.Errorf("git hash-object: %w", err)
	}
	lines := strings.Fields(hashes)
	for i, name := range names {
		if i >= len(lines) || lines[i] != blobs[targets[i]] {
			changed = append(changed, name)
		}
	}
	return changed, nil
}

// ModuleRoot returns the folder of the module whose package is in dir.
func ModuleRoot(dir, pkg string) (string, error) {
	abs, err := filepath.Abs(dir)
	if err != nil || pkg == "." {
		return abs, err
	}
	return strings.TrimSuffix(abs, filepath.FromSlash("/"+pkg)), nil
}

// Prefix returns the path of a module's folder in its repository, with a slash at its end; "" if it is the root of the
// repository, or in none.
func Prefix(ctx context.Context, root string) string {
	prefix, err := FindPrefix(ctx, root)
	if err != nil {
		return ""
	}
	return prefix
}

// FindPrefix is like [Prefix], but returns an error if the folder is in no repository, or if git cannot be run.
func FindPrefix(ctx context.Context, root string) (string, error) {
	r := repository{ctx, root}
	prefix, err := r.git("", "rev-parse", "--show-prefix")
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return "", errors.New(strings.TrimSpace(string(exit.Stderr)))
	}
	return strings.TrimSuffix(prefix, "\n"), err
}

// ChangedSince returns the files of a module that differ from a revision of git, or, if HEAD descends from it only in part,
// from the commit where they parted. They are relative to the module, and include files that git does not track.
func ChangedSince(ctx context.Context, root, revision string) ([]string, error) {
	r := repository{ctx, root}
	commit, err := r.git("", "rev-parse", "--verify", "--quiet", "--end-of-options", revision+"^{commit}")
	if err != nil {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		return nil, fmt.Errorf("git knows no commit %q in %s; fetch it, or name another one", revision, root)
	}
	from := strings.TrimSpace(commit)
	if base, err := r.git("", "merge-base", from, "HEAD"); err == nil {
		from = strings.TrimSpace(base)
	}
	tracked, err := r.git("", "diff", "--no-ext-diff", "--no-textconv", "--ignore-submodules=dirty", "--name-only", "-z", "--no-renames", "--relative", from, "--", ".")
	if err != nil {
		return nil, fmt.Errorf("git diff: %w", err)
	}
	others, err := r.git("", "ls-files", "-z", "--others", "--", ".")
	if err != nil {
		return nil, fmt.Errorf("git ls-files: %w", err)
	}
	return slices.DeleteFunc(strings.Split(tracked+others, "\x00"), func(name string) bool { return name == "" }), nil
}

// Named returns the commit that a user names for a bundle, in the form in which policies name it. In a repository it
// must be the commit that is checked out. Elsewhere nothing can be verified, and the name is returned as it is.
func (c Checkout) Named(ctx context.Context, dir, name string) (string, error) {
	if c.commit == "" {
		return name, nil
	}
	r := repository{ctx, dir}
	commit, err := r.git("", "rev-parse", "--verify", "--quiet", "--end-of-options", name+"^{commit}")
	switch {
	case ctx.Err() != nil:
		return "", ctx.Err()
	case err != nil:
		return "", fmt.Errorf("--commit: git knows no commit %q in %s; leave --commit out to name the one that is checked out", name, dir)
	case strings.TrimSpace(commit) != c.commit:
		return "", fmt.Errorf("--commit: %s is commit %.12s, and %.12s is checked out; check it out, or leave --commit out", name, commit, c.commit)
	}
	return c.String(), nil
}

// String returns the commit in the form in which policies name it.
func (c Checkout) String() string {
	if len(c.Changed) > 0 {
		return c.commit + "+changes"
	}
	return c.commit
}

// Clean returns an error if the bundle differs from the commit.
func (c Checkout) Clean(dir string) error {
	switch {
	case c.commit == "":
		return fmt.Errorf("--require-clean: %s is in no git repository with a commit; push it from a checkout", dir)
	case len(c.Changed) > 0:
		more := ""
		if n := len(c.Changed) - 1; n > 0 {
			more = fmt.Sprintf(" (and %d more)", n)
		}
		return errors.New("--require-clean: " + c.Changed[0] + more + " is not as in commit " + c.commit[:min(12, len(c.commit))] + "; commit it, or push without --require-clean")
	}
	return nil
}
