package fair_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"

	"stele.dev/stele/limits/fair"
)

// One key wants much; another that comes later is served in turn.
func TestKeysTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fair.New[string](1, 0)
		if err := s.Acquire(t.Context(), "greedy"); err != nil {
			t.Fatal(err)
		}
		var order []string
		for _, key := range []string{"greedy", "greedy", "greedy", "polite", "polite", "late"} {
			go func() {
				if err := s.Acquire(t.Context(), key); err != nil {
					t.Error(err)
				}
				order = append(order, key) // only one runs at a time
				s.Release()
			}()
			synctest.Wait()
		}
		s.Release()
		synctest.Wait()
		if want := []string{"greedy", "polite", "late", "greedy", "polite", "greedy"}; !slices.Equal(order, want) {
			t.Errorf("served in the order %q, want %q", order, want)
		}
		if running, waiting := s.State(); running != 0 || waiting != 0 {
			t.Errorf("%d run and %d wait at the end", running, waiting)
		}
	})
}

func TestWorkThatGivesUpLeavesItsPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fair.New[string](1, 1)
		if err := s.Acquire(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.Acquire(ctx, "a") }()
		synctest.Wait()
		if err := s.Acquire(t.Context(), "a"); !errors.Is(err, fair.ErrFull) {
			t.Errorf("a second waiter of the key: %v", err)
		}
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("it gave up with %v", err)
		}
		if running, waiting := s.State(); running != 1 || waiting != 0 {
			t.Errorf("%d run and %d wait", running, waiting)
		}
		s.Release()
		if err := s.Acquire(t.Context(), "b"); err != nil {
			t.Error(err)
		}
		s.Release()
		if running, _ := s.State(); running != 0 {
			t.Errorf("%d run at the end", running)
		}
	})
}
