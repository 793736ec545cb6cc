package gitrepo_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"stele.dev/stele/cmd/stele/internal/gitrepo"
	"stele.dev/stele/policy/bundles"
)

// repository makes a git repository with a module of two packages in its folder policy, one commit.
func checkoutRepository(t *testing.T) (root string, git func(args ...string) string) {
	t.Helper()
	t.Setenv("GIT_CONFIG_GLOBAL", os.DevNull)
	t.Setenv("GIT_CONFIG_SYSTEM", os.DevNull)
	root = t.TempDir()
	write(t, root, map[string]string{
		"policy/cue.mod/module.cue":       "module: \"example.com/p\"\nlanguage: version: \"v0.17.0\"\n",
		"policy/clusters/dev/cluster.cue": "package dev\n\nimport \"example.com/p/team\"\n\nbundle: team.x\n",
		"policy/team/team.cue":            "package team\n\nx: 1\n",
		"policy/team/crds/a.yaml":         "a: 1\n",
		"other/file":                      "1\n",
		".gitignore":                      "secret*\n",
	})
	git = func(args ...string) string {
		t.Helper()
		cmd := exec.Command("git", append([]string{"-C", root, "-c", "user.name=x", "-c", "user.email=x@example.com", "-c", "protocol.file.allow=always"}, args...)...)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("git %s: %v\n%s", args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	git("init", "-q", "-b", "main")
	git("add", ".")
	git("commit", "-q", "-m", "one")
	return root, git
}

func write(t *testing.T, root string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		name = filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// A policy has the name of a commit only if all of the module is as in the commit.
func TestWhatDiffersFromTheCommit(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(t *testing.T, root string, git func(...string) string)
		want   []string
	}{
		"nothing":                       {func(*testing.T, string, func(...string) string) {}, nil},
		"a file of the bundle's folder": {edit("policy/clusters/dev/cluster.cue"), []string{"clusters/dev/cluster.cue"}},
		"a file of another folder":      {edit("policy/team/team.cue"), []string{"team/team.cue"}},
		"a data file":                   {edit("policy/team/crds/a.yaml"), []string{"team/crds/a.yaml"}},
		"a staged change": {func(t *testing.T, root string, git func(...string) string) {
			edit("policy/team/team.cue")(t, root, git)
			git("add", ".")
		}, []string{"team/team.cue"}},
		"a file outside of the module":     {edit("other/file"), nil},
		"a new file of the bundle":         {edit("policy/team/more.cue"), []string{"team/more.cue"}},
		"a new file that is no part of it": {edit("policy/team/README"), nil},
		"an ignored file of the bundle":    {edit("policy/team/secret.cue"), []string{"team/secret.cue"}},
		"a removed file":                   {func(t *testing.T, root string, _ func(...string) string) { remove(t, root, "policy/team/crds/a.yaml") }, []string{"team/crds/a.yaml"}},
		"a file that git must not look at": {func(t *testing.T, root string, git func(...string) string) {
			git("update-index", "--assume-unchanged", "policy/team/team.cue")
			edit("policy/team/team.cue")(t, root, git)
		}, []string{"team/team.cue"}},
		"a file that git must skip": {func(t *testing.T, root string, git func(...string) string) {
			git("update-index", "--skip-worktree", "policy/team/team.cue")
			edit("policy/team/team.cue")(t, root, git)
		}, []string{"team/team.cue"}},
		"the mode of a file": {func(t *testing.T, root string, _ func(...string) string) {
			_ = os.Chmod(filepath.Join(root, "policy/team/team.cue"), 0o755)
		}, nil},
		"a link to a file outside": {link("../../other/file", "policy/team/more.cue"), []string{"team/more.cue"}},
		"a committed link to an ignored file": {func(t *testing.T, root string, git func(...string) string) {
			write(t, root, map[string]string{"policy/team/secret/x.cue": "package team\n"})
			link("secret/x.cue", "policy/team/more.cue")(t, root, git)
			git("add", "policy/team/more.cue")
			git("commit", "-q", "-m", "two")
		}, []string{"team/more.cue", "team/secret/x.cue"}},
		"a committed link to a file that changed": {func(t *testing.T, root string, git func(...string) string) {
			link("../clusters/dev/cluster.cue", "policy/team/more.cue")(t, root, git)
			git("add", "policy/team/more.cue")
			git("commit", "-q", "-m", "two")
			edit("policy/clusters/dev/cluster.cue")(t, root, git)
		}, []string{"clusters/dev/cluster.cue", "team/more.cue"}},
		"another repository in the environment": {func(t *testing.T, root string, git func(...string) string) {
			edit("policy/team/team.cue")(t, root, git)
			other := t.TempDir()
			if out, err := exec.Command("git", "clone", "-q", root, other).CombinedOutput(); err != nil {
				t.Fatal(string(out))
			}
			t.Setenv("GIT_DIR", filepath.Join(other, ".git"))
			t.Setenv("GIT_WORK_TREE", other)
			t.Setenv("GIT_INDEX_FILE", filepath.Join(other, ".git/index"))
		}, []string{"team/team.cue"}},
		"a submodule in the module": {func(t *testing.T, root string, git func(...string) string) {
			other := t.TempDir()
			write(t, other, map[string]string{"lib.cue": "package lib\n"})
			for _, args := range [][]string{{"init", "-q"}, {"add", "."}, {"-c", "user.name=x", "-c", "user.email=x@example.com", "commit", "-q", "-m", "x"}} {
				if out, err := exec.Command("git", append([]string{"-C", other}, args...)...).CombinedOutput(); err != nil {
					t.Fatal(string(out))
				}
			}
			git("submodule", "add", "-q", other, "policy/lib")
			git("commit", "-q", "-m", "two")
		}, []string{"lib/lib.cue"}},
		"a nested module": {func(t *testing.T, root string, git func(...string) string) {
			write(t, root, map[string]string{"policy/nested/cue.mod/module.cue": "module: \"example.com/n\"\n", "policy/nested/n.cue": "package n\n"})
			git("add", ".")
			git("commit", "-q", "-m", "two")
			edit("policy/nested/n.cue")(t, root, git)
		}, []string{"nested/n.cue"}},
	} {
		t.Run(name, func(t *testing.T) {
			root, git := checkoutRepository(t)
			tc.change(t, root, git)
			dir := filepath.Join(root, "policy/clusters/dev")
			source, err := bundles.ReadDir(dir)
			if err != nil {
				source = &bundles.Source{Package: "clusters/dev", Files: []bundles.File{{Path: "team/more.cue"}}} // a link out of the module
			}
			c, err := gitrepo.ReadCheckout(t.Context(), dir, source)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, c.Changed); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			for _, v := range []string{"GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"} {
				_ = os.Unsetenv(v)
			}
			head := git("rev-parse", "HEAD")
			if len(tc.want) > 0 {
				head += "+changes"
			}
			if c.String() != head {
				t.Errorf("the commit is %s, want %s", c, head)
			}
			if err := c.Clean(dir); (err == nil) != (len(tc.want) == 0) {
				t.Errorf("--require-clean: %v", err)
			}
		})
	}
}

func edit(name string) func(*testing.T, string, func(...string) string) {
	return func(t *testing.T, root string, _ func(...string) string) {
		t.Helper()
		text, _ := os.ReadFile(filepath.Join(root, name))
		write(t, root, map[string]string{name: string(text) + "\n// changed\n"})
	}
}

func remove(t *testing.T, root, name string) {
	t.Helper()
	if err := os.Remove(filepath.Join(root, name)); err != nil {
		t.Fatal(err)
	}
}

func link(target, name string) func(*testing.T, string, func(...string) string) {
	return func(t *testing.T, root string, _ func(...string) string) {
		t.Helper()
		if err := os.Symlink(target, filepath.Join(root, name)); err != nil {
			t.Fatal(err)
		}
	}
}

// A commit that the user names must be the one that is checked out.
func TestNamedCommits(t *testing.T) {
	root, git := checkoutRepository(t)
	first := git("rev-parse", "HEAD")
	git("tag", "v1")
	dir := filepath.Join(root, "policy/clusters/dev")
	source, err := bundles.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	named := func(name string) string {
		c, err := gitrepo.ReadCheckout(t.Context(), dir, source)
		if err != nil {
			t.Fatal(err)
		}
		commit, err := c.Named(t.Context(), dir, name)
		if err != nil {
			return "error: " + strings.ReplaceAll(strings.ReplaceAll(err.Error(), dir, "DIR"), first[:12], "FIRST")
		}
		return commit
	}
	for _, name := range []string{first, first[:10], "v1", "HEAD", "main"} {
		if got := named(name); got != first {
			t.Errorf("%s: %s", name, got)
		}
	}
	if got, want := named("nonsense"), `error: --commit: git knows no commit "nonsense" in DIR; leave --commit out to name the one that is checked out`; got != want {
		t.Error(got)
	}
	edit("policy/team/team.cue")(t, root, git)
	if got := named("v1"); got != first+"+changes" {
		t.Error(got)
	}
	git("commit", "-q", "-a", "-m", "two")
	if got := named("v1"); !strings.HasPrefix(got, "error: --commit: v1 is commit FIRST, and ") {
		t.Error(got)
	}
	outside := t.TempDir()
	write(t, outside, map[string]string{"cue.mod/module.cue": "module: \"example.com/p\"\n", "a.cue": "package a\n"})
	if source, err = bundles.ReadDir(outside); err != nil {
		t.Fatal(err)
	}
	c, err := gitrepo.ReadCheckout(t.Context(), outside, source)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := c.Named(t.Context(), outside, "release 12"); got != "release 12" || err != nil {
		t.Error(got, err)
	}
}

func TestSince(t *testing.T) {
	root, git := checkoutRepository(t)
	git("checkout", "-q", "-b", "branch")
	edit("policy/team/team.cue")(t, root, git)
	edit("policy/clusters/dev/more.cue")(t, root, git)
	edit("other/file")(t, root, git)
	git("checkout", "-q", "main")
	git("commit", "-q", "-a", "--allow-empty", "-m", "two")
	got, err := gitrepo.ChangedSince(t.Context(), filepath.Join(root, "policy"), "HEAD~")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"team/team.cue", "clusters/dev/more.cue"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if _, err := gitrepo.ChangedSince(t.Context(), filepath.Join(root, "policy"), "nonsense"); err == nil || !strings.Contains(err.Error(), `git knows no commit "nonsense"`) {
		t.Error(err)
	}
}
