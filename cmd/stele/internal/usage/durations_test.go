package usage

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

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
