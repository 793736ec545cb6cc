package scaffold_test

import (
	"io/fs"
	"os"
	"path"
	"strings"
	"testing"
	"testing/fstest"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/cuecontext"
	"cuelang.org/go/cue/load"
	"sigs.k8s.io/yaml"
	"stele.dev/stele/cmd/stele/internal/scaffold"
	"stele.dev/stele/policy/bundles"
	"stele.dev/stele/policy/compile"
	"stele.dev/stele/policy/format"
	"stele.dev/stele/policy/formatting"
)

var names = map[string]scaffold.Names{
	"plain":  {Module: "example.com/policy", Team: "web", Group: "web.example.com"},
	"dashes": {Module: "corp.example/a/control-planes", Team: "data-stores", Group: "stores.data.corp.example"},
}

func files(t *testing.T, n scaffold.Names) fstest.MapFS {
	t.Helper()
	list, err := scaffold.Files(n)
	if err != nil {
		t.Fatal(err)
	}
	all := fstest.MapFS{}
	for _, f := range list {
		if strings.Contains(string(f.Data), "[[.") {
			t.Errorf("%s: a placeholder is left", f.Path)
		}
		all[f.Path] = &fstest.MapFile{Data: f.Data}
	}
	return all
}

func TestBothClustersCompileWithoutWarnings(t *testing.T) {
	for name, n := range names {
		for _, cluster := range []string{"dev", "prod"} {
			t.Run(name+"/"+cluster, func(t *testing.T) {
				source, err := bundles.ReadFS(files(t, n), "clusters/"+cluster)
				if err != nil {
					t.Fatal(err)
				}
				compiled, diags := compile.Bundle(source)
				if len(diags) > 0 {
					t.Fatal(diags)
				}
				if len(compiled.Warnings) > 0 {
					t.Errorf("warnings: %v", compiled.Warnings)
				}
				if f := compiled.Form; f.Cluster != cluster || len(f.Validations) != 1 || len(f.Audit.Rules) == 0 {
					t.Errorf("cluster %q with %d rules, and %+v", f.Cluster, len(f.Validations), f.Audit)
				}
			})
		}
	}
}

// TestCUEAcceptsEveryPackage does what `cue vet -c ./...` does, with the copies of the definitions and without stele.
func TestCUEAcceptsEveryPackage(t *testing.T) {
	dir := t.TempDir()
	if err := os.CopyFS(dir, files(t, names["dashes"])); err != nil {
		t.Fatal(err)
	}
	packages := 0
	for _, i := range load.Instances([]string{"./..."}, &load.Config{Dir: dir, Env: []string{"CUE_REGISTRY=none"}}) {
		if i.Err != nil {
			t.Fatal(i.Err)
		}
		packages++
		concrete := strings.Contains(i.Dir, "clusters") && path.Base(i.Dir) != "tests"
		if err := cuecontext.New().BuildInstance(i).Validate(cue.Concrete(concrete)); err != nil {
			t.Errorf("%s: %v", i.ImportPath, err)
		}
	}
	if packages != 7 {
		t.Errorf("%d packages", packages)
	}
}

func TestFilesAreFormattedAndParse(t *testing.T) {
	all := files(t, names["dashes"])
	err := fs.WalkDir(all, ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data := all[p].Data
		switch path.Ext(p) {
		case ".cue":
			if format.Has(p) {
				return nil
			}
			if formatted, diags := formatting.Source(p, data); len(diags) > 0 || string(formatted) != string(data) {
				t.Errorf("%s is not formatted: %v", p, diags)
			}
		case ".yaml", ".yml":
			if err := yaml.UnmarshalStrict(data, new(map[string]any)); err != nil {
				t.Errorf("%s: %v", p, err)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{"CODEOWNERS", "README.md", ".github/workflows/policy.yaml", ".gitignore", ".gitlab-ci.yml", "clusters/prod/tests/access.cue", "teams/data-stores/tests/websites.cue"} {
		if all[p] == nil {
			t.Errorf("%s is missing", p)
		}
	}
}

func TestImpossibleNamesAreRefused(t *testing.T) {
	good := names["plain"]
	for want, change := range map[string]func(*scaffold.Names){
		"is not the path of a CUE module": func(n *scaffold.Names) { n.Module = "Policy \"x\"" },
		"is not a name":                   func(n *scaffold.Names) { n.Team = "Web_1" },
		"choose another name":             func(n *scaffold.Names) { n.Team = "base" },
		"is not an API group":             func(n *scaffold.Names) { n.Group = "example" },
	} {
		n := good
		change(&n)
		if _, err := scaffold.Files(n); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: got %v, want %q", n, err, want)
		}
	}
}
