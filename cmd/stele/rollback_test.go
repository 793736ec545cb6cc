package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"stele.dev/stele/core/activation"
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
		p, err := before(list)
		require.NoError(t, err)
		require.Equal(t, string(want), p.Name)
		activate(want, uint64(100+revision))
	}
	_, err := before(list)
	assert.ErrorContains(t, err, "no policy was in force before a;")
	assert.ErrorContains(t, err, "\n  c, activated at revision 30")
	activate('c', 200)
	p, err := before(list)
	require.NoError(t, err)
	assert.Equal(t, "a", p.Name, "b had been rolled back")
}

func TestDurationsHaveDays(t *testing.T) {
	for text, want := range map[string]string{"90s": "1m30s", "7d": "168h", "1w1d1h": "193h", "24h": "24h", "0": "0s", "-1h": "-1h"} {
		var v durationValue
		require.NoError(t, v.Set(text), text)
		assert.Equal(t, want, v.String(), text)
	}
	var v durationValue
	for _, text := range []string{"", "d", "7 d", "7y", "1h7d", "999999d"} {
		assert.Error(t, v.Set(text), text)
	}
}
