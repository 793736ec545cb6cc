package planning

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"stele.dev/stele/core/resources/plans"
	"stele.dev/stele/policy/bundles"
	"stele.dev/stele/policy/compile"
	"stele.dev/stele/policy/plan"
)

// platform returns the bundle of examples/platform after edits of a file: pairs of old and new text.
func platform(t *testing.T, file string, edits ...string) *loaded {
	t.Helper()
	root := filepath.Join("..", "..", "..", "..", "examples", "platform")
	module := fstest.MapFS{}
	require.NoError(t, fs.WalkDir(os.DirFS(root), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(filepath.Join(root, name))
		module[name] = &fstest.MapFile{Data: text}
		return err
	}))
	for i := 0; i < len(edits); i += 2 {
		text := string(module[file].Data)
		require.Contains(t, text, edits[i])
		module[file].Data = []byte(strings.Replace(text, edits[i], edits[i+1], 1))
	}
	return compiled(t, module, "clusters/dev")
}

// compiled compiles the bundle in a folder of a module.
func compiled(t *testing.T, module fs.FS, folder string) *loaded {
	t.Helper()
	source, err := bundles.ReadFS(module, folder)
	require.NoError(t, err)
	result, diags := compile.Bundle(source)
	require.Empty(t, diags)
	l, err := load(result)
	require.NoError(t, err)
	return l
}

// TestTheCommentOfTheDocumentation compares the comment that docs/REVIEW.md shows with the one that its example gives.
func TestTheCommentOfTheDocumentation(t *testing.T) {
	from := platform(t, "")
	to := platform(t, "teams/widgets/schema.cue", "observedGeneration?: int", "generation?: int", "port!:    int & >0 & <65536", "port!:    int & >0 & <=49151")
	p, err := plans.Make(t.Context(), plan.Sides{From: from.policy, To: to.policy}, plans.Options{})
	require.NoError(t, err)
	p.Notes = append(p.Notes, noRecords)
	p.From.Digest, p.To.Digest = oldDigest, newDigest // examples change
	part := Part{Plan: p, Name: "clusters/dev", Package: "clusters/dev"}
	comment := render(t, "markdown", []Part{part})
	for range 100 {
		require.Equal(t, comment, render(t, "markdown", []Part{part}))
	}
	const begin, end = "````markdown\n", "````\n"
	file := path.Join("..", "..", "..", "..", "docs", "REVIEW.md")
	docs, err := os.ReadFile(file)
	require.NoError(t, err)
	before, rest, ok := strings.Cut(string(docs), begin)
	require.True(t, ok, "docs/REVIEW.md has no comment")
	shown, after, ok := strings.Cut(rest, end)
	require.True(t, ok)
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(before+begin+comment+end+after), 0o600))
		return
	}
	assert.Equal(t, comment, shown)
}
