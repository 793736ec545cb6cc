package show

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/cmd/stele/internal/client"
	"stele.dev/stele/cmd/stele/internal/secrets"
	"stele.dev/stele/core/object/difference"
	"stele.dev/stele/core/resources/changes"
	"stele.dev/stele/schemas"
)

// The key of an item may be secret: it is part of the paths of what the item has.
func TestCountsShowNoSecretKeys(t *testing.T) {
	for _, hidden := range []secrets.Fields{secrets.Unknown(), secrets.Of(schema.GroupKind{Group: "example.com", Kind: "Vault"}, [][]string{{"spec", "tokens", schemas.Any, "token"}})} {
		var b strings.Builder
		p := &Statistics{Out: &Output{Writer: &b, utc: true}, Wide: true, Hidden: func(*changes.Change) secrets.Fields { return hidden }}
		c := &client.Change{Change: changes.Change{Type: "Updated", Time: "2026-11-21T11:29:58Z", Object: &changes.Object{Group: "example.com", Resource: "vaults", Kind: "Vault", Name: "v"}}}
		c.Difference = []difference.Entry{{}}
		c.Difference[0].Path = "spec.tokens[token=hunter2].uses"
		require.NoError(t, p.Print([]*client.Change{c}))
		require.NoError(t, p.End())
		assert.Contains(t, b.String(), "uses")
		assert.NotContains(t, b.String(), "hunter2")
	}
}
