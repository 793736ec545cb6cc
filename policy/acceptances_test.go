package policy_test

import (
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"stele.dev/stele/policy/bundles"
	"stele.dev/stele/policy/compile"
	"stele.dev/stele/policy/plan"
	"stele.dev/stele/schemas"
)

func TestAcceptancesAreNotPartOfThePolicy(t *testing.T) {
	fsys := fstest.MapFS{
		"cue.mod/module.cue": {Data: []byte("module: \"example.com/test\"\nlanguage: version: \"v0.17.0\"\n")},
		"bundle.cue":         {Data: []byte("package dev\nimport \"stele.dev/policy\"\nbundle: policy.#Bundle & {cluster: \"dev\"}\n")},
	}
	compiled := func() *compile.Result {
		source, err := bundles.ReadFS(fsys, ".")
		require.NoError(t, err)
		result, diags := compile.Bundle(source)
		require.Empty(t, diags)
		return result
	}
	before := compiled()
	fsys["accept.cue"] = &fstest.MapFile{Data: []byte("package dev\naccept: [\n\t{rule: \"GRANT_ADDED\", path: \"t/bindings/b\", subject: \"group:devs\", until: \"2026-12-31\", reason: \"T-1\"},\n]\n")}
	after := compiled()
	a, digestBefore := before.Form.Encode()
	b, digestAfter := after.Form.Encode()
	assert.Equal(t, a, b)
	assert.Equal(t, digestBefore, digestAfter)
	require.Len(t, after.Accept, 1)
	got := after.Accept[0]
	assert.Equal(t, 3, got.Source.Line)
	assert.Equal(t, "accept.cue", got.Source.File)
	got.Source = schemas.Position{}
	assert.Equal(t, plan.Accepted{Rule: "GRANT_ADDED", Path: "t/bindings/b", Subject: "group:devs", Until: "2026-12-31", Reason: "T-1"}, got)
}
