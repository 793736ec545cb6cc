package client

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"stele.dev/stele/core/resources/activation"
)

// A rollback goes back from policy to policy, whatever was rolled back before.
func TestRollbacksGoOnBackwards(t *testing.T) {
	policies := map[rune]*activation.Policy{}
	var list []*activation.Policy
	activate := func(name rune, revision uint64) {
		p := policies[name]
		if p == nil {
			p = &activation.Policy{}
			p.Name = string(name)
			policies[name] = p
		}
		p.Status.Revisions = append(p.Status.Revisions, revision)
		list = []*activation.Policy{p}
		for _, other := range policies {
			if other != p {
				list = append(list, other)
			}
		}
	}
	for i, name := range "abc" {
		activate(name, uint64(10*i+10))
	}
	for revision, want := range []rune{'b', 'a'} {
		p, err := PolicyBefore(list)
		require.NoError(t, err)
		require.Equal(t, string(want), p.Name)
		activate(want, uint64(100+revision))
	}
	_, err := PolicyBefore(list)
	assert.ErrorContains(t, err, "no policy was in force before a;")
	assert.ErrorContains(t, err, "\n  c, activated at revision 30")
	activate('c', 200)
	p, err := PolicyBefore(list)
	require.NoError(t, err)
	assert.Equal(t, "a", p.Name, "b had been rolled back")
}
