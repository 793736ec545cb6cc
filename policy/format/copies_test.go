package format_test

import (
	"slices"
	"testing"
	"testing/fstest"

	"stele.dev/stele/policy/format"
)

func TestCopies(t *testing.T) {
	module := func(change func(fstest.MapFS)) fstest.MapFS {
		files := fstest.MapFS{"cue.mod/module.cue": {Data: []byte("module: \"example.com/a\"\n")}}
		for p, data := range format.Files() {
			files[p] = &fstest.MapFile{Data: data}
		}
		change(files)
		return files
	}
	const controlplane = "cue.mod/pkg/stele.dev/policy/controlplane/controlplane.cue"
	const packs = "cue.mod/pkg/stele.dev/policy/packs/packs.cue"
	for name, c := range map[string]struct {
		change func(fstest.MapFS)
		want   []format.Copy
	}{
		"current": {func(fstest.MapFS) {}, nil},
		"missing": {func(m fstest.MapFS) { delete(m, format.File) }, []format.Copy{{Path: format.File, State: format.Missing}}},
		"changed": {func(m fstest.MapFS) { m[format.File] = &fstest.MapFile{Data: []byte("package policy\n")} }, []format.Copy{{Path: format.File, State: format.Changed}}},
		"unknown": {func(m fstest.MapFS) { m["cue.mod/pkg/stele.dev/policy/old/old.cue"] = &fstest.MapFile{} },
			[]format.Copy{{Path: "cue.mod/pkg/stele.dev/policy/old/old.cue", State: format.Unknown}}},
		"no copies at all": {func(m fstest.MapFS) { delete(m, format.File); delete(m, controlplane); delete(m, packs) },
			[]format.Copy{{Path: controlplane, State: format.Missing}, {Path: packs, State: format.Missing}, {Path: format.File, State: format.Missing}}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := format.Copies(module(c.change))
			if err != nil || !slices.Equal(got, c.want) {
				t.Errorf("got %v, %v, want %v", got, err, c.want)
			}
		})
	}
}
