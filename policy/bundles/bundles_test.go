package bundles_test

import (
	"os"
	"path/filepath"
	"testing"

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
