package importing_test

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"stele.dev/stele/cmd/stele/internal/importing"
)

const role = "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: reader}\nrules: [{apiGroups: [\"\"], resources: [configmaps], verbs: [get, attest]}]\n"

func run(t *testing.T, stdin string, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	cmd := importing.Command()
	var out, errs bytes.Buffer
	cmd.SetArgs(args)
	cmd.SetIn(strings.NewReader(stdin))
	cmd.SetOut(&out)
	cmd.SetErr(&errs)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	err = cmd.Execute()
	return out.String(), errs.String(), err
}

func TestImportPrintsCUEAndNotes(t *testing.T) {
	out, errs, err := run(t, role, "-", "--team", "my-web")
	if err != nil || !strings.HasPrefix(out, "package my_web\n\nteam: rbac: ") || !strings.Contains(errs, `standard input:4: the verb "attest"`) {
		t.Errorf("%v\n%s\n%s", err, out, errs)
	}
	out, _, err = run(t, role, "-", "--team", "web", "--package", "base")
	if err != nil || !strings.HasPrefix(out, "package base\n\nbundle: teams: web: rbac: ") {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestImportWritesFilesOnce(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.WriteFile("role.yaml", []byte(role), 0o644); err != nil {
		t.Fatal(err)
	}
	out, _, err := run(t, "", ".", "--team", "web", "--out", "teams/web")
	if err != nil || out != "wrote teams/web/rbac.cue\nimported roles: 1\n1 note on standard error\n" {
		t.Errorf("%v\n%s", err, out)
	}
	before, _ := os.ReadFile("teams/web/rbac.cue")
	if _, _, err = run(t, "", "role.yaml", "--team", "web", "--out", "teams/web"); err == nil || !strings.Contains(err.Error(), "in the way") {
		t.Errorf("got %v", err)
	}
	if after, _ := os.ReadFile("teams/web/rbac.cue"); !bytes.Equal(before, after) || len(before) == 0 {
		t.Error("the file was changed")
	}
}

func TestImportOfBadInputWritesNothing(t *testing.T) {
	t.Chdir(t.TempDir())
	for want, args := range map[string][]string{
		"missing --team":                {"-"},
		"missing FILE":                  {"--team", "web"},
		"no such file":                  {"missing.yaml", "--team", "web", "--out", "x"},
		"--kind":                        {"-", "--team", "web", "--kind", "pods"},
		"standard input: line 1":        {"-", "--team", "web", "--out", "x"},
		"--from-cluster takes no files": {"-", "--team", "web", "--from-cluster"},
	} {
		if _, _, err := run(t, "a: [", args...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: got %v, want %q", args, err, want)
		}
	}
	if entries, _ := os.ReadDir("."); len(entries) != 0 {
		t.Errorf("something was written: %v", entries)
	}
}
