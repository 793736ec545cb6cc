package bundles_test

import (
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"stele.dev/stele/policy/bundles"
)

func TestBundlesOfAModule(t *testing.T) {
	root := t.TempDir()
	for name, text := range map[string]string{
		"cue.mod/module.cue":    "module: \"example.com/law@v0\"\nlanguage: version: \"v0.17.0\"\n",
		"base/base.cue":         "package base\nbundle: teams: {}\n",
		"teams/data/data.cue":   "package data\nimport \"example.com/law/lib\"\nteam: lib.x\n",
		"teams/idle/idle.cue":   "package idle\nteam: {}\n",
		"lib/lib.cue":           "package lib\nx: {}\n",
		"clusters/dev/c.cue":    "package dev\nimport (\n\t\"example.com/law/base\"\n\t\"example.com/law/teams/data\"\n)\nbundle: base.bundle\n\"x\": data.team\n",
		"clusters/prod/c.cue":   "package prod\nimport d \"example.com/law/teams/data:data\"\n\"bundle\": d.team\n",
		"clusters/broken/c.cue": "package broken\nimport \"example.com/law/base\"\nbundle: base.bundle & {\n",
	} {
		file := filepath.Join(root, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o700))
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	}
	source, err := bundles.ReadDir(root)
	require.NoError(t, err)
	m := bundles.ModuleOf(source)
	assert.Equal(t, []string{"clusters/dev"}, m.Of("clusters/dev"))
	assert.Equal(t, []string{"clusters/dev", "clusters/prod"}, m.Of("teams/data"))
	assert.Equal(t, []string{"clusters/dev", "clusters/prod"}, m.Of("lib"), "through a package that imports it")
	assert.Contains(t, m.Of("base"), "clusters/dev")
	assert.Empty(t, m.Of("teams/idle"))
	assert.Empty(t, m.Of("nowhere"))
	assert.Subset(t, m.Below("clusters"), []string{"clusters/dev", "clusters/prod"})
	assert.Equal(t, m.Below("."), m.Below("clusters"))
	assert.Equal(t, []string{"clusters/dev", "clusters/prod"}, m.Below("teams"))
}

func TestPathsWithControlCharactersAreRefused(t *testing.T) {
	for _, name := range []string{"a\n## forged.cue", "a\x1b[2K.cue", "a\r.cue", "teams\x7f/a.cue", "a\u202e.cue", "a\u2028.cue", "a\xff.cue"} {
		_, err := bundles.ReadFS(fstest.MapFS{name: {Data: []byte("package a\n")}}, ".")
		assert.ErrorContains(t, err, "the path has a control character", "%q", name)
		assert.False(t, bundles.ValidPath(name), "%q", name)
	}
	_, err := bundles.ReadFS(fstest.MapFS{"größe (1) and `b`|.cue": {Data: []byte("package a\n")}}, ".")
	assert.NoError(t, err)
}
