package gitrepo

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// harmless are options by which git starts no program that the configuration of a repository names, except for filters: see
// [withoutFilters]. A repository is whatever a folder contains, and somebody else may have written the folder.
var harmless = []string{
	"--no-optional-locks", "-c", "safe.bareRepository=explicit", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=" + os.DevNull,
}

// command returns a command that runs git in a folder that somebody else may have written. It runs no hooks, no file system
// monitors and no filters, and fetches nothing: objects that a partial clone lacks are missing. It fails if the folder is
// in a bare repository, because such a one can be hidden among the files of another repository.
func command(ctx context.Context, dir string, args ...string) (*exec.Cmd, error) {
	if err := checkFolder(dir); err != nil {
		return nil, err
	}
	filters, err := withoutFilters(ctx, dir)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, "git", append(append(append([]string{"-C", dir}, harmless...), filters...), args...)...)
	cmd.Env = environment(os.Environ())
	return cmd, nil
}

// checkFolder returns an error if a folder is in a bare repository. Versions of git before 2.38 do not know
// safe.bareRepository, and use it.
func checkFolder(dir string) error {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	for at := abs; ; at = filepath.Dir(at) {
		if _, err := os.Lstat(filepath.Join(at, ".git")); err == nil {
			return nil
		}
		if isBare(os.DirFS(at)) {
			return fmt.Errorf("%s looks like a bare git repository, whose configuration may start programs: git is not run in it; remove HEAD, objects and refs, or work in a checkout", at)
		}
		if at == filepath.Dir(at) {
			return nil
		}
	}
}

// isBare reports whether git could take a folder for a repository.
func isBare(folder fs.FS) bool {
	for _, name := range []string{"HEAD", "objects", "refs"} {
		if _, err := fs.Stat(folder, name); err != nil {
			return false
		}
	}
	return true
}

// withoutFilters returns options that make all filters that are configured in a folder do nothing. Reading the
// configuration starts no program.
func withoutFilters(ctx context.Context, dir string) (options []string, err error) {
	cmd := exec.CommandContext(ctx, "git", append(append([]string{"-C", dir}, harmless...), "config", "--null", "--name-only", "--get-regexp", `^filter\.`)...)
	cmd.Env = environment(os.Environ())
	out, err := cmd.Output()
	if err != nil {
		return nil, ctx.Err() // there are none, or no repository, which the command itself will tell
	}
	seen := map[string]bool{}
	for name := range strings.SplitSeq(string(out), "\x00") {
		end := strings.LastIndexByte(name, '.')
		if end < len("filter.") || seen[name[:end]] || strings.ContainsAny(name[:end], "=\n") {
			continue
		}
		seen[name[:end]] = true
		for _, what := range []string{"clean", "smudge", "process"} {
			options = append(options, "-c", name[:end]+"."+what+"=")
		}
		options = append(options, "-c", name[:end]+".required=false")
	}
	return options, nil
}

// environment returns the variables without those that lead git to another repository, index or working tree. Hooks of
// git set them. Nothing is fetched: the address of a promisor remote can name a program.
func environment(all []string) (kept []string) {
	for _, v := range all {
		if name, _, _ := strings.Cut(v, "="); !strings.HasPrefix(name, "GIT_") || strings.HasPrefix(name, "GIT_CONFIG_") && name != "GIT_CONFIG_PARAMETERS" {
			kept = append(kept, v)
		}
	}
	return append(kept, "LC_ALL=C", "GIT_NO_LAZY_FETCH=1", "GIT_ALLOW_PROTOCOL=none", "GIT_TERMINAL_PROMPT=0", "GIT_ATTR_NOSYSTEM=1")
}
