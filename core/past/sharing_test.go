package past

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
)

func TestWhatNobodyWaitsForIsNotMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSharing(1)
		ended := make(chan error, 1)
		work := func(ctx context.Context) (int, error) {
			<-ctx.Done()
			ended <- ctx.Err()
			return 0, ctx.Err()
		}
		first, leave := context.WithCancel(t.Context())
		second, leaveToo := context.WithCancel(t.Context())
		for _, ctx := range []context.Context{first, second} {
			go once(ctx, s, "a", work)
		}
		synctest.Wait()
		leave()
		synctest.Wait()
		select {
		case err := <-ended:
			t.Fatalf("it ended with %v, though somebody waits", err)
		default:
		}
		leaveToo()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("it ended with %v", err)
		}
		// Who comes now gets what is made for them.
		if v, err := once(t.Context(), s, "a", func(context.Context) (int, error) { return 7, nil }); v != 7 || err != nil {
			t.Errorf("%d, %v", v, err)
		}
	})
}

func TestOnlySomeAreMadeAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSharing(2)
		var running, made atomic.Int64
		finish := make(chan struct{})
		work := func(context.Context) (int, error) {
			running.Add(1)
			<-finish
			running.Add(-1)
			made.Add(1)
			return 0, nil
		}
		gone, leave := context.WithCancel(t.Context())
		defer leave()
		for i := range 9 {
			ctx := t.Context()
			if i%3 == 0 {
				ctx = gone
			}
			go once(ctx, s, fmt.Sprint(i), work)
		}
		for range 3 {
			synctest.Wait()
			if n := running.Load(); n != 2 {
				t.Errorf("%d at a time", n)
			}
			leave()
			finish <- struct{}{}
		}
		close(finish)
		synctest.Wait()
		if n := made.Load(); n < 6 || n > 8 {
			t.Errorf("%d were made, for six who wait", n)
		}
	})
}

func TestAPanicIsAnError(t *testing.T) {
	if _, err := once(t.Context(), newSharing(1), "a", func(context.Context) (int, error) { panic("no") }); err == nil {
		t.Error("it was none")
	}
}
