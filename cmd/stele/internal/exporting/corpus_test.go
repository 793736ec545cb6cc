package exporting_test

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
	"stele.dev/stele/cmd/stele/internal/exporting"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/bundles"
	"stele.dev/stele/policy/compile"
	"stele.dev/stele/policy/importing"
	"stele.dev/stele/schemas"
)

// What users have is imported, compiled, exported so that kube-apiserver accepts it, and imported again. Each step keeps what the policy
// means, or says what it loses.
func TestFilesOfUsersGoThereAndBack(t *testing.T) {
	files, err := filepath.Glob("testdata/corpus/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal("no corpus", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			form := importedForm(t, data)
			again := importedForm(t, exportedText(t, form))
			if was, is := meaningOf(form), meaningOf(again); !reflect.DeepEqual(was, is) {
				for part := range was {
					if !reflect.DeepEqual(was[part], is[part]) {
						t.Errorf("%s was %v, and is %v", part, was[part], is[part])
					}
				}
			}
		})
	}
}

// kube-apiserver accepts what is exported of the examples, and it is imported again.
func TestExamplesGoThereAndBack(t *testing.T) {
	for _, dir := range []string{"quickstart", "mutation", "packs/clusters/dev", "platform/clusters/dev", "platform/clusters/prod-eu", "gitops/clusters/dev", "controller/policy"} {
		t.Run(dir, func(t *testing.T) {
			source, err := bundles.ReadDir("../../../../examples/" + dir)
			if err != nil {
				t.Fatal(err)
			}
			result, diags := compile.Bundle(source)
			if len(diags) > 0 {
				t.Fatal(diags)
			}
			importedForm(t, exportedText(t, result.Form))
		})
	}
}

// exportedText exports a policy, and fails if kube-apiserver refuses a part.
func exportedText(t *testing.T, form *policy.Form) []byte {
	t.Helper()
	objects, notes := exporting.Objects(form)
	if said := strings.Join(notes, "\n"); strings.Contains(said, "refuses") {
		t.Error(said)
	}
	if p, _ := exporting.Audit(&form.Audit); p != nil {
		objects = append(objects, p)
	}
	var text []byte
	for _, o := range objects {
		data, err := yaml.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		text = append(append(text, "---\n"...), data...)
	}
	return text
}

// importedForm imports a text, and fails if what is written is refused.
func importedForm(t *testing.T, data []byte) *policy.Form {
	t.Helper()
	result, err := importing.Convert([]importing.Document{{Name: "in.yaml", Data: data}}, importing.Options{Package: "base", Team: "t", Whole: true, Folder: true,
		Compile: func(s *bundles.Source) (*compile.Result, schemas.Diagnostics, error) {
			result, diags := compile.Bundle(s)
			return result, diags, nil
		}})
	if err != nil {
		t.Fatalf("%v\n%s", err, data)
	}
	for _, n := range result.Notes {
		if strings.Contains(n.Message, "refuses") || strings.Contains(n.Message, "is not as its definition") {
			t.Error(n)
		}
	}
	s := &bundles.Source{Package: ".", Files: []bundles.File{
		{Path: bundles.ModuleFile, Data: []byte("module: \"example.com/a\"\nlanguage: version: \"v0.17.0\"\n")},
		{Path: "main.cue", Data: []byte("package main\n\nimport (\n\t\"stele.dev/policy\"\n\t\"example.com/a/base\"\n)\n\nbundle: policy.#Bundle & {cluster: \"a\", teams: t: {contact: \"#\", groups: [\"*\"], namespaces: [\"*\"]}}\nbundle: base.bundle\n")},
	}}
	for _, f := range result.Files {
		s.Files = append(s.Files, bundles.File{Path: "base/" + f.Path, Data: f.Data})
	}
	compiled, diags := compile.Bundle(s)
	if len(diags) > 0 {
		t.Fatalf("%v\n%s", diags, data)
	}
	return compiled.Form
}

// meaningOf returns what a policy means, without names that an export changes.
func meaningOf(f *policy.Form) map[string][]string {
	m := map[string][]string{}
	for i := range f.Kinds {
		if k := &f.Kinds[i]; !k.Builtin {
			m["kinds"] = append(m["kinds"], k.Resource()+" "+k.Kind)
		}
	}
	for _, r := range f.Roles {
		for _, rule := range r.Rules {
			m["roles"] = append(m["roles"], strings.Join([]string{r.Name, strings.Join(rule.APIGroups, ","), strings.Join(rule.Resources, ","), strings.Join(rule.NonResourceURLs, ","), strings.Join(rule.Verbs, ",")}, " "))
		}
	}
	for _, b := range f.Bindings {
		for _, s := range b.Subjects {
			m["bindings"] = append(m["bindings"], b.Role+" "+s.User+s.Group+" "+strings.Join(b.Namespaces, ","))
		}
	}
	for _, v := range f.Validations {
		m["validations"] = append(m["validations"], strings.Join(v.Match.APIGroups, ",")+" "+strings.Join(v.Match.Resources, ",")+" "+strings.Join(v.Match.Operations, ",")+" "+strings.Repeat("x", len(v.Validations)))
	}
	for _, v := range f.Mutations {
		m["mutations"] = append(m["mutations"], strings.Join(v.Match.Resources, ",")+" "+v.Mutations[0].Expression.Text)
	}
	for _, r := range f.Reviewers {
		m["webhooks"] = append(m["webhooks"], strings.Join(r.Rules[0].APIGroups, ",")+" "+strings.Join(r.Rules[0].Resources, ","))
	}
	for _, s := range f.Flow.FlowSchemas {
		for _, r := range s.Rules {
			m["flow"] = append(m["flow"], s.Name+" "+s.PriorityLevel+" "+strings.Join(r.Resources, ",")+" "+strings.Join(r.Verbs, ","))
		}
	}
	for _, r := range f.Audit.Rules {
		m["audit"] = append(m["audit"], r.Level+" "+strings.Join(r.APIGroups, ",")+" "+strings.Join(r.Resources, ","))
	}
	for _, list := range m {
		slices.Sort(list)
	}
	return m
}
