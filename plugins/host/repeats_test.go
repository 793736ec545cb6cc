package host

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestTheSameIsSaidOnceAMinute(t *testing.T) {
	var c repeats
	now := time.Now()
	says := func(text string, after time.Duration) string {
		before, ok := c.allow(text, now.Add(after))
		return fmt.Sprint(ok, before)
	}
	require.Equal(t, "true 0", says("it is missing", 0))
	require.Equal(t, "false 0", says("it is missing", time.Second))
	require.Equal(t, "true 0", says("it exited", time.Second), "which is another one")
	require.Equal(t, "false 0", says("it is missing", 59*time.Second), "as it has been said already")
	require.Equal(t, "true 2", says("it is missing", time.Minute))
	require.Equal(t, "true 0", says("it is missing", 2*time.Minute))
	for n := range 1000 {
		require.Equal(t, "true 0", says(fmt.Sprint("it exited, at ", n), 2*time.Minute))
	}
	require.LessOrEqual(t, len(c.logged), repeatsMax)
}
