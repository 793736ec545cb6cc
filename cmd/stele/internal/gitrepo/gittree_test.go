package gitrepo_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"stele.dev/stele/cmd/stele/internal/gitrepo"
	"stele.dev/stele/policy/bundles"
)

// repository is a git repository with a module in its folder policy.
type repository struct {
	*gitrepo.Repository
	t *testing.T
}

func newRepository(t *testing.T) *repository {
	r := &repository{&gitrepo.Repository{Dir: t.TempDir()}, t}
	r.git("init", "--quiet", "--initial-branch=main")
	r.write("policy/cue.mod/module.cue", "module: \"example.com/policy\"\nlanguage: version: \"v0.17.0\"\n")
	r.write("policy/clusters/prod/bundle.cue", "package prod\nbundle: 1\n")
	r.write("policy/clusters/prod/README.md", "not read")
	r.write("elsewhere/other.cue", "package other\n")
	return r
}

func (r *repository) git(args ...string) string {
	r.t.Helper()
	cmd := exec.Command("git", append([]string{"-C", r.Dir, "-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "commit.gpgSign=false"}, args...)...)
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL="+os.DevNull, "GIT_CONFIG_NOSYSTEM=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		r.t.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

func (r *repository) write(name, text string) {
	r.t.Helper()
	file := filepath.Join(r.Dir, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		r.t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		r.t.Fatal(err)
	}
}

func (r *repository) commit() string {
	r.git("add", "--all")
	r.git("commit", "--quiet", "--allow-empty", "--message=m")
	return r.git("rev-parse", "HEAD")
}

func paths(s *bundles.Source) (all []string) {
	for _, f := range s.Files {
		all = append(all, f.Path)
	}
	return all
}

func TestABundleIsReadFromACommit(t *testing.T) {
	r := newRepository(t)
	commit := r.commit()
	r.write("policy/clusters/prod/bundle.cue", "package prod\nchanged: 1\n")
	r.write("policy/clusters/prod/new.cue", "package prod\n")
	got, err := r.Commit(t.Context(), "main")
	if err != nil || got != commit {
		t.Fatalf("%q, %v; want %s", got, err, commit)
	}
	source, err := r.Bundle(t.Context(), commit, "policy/clusters/prod")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"clusters/prod/bundle.cue", "cue.mod/module.cue"}, paths(source)); diff != "" || source.Package != "clusters/prod" {
		t.Errorf("package %s: %s", source.Package, diff)
	}
	r.git("stash", "--include-untracked")
	same, err := bundles.ReadDir(filepath.Join(r.Dir, "policy/clusters/prod"))
	if err != nil || same.Digest() != source.Digest() {
		t.Errorf("the checkout of the commit has another digest (%v)", err)
	}
}

func TestALinkIsReadWithinTheModule(t *testing.T) {
	r := newRepository(t)
	if err := os.Symlink("bundle.cue", filepath.Join(r.Dir, "policy/clusters/prod/linked.cue")); err != nil {
		t.Fatal(err)
	}
	source, err := r.Bundle(t.Context(), r.commit(), "policy/clusters/prod")
	if err != nil {
		t.Fatal(err)
	}
	at := slices.Index(paths(source), "clusters/prod/linked.cue")
	if at < 0 || string(source.Files[at].Data) != "package prod\nbundle: 1\n" {
		t.Errorf("files %v", paths(source))
	}
	if err := os.Symlink("../../../elsewhere/other.cue", filepath.Join(r.Dir, "policy/clusters/prod/outside.cue")); err != nil {
		t.Fatal(err)
	}
	if _, err = r.Bundle(t.Context(), r.commit(), "policy/clusters/prod"); err == nil || !strings.Contains(err.Error(), "policy/clusters/prod/outside.cue is a link to") {
		t.Error(err)
	}
}

func TestWhatIsNotThereIsNamed(t *testing.T) {
	r := newRepository(t)
	commit := r.commit()
	if _, err := r.Commit(t.Context(), "nowhere"); err == nil || !strings.Contains(err.Error(), `git knows no commit "nowhere"`) {
		t.Error(err)
	}
	for dir, want := range map[string]string{
		"policy/clusters/dev": "has no folder policy/clusters/dev",
		"elsewhere":           "elsewhere is in no CUE module",
		"../x":                "is not a folder in the repository",
	} {
		if _, err := r.Bundle(t.Context(), commit, dir); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", dir, err, want)
		}
	}
}

// The archive in memory takes a backslash for a slash, so the file would be part of another package than in a checkout.
func TestABackslashIsNoSlash(t *testing.T) {
	r := newRepository(t)
	r.write(`policy/clusters\prod\more.cue`, "package prod\nmore: 1\n")
	if source, err := r.Bundle(t.Context(), r.commit(), "policy/clusters/prod"); err == nil || !strings.Contains(err.Error(), `has a \ in its path`) {
		t.Errorf("%v, %v", paths(source), err)
	}
}

// A tree can name the same tree many times, so that a few objects are billions of files.
func TestATreeOfBillionsOfFilesIsRefused(t *testing.T) {
	r := newRepository(t)
	r.commit()
	entry := "100644 blob " + r.git("rev-parse", "HEAD:policy/clusters/prod/bundle.cue") + "\tx"
	for range 8 {
		var tree strings.Builder
		for i := range 32 {
			fmt.Fprintf(&tree, "%s%02d\n", entry, i)
		}
		cmd := exec.Command("git", "-C", r.Dir, "mktree")
		cmd.Stdin = strings.NewReader(tree.String())
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		entry = "040000 tree " + strings.TrimSpace(string(out)) + "\tx"
	}
	hash := strings.Fields(entry)[2]
	defer func(n int) { *gitrepo.MaxList = n }(*gitrepo.MaxList)
	*gitrepo.MaxList = 1 << 20
	commit := r.git("commit-tree", "-m", "m", hash)
	if _, err := r.Bundle(t.Context(), commit, "x00"); err == nil || !strings.Contains(err.Error(), "too many files") {
		t.Error(err)
	}
}

func TestALongCommitIsNotRead(t *testing.T) {
	r := newRepository(t)
	r.commit()
	r.git("commit", "--quiet", "--allow-empty", "--file="+long(t))
	if text, err := r.CommitObject(t.Context(), r.git("rev-parse", "HEAD")); err == nil || !strings.Contains(err.Error(), "too large objects") {
		t.Errorf("%d bytes, %v", len(text), err)
	}
}

// long returns a file of 2 MiB.
func long(t *testing.T) string {
	file := filepath.Join(t.TempDir(), "message")
	if err := os.WriteFile(file, bytes.Repeat([]byte("0123456\n"), 1<<18), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}
