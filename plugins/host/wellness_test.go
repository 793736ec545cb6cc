package host_test

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"stele.dev/stele/plugins/host"
)

// bindTo returns a binding of the program with a name.
func (f *fixture) bindTo(program string) *host.Binding {
	f.Helper()
	return f.bind(f.spec(func(s *host.Spec) { s.Name = program }))
}

// On a busy machine the first attempt to connect may fail. A plugin that the second one reaches must not
// count as lost.
func TestAPluginThatIsReachedByTheSecondAttemptIsNotStartedAnew(t *testing.T) {
	t.Parallel()
	f := newHost(t)
	b := f.bindTo("plugin-shy")
	for range 3 { // each of which takes 100 ms
		require.Empty(t, b.Authorize(context.Background(), "plugin-shy", question("eve", "slow")).Detail)
	}
	require.Zero(t, f.metric("restarts_total"))
}

func TestAPluginThatAnswersQuestionsIsWellThoughItDoesNotSaySoInTime(t *testing.T) {
	t.Parallel()
	f := newHost(t, func(o *host.Options) { o.HealthInterval, o.HealthTimeout = 50*time.Millisecond, 100*time.Millisecond })
	b := f.bindTo("plugin-busy")
	eventually(t, "it was asked often enough for its health", func() bool {
		a := b.Authorize(context.Background(), "plugin-busy", question("eve", "health-asked"))
		require.Empty(t, a.Detail)
		n, err := strconv.Atoi(a.Reason)
		must(t, err)
		return n > 5
	})
	require.Zero(t, f.metric("restarts_total"))
	eventually(t, "it is started anew when it answers nothing at all", func() bool { return f.metric("restarts_total") > 0 })
}
