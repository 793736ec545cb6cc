package host

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// given is a context that has ended: with it, a question that would have to wait fails at once.
func given() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

func TestOneUserHasHalfOfTheRoomAndMoreUsersEqualParts(t *testing.T) {
	for users, share := range map[int]int{1: 64, 2: 42, 3: 32, 7: 16, 31: 4} {
		r := newRoom(128)
		for range 128 {
			for u := range users {
				_, _ = r.enter(given(), fmt.Sprint(u))
			}
		}
		for _, g := range r.guests {
			require.InDelta(t, share, g.held, 1, "of %d users", users)
		}
		_, err := r.enter(given(), "another")
		require.NoError(t, err, "beside %d users", users)
	}
}

// When all places are taken, waiting users get the next ones in turns: a user with many questions gets no
// second place before a user with one question gets the first.
func TestWhoWaitsIsServedInTurns(t *testing.T) {
	r := newRoom(3)
	var inside []*guest
	for _, user := range []string{"a", "b", "c"} {
		g, err := r.enter(t.Context(), user)
		require.NoError(t, err)
		inside = append(inside, g)
	}
	line := []string{"flood", "flood", "flood", "flood", "dora", "emil"}
	var callers sync.WaitGroup
	for n, user := range line {
		callers.Go(func() { _, _ = r.enter(t.Context(), user) })
		for r.queued() <= n {
			runtime.Gosched()
		}
	}
	held, served := map[string]int{}, []string(nil)
	for len(served) < len(line) {
		held[inside[0].user]--
		r.leave(inside[0])
		inside = inside[1:]
		for _, user := range []string{"flood", "dora", "emil"} {
			if g := r.guests[user]; g != nil && g.held > held[user] {
				held[user]++
				served, inside = append(served, user), append(inside, g)
			}
		}
	}
	callers.Wait()
	require.Equal(t, []string{"flood", "dora", "emil", "flood", "flood", "flood"}, served)
}

// queued returns the number of waiting questions.
func (r *room) queued() (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, g := range r.guests {
		n += g.questions.Len()
	}
	return n
}

// Invariants for any sequence of calls: no place is lost or given twice, nobody waits who may have a place,
// and no user without questions is remembered.
func TestTheRoomAtRandom(t *testing.T) {
	const places = 5
	r := newRoom(places)
	check := func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		held := 0
		for _, g := range r.guests {
			held += g.held
			if g.turn != nil && g.held < r.free {
				t.Errorf("%s holds %d of %d, waits, and %d are free", g.user, g.held, places, r.free)
			}
			if (g.turn == nil) != (g.questions.Len() == 0) || g.held == 0 && g.turn == nil {
				t.Errorf("%s: %+v", g.user, g)
			}
		}
		if held+r.free != places || r.free < 0 {
			t.Errorf("%d places are held and %d are free", held, r.free)
		}
	}
	random := rand.New(rand.NewPCG(1, 2))
	var users sync.WaitGroup
	for range 40 {
		user, rounds, give := fmt.Sprint(random.IntN(8)), 200, random.IntN(4) == 0
		users.Go(func() {
			for n := range rounds {
				ctx, cancel := context.WithCancel(t.Context())
				if give && n%2 == 0 {
					cancel()
				}
				if g, err := r.enter(ctx, user); err == nil {
					runtime.Gosched()
					check()
					r.leave(g)
				}
				check()
				cancel()
			}
		})
	}
	users.Wait()
	r.awaitEmpty(t.Context())
	require.Empty(t, r.guests)
	require.Equal(t, places, r.free)
	require.Zero(t, r.waiting.Len())
}
