//go:build allbuckets

package buckets_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"stele.dev/stele/cmd/stele/internal/buckets"
)

func TestBucketsOfAllKindsAreOpened(t *testing.T) {
	t.Setenv("AZURE_STORAGE_ACCOUNT", "account")
	t.Setenv("AZURE_STORAGE_KEY", "a2V5")
	for _, place := range []string{"gs://bucket/folder?access_id=-", "azblob://container/folder"} {
		p, err := buckets.OpenShared(t.Context(), place)
		require.NoError(t, err)
		require.NoError(t, p.Close())
	}
}
