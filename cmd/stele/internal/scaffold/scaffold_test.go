package scaffold_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"stele.dev/stele/cmd/stele/internal/scaffold"
	"stele.dev/stele/policy/format"
)

// run runs a command in the current folder.
func run(t *testing.T, cmd *cobra.Command, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	var out, errs bytes.Buffer
	cmd.SetArgs(args)
	cmd.SetOut(&out)
	cmd.SetErr(&errs)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	err = cmd.Execute()
	return out.String(), errs.String(), err
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestInitMakesARepository(t *testing.T) {
	t.Chdir(t.TempDir())
	out, _, err := run(t, scaffold.InitCommand(), "law", "--team", "shop", "--group", "shop.example.com")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"  teams/shop/website.cue\n", "  clusters/prod/cluster.cue\n", "next:\n  cd law\n  stele policy vet ./clusters/...\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	if out, _, err := run(t, scaffold.VendorCommand(), "law/clusters/dev", "--check"); err != nil {
		t.Errorf("vendor --check: %v\n%s", err, out)
	}
	if out, _, err := run(t, scaffold.FormatCommand(), "--check", "law"); err != nil {
		t.Errorf("fmt --check: %v\n%s", err, out)
	}
}

func TestInitRefusesAFolderWithFilesInTheWay(t *testing.T) {
	t.Chdir(t.TempDir())
	write(t, "law/README.md", "ours")
	write(t, "law/teams", "a file in place of a folder")
	_, _, err := run(t, scaffold.InitCommand(), "law")
	if err == nil || !strings.Contains(err.Error(), "README.md, teams") {
		t.Errorf("got %v", err)
	}
	if entries, _ := os.ReadDir("law"); len(entries) != 2 || read(t, "law/README.md") != "ours" {
		t.Errorf("something was written: %v", entries)
	}
	write(t, "empty/notes.txt", "")
	if _, _, err := run(t, scaffold.InitCommand(), "empty", "--team", "No Team"); err == nil || !strings.Contains(err.Error(), `team "No Team"`) {
		t.Errorf("got %v", err)
	}
	if _, _, err := run(t, scaffold.InitCommand(), "empty"); err != nil {
		t.Errorf("other files are not in the way: %v", err)
	}
}

func TestVendor(t *testing.T) {
	t.Chdir(t.TempDir())
	write(t, "cue.mod/module.cue", "module: \"example.com/a\"\nlanguage: version: \"v0.17.0\"\n")
	write(t, "cue.mod/pkg/stele.dev/policy/gone/gone.cue", "package gone\n")
	write(t, "cue.mod/pkg/other.example/a.cue", "package a\n")
	write(t, format.File, "package policy\n")
	out, _, err := run(t, scaffold.VendorCommand(), "--check")
	if err == nil || !strings.Contains(err.Error(), "4 definition files") || !strings.Contains(out, "gone.cue: unknown\n") || !strings.Contains(out, "policy/policy.cue: changed\n") {
		t.Errorf("got %v\n%s", err, out)
	}
	if read(t, format.File) != "package policy\n" {
		t.Error("--check wrote a file")
	}
	if out, _, err = run(t, scaffold.VendorCommand()); err != nil || !strings.Contains(out, "gone.cue: removed") {
		t.Errorf("got %v\n%s", err, out)
	}
	for p, data := range format.Files() {
		if read(t, p) != string(data) {
			t.Errorf("%s is not current", p)
		}
	}
	if _, err := os.Stat("cue.mod/pkg/stele.dev/policy/gone"); !os.IsNotExist(err) {
		t.Errorf("the folder of a removed package is still there: %v", err)
	}
	if read(t, "cue.mod/pkg/other.example/a.cue") != "package a\n" {
		t.Error("another module's file was changed")
	}
	if out, _, err = run(t, scaffold.VendorCommand(), "--check"); err != nil || !strings.Contains(out, "are those of this program") {
		t.Errorf("got %v\n%s", err, out)
	}
	if _, _, err = run(t, scaffold.VendorCommand(), t.TempDir()); err == nil || !strings.Contains(err.Error(), "is in no CUE module") {
		t.Errorf("got %v", err)
	}
}

func TestFormat(t *testing.T) {
	t.Chdir(t.TempDir())
	const bad, good = "package a\n// why\na:   1\n", "package a\n\n// why\na: 1\n"
	write(t, "cue.mod/module.cue", "module: \"example.com/a\"\nlanguage: version: \"v0.17.0\"\n")
	write(t, "cue.mod/pkg/other.example/a.cue", bad)
	write(t, "teams/a.cue", bad)
	write(t, "_ignored/a.cue", bad)
	write(t, "b.cue", good)
	out, _, err := run(t, scaffold.FormatCommand(), "--check")
	if err == nil || out != "teams/a.cue\n" || read(t, "teams/a.cue") != bad {
		t.Errorf("--check: %v\n%s", err, out)
	}
	if out, _, err = run(t, scaffold.FormatCommand(), "-d", "teams"); err != nil || !strings.Contains(out, "-a:   1\n+a: 1\n") || read(t, "teams/a.cue") != bad {
		t.Errorf("-d: %v\n%s", err, out)
	}
	if out, _, err = run(t, scaffold.FormatCommand()); err != nil || out != "teams/a.cue\n" || read(t, "teams/a.cue") != good {
		t.Errorf("%v\n%s\n%s", err, out, read(t, "teams/a.cue"))
	}
	if read(t, "cue.mod/pkg/other.example/a.cue") != bad || read(t, "_ignored/a.cue") != bad {
		t.Error("a file was changed that is not the module's")
	}
	for _, arg := range []string{"cue.mod/pkg/other.example/a.cue", "cue.mod/nothing.txt", "missing"} {
		if _, _, err := run(t, scaffold.FormatCommand(), arg); err == nil {
			t.Errorf("%s: no error", arg)
		}
	}
}

func TestFormatOfABrokenFileChangesNothing(t *testing.T) {
	t.Chdir(t.TempDir())
	write(t, "a.cue", "package a\na:   1\n")
	write(t, "b.cue", "package a\n\nb: {\n")
	out, errs, err := run(t, scaffold.FormatCommand(), ".")
	if err == nil || out != "" || !strings.HasPrefix(errs, "b.cue:") || read(t, "a.cue") != "package a\na:   1\n" {
		t.Errorf("%v\n%s\n%s", err, out, errs)
	}
}
