package host_test

import (
	"context"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"stele.dev/stele/plugins/authorizerpb"
	"stele.dev/stele/plugins/host"
)

func TestAProgramIsAskedWhatItIsBeforeItHasWhatItNeeds(t *testing.T) {
	t.Parallel()
	f := newHost(t)
	is, err := f.Describe(t.Context(), f.spec(func(s *host.Spec) { s.Name = "plugin-raw" }))
	require.NoError(t, err)
	require.Equal(t, []string{"token"}, is.GetSecrets())
}

// Tools must return the same error as the server.
func TestAProgramThatDoesNotStartIsDescribedByTheSameError(t *testing.T) {
	t.Parallel()
	f := newHost(t)
	for _, name := range []string{"nothing", "../plugin", "plugin-exits", "plugin-old", "plugin-chatty", "plugin-tcp", "plugin-plain"} {
		t.Run(name, func(t *testing.T) {
			spec := f.spec(func(s *host.Spec) { s.Name = name })
			_, err := f.Describe(t.Context(), spec)
			require.Error(t, err)
			require.EqualError(t, f.Check(t.Context(), spec), err.Error())
		})
	}
}

func TestNothingIsLeftOfAProgramThatIsClosed(t *testing.T) {
	t.Parallel()
	f := newHost(t)
	p, err := f.Open(t.Context(), f.spec())
	require.NoError(t, err)
	_, err = p.Authorizer.Configure(t.Context(), &authorizerpb.ConfigureRequest{})
	require.NoError(t, err)
	answer, err := p.Authorizer.Authorize(context.Background(), question("alice", "pid"))
	require.NoError(t, err)
	require.Equal(t, allow, answer.GetDecision())
	pid, err := strconv.Atoi(answer.GetReason())
	require.NoError(t, err)
	p.Close()
	require.False(t, alive(pid))
	_, err = p.Authorizer.Authorize(context.Background(), question("alice", "pid"))
	require.Error(t, err)
}
