package policy_test

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/rogpeppe/go-internal/txtar"
	"stele.dev/stele/policy/bundles"
	"stele.dev/stele/policy/compile"
)

const (
	baseCUE     = "base/base.cue"
	databaseCUE = "teams/data/database.cue"
	accessCUE   = "teams/data/access.cue"
	admit       = "teams/data/admission.cue"
	deliveryCUE = "teams/delivery/kinds.cue"
	crds        = "teams/delivery/crds.cue"
	gauges      = "teams/delivery/crds/gauges.yaml"
	clusterCUE  = "clusters/dev/cluster.cue"
)

// A planted mistake replaces a text in a file by another. said is how the first diagnostic
// begins, its file and line, and todo is what it says to do.
type planted struct {
	name, file, old, new string
	said, todo           string
}

func TestWhatPeopleMistype(t *testing.T) {
	archive, err := txtar.ParseFile("testdata/mistakes/module.txtar")
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range mistakes {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			fsys := fstest.MapFS{}
			found := false
			for _, f := range archive.Files {
				text := string(f.Data)
				if f.Name == tc.file {
					found = true
					if !strings.Contains(text, tc.old) {
						t.Fatalf("%s has no %q", tc.file, tc.old)
					}
					text = strings.Replace(text, tc.old, tc.new, 1)
				}
				fsys[f.Name] = &fstest.MapFile{Data: []byte(text)}
			}
			if !found {
				fsys[tc.file] = &fstest.MapFile{Data: []byte(tc.new)}
			}
			source, err := bundles.ReadFS(fsys, "clusters/dev")
			if err != nil {
				t.Fatal(err)
			}
			compiled, diags := compile.Bundle(source)
			var got []string
			for _, d := range diags {
				got = append(got, d.String())
			}
			if compiled != nil {
				for _, d := range compiled.Warnings {
					got = append(got, "warning: "+d.String())
				}
			}
			t.Log(strings.Join(got, "\n"))
			switch {
			case tc.said == "" && len(got) > 0:
				t.Error("want it to be accepted")
			case tc.said == "":
			case len(got) == 0:
				t.Error("nothing is said")
			case !strings.HasPrefix(got[0], tc.said):
				t.Errorf("the first line must begin with %q", tc.said)
			case !strings.Contains(got[0], tc.todo):
				t.Errorf("the first line must say %q", tc.todo)
			}
			for _, line := range got {
				if strings.Contains(line, ".stele-bundle") {
					t.Errorf("a path of the program's own: %s", line)
				}
			}
		})
	}
}
