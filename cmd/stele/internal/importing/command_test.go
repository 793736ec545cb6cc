package importing_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"stele.dev/stele/cmd/stele/internal/importing"
)

const role = "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: reader}\nrules: [{apiGroups: [\"\"], resources: [configmaps], verbs: [get, applaud]}]\n"

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
	if err != nil || !strings.HasPrefix(out, "package my_web\n\nteam: rbac: ") || !strings.Contains(errs, `standard input:4: the verb "applaud"`) {
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

// With --into, rules about the kinds of the bundle are imported, and what the bundle refuses is a note at the line of the input.
func TestImportIntoABundle(t *testing.T) {
	t.Chdir(t.TempDir())
	for name, text := range map[string]string{
		"cue.mod/module.cue": "module: \"example.com/p\"\nlanguage: version: \"v0.17.0\"\n",
		"bundle.cue": `package main

import (
	"stele.dev/policy"
	w "example.com/p/web"
)

bundle: policy.#Bundle & {cluster: "a", teams: web: w.team & {contact: "#w", groups: ["*"], namespaces: ["web-*"]}}
`,
		"web/kinds.cue": `package web

#Thing: {size?: int}
team: kinds: "things.example.com": {group: "example.com", names: {kind: "Thing", plural: "things"}, storageVersion: "v1", versions: v1: #schema: spec?: #Thing}
`,
		"in.yaml": `apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: reader}
rules: [{apiGroups: [example.com], resources: [things, others], verbs: [get]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: readers}
roleRef: {kind: ClusterRole, name: reader}
subjects: [{kind: User, name: u}]
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.other.example}
spec:
  group: other.example
  scope: Namespaced
  names: {kind: Thing, plural: things, singular: thing}
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {weight: {type: integer}}}}}}}]
`,
	} {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	out, errs, err := run(t, "", "in.yaml", "--team", "web", "--into", ".", "--out", "web")
	if err != nil || !strings.Contains(errs, `in.yaml:4: "others" of rule 1 of the ClusterRole "reader" is left out`) ||
		!strings.Contains(errs, `in.yaml:6: vet refuses what is made of it (rbac.cue:5): "*" is not within web-*`) || strings.Count(errs, "\n") != 2 {
		t.Errorf("%v\n%s\n%s", err, out, errs)
	}
	kind, err := os.ReadFile("web/things.cue")
	if err != nil || !strings.Contains(string(kind), "#ThingOtherExample: ") {
		t.Errorf("%v\n%s", err, kind)
	}
}
