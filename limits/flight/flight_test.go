package flight_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"stele.dev/stele/limits/flight"
)

func TestACallWithoutCallersIsCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g flight.Group[string, int]
		ended := make(chan error, 1)
		work := func(ctx context.Context) (int, error) {
			<-ctx.Done()
			ended <- ctx.Err()
			return 0, ctx.Err()
		}
		first, leave := context.WithCancel(t.Context())
		second, leaveToo := context.WithCancel(t.Context())
		for _, ctx := range []context.Context{first, second} {
			go g.Do(ctx, "a", work)
		}
		synctest.Wait()
		leave()
		synctest.Wait()
		select {
		case err := <-ended:
			t.Fatalf("it ended with %v, though a caller waits", err)
		default:
		}
		leaveToo()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("it ended with %v", err)
		}
		// A later caller gets a new call.
		if v, err := g.Do(t.Context(), "a", func(context.Context) (int, error) { return 7, nil }); v != 7 || err != nil {
			t.Errorf("%d, %v", v, err)
		}
	})
}

func TestCallersShareACall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := flight.Group[string, int]{Most: 1}
		finish := make(chan int)
		work := func(context.Context) (int, error) { return <-finish, nil }
		first, shared := g.Join(t.Context(), "a", work)
		if shared {
			t.Error("the first call is shared")
		}
		second, shared := g.Join(t.Context(), "a", work)
		if second != first || !shared {
			t.Error("the second call is not shared")
		}
		if other, _ := g.Join(t.Context(), "b", work); other != nil {
			t.Error("more calls run than may")
		}
		second.Leave()
		finish <- 7
		<-first.Done()
		if v, err := first.Wait(t.Context()); v != 7 || err != nil {
			t.Errorf("%d, %v", v, err)
		}
		if other, _ := g.Join(t.Context(), "b", work); other == nil {
			t.Error("a finished call counts")
		}
		finish <- 0
	})
}

func TestAPanicIsAnError(t *testing.T) {
	var g flight.Group[string, int]
	if _, err := g.Do(t.Context(), "a", func(context.Context) (int, error) { panic("no") }); err == nil {
		t.Error("it was none")
	}
}
