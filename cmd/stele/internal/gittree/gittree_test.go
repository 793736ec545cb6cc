package gittree_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"stele.dev/stele/cmd/stele/internal/gittree"
	"stele.dev/stele/policy/bundles"
)

// repository is a git repository with a module in its folder policy.
type repository struct {
	*gittree.Repository
	t *testing.T
}

func newRepository(t *testing.T) *repository {
	r := &repository{&gittree.Repository{Dir: t.TempDir()}, t}
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
