//go:build !allbuckets

package buckets_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"stele.dev/stele/cmd/stele/internal/buckets"
)

func TestBucketsOfOtherBuildsAreRefusedByName(t *testing.T) {
	for place, scheme := range map[string]string{"gs://bucket/folder": "gs://", "azblob://container": "azblob://"} {
		for _, open := range []func() (*buckets.Place, error){
			func() (*buckets.Place, error) { return buckets.Create(t.Context(), place) },
			func() (*buckets.Place, error) { return buckets.Open(t.Context(), place) },
			func() (*buckets.Place, error) { return buckets.OpenShared(t.Context(), place) },
		} {
			_, err := open()
			require.ErrorContains(t, err, "this build of stele has no "+scheme)
			require.ErrorContains(t, err, "-tags "+buckets.Tag)
		}
	}
}
