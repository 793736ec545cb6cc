package buckets_test

import (
	"bytes"
	"io"
	"io/fs"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	_ "gocloud.dev/blob/memblob" // mem://
	"stele.dev/stele/cmd/stele/internal/buckets"
	"stele.dev/stele/eventlog/backup/stores"
)

func TestPlacesHoldFiles(t *testing.T) {
	dir, server := t.TempDir(), newS3(t)
	for _, place := range []string{dir + "/a/folder", "file://" + dir + "/url", "mem://", "mem:///a/folder", server.place("", ""), server.place("/a/folder", "")} {
		t.Run(place, func(t *testing.T) {
			p, err := buckets.Create(t.Context(), place)
			require.NoError(t, err)
			defer p.Close()
			for _, text := range []string{"first", "second, which replaces it"} {
				require.NoError(t, p.Put(t.Context(), "some/file", bytes.NewReader([]byte(text)), int64(len(text))))
				r, err := p.Open(t.Context(), "some/file")
				require.NoError(t, err)
				got, err := io.ReadAll(r)
				require.NoError(t, err)
				require.NoError(t, r.Close())
				assert.Equal(t, text, string(got))
				entries, err := p.List(t.Context(), "some/")
				require.NoError(t, err)
				assert.Equal(t, []stores.Entry{{Name: "some/file", Size: int64(len(text))}}, entries)
			}
			for range 2 { // also what is not there
				require.NoError(t, p.Remove(t.Context(), "some/file"))
			}
			entries, err := p.List(t.Context(), "")
			require.NoError(t, err)
			assert.Empty(t, entries)
			entries, err = p.List(t.Context(), "other")
			require.NoError(t, err)
			assert.Empty(t, entries)
			_, err = p.Open(t.Context(), "some/other")
			require.ErrorIs(t, err, fs.ErrNotExist)
			require.NoError(t, p.Commit())
		})
	}
}

func TestPlacesThatCannotBeAreExplained(t *testing.T) {
	for place, want := range map[string]string{
		"file://relative/path":        "three slashes",
		"ftp://host/folder":           "places begin with",
		"s3:///folder":                "does not name a bucket",
		filepath.Join("no", "folder"): "there is no folder or file",
	} {
		_, err := buckets.Open(t.Context(), place)
		require.ErrorContains(t, err, want, place)
	}
}
