package steady_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"stele.dev/stele/limits/steady"
)

func TestWaitingEndsWithItsTimeOrItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		if err := steady.Wait(t.Context(), time.Hour); err != nil || time.Since(began) != time.Hour {
			t.Errorf("it ended after %s: %v, want 1h", time.Since(began), err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		began = time.Now()
		if err := steady.Wait(ctx, time.Hour); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Minute {
			t.Errorf("it ended after %s: %v, want 1m and the error of the context", time.Since(began), err)
		}
	})
}

func TestALoopRunsOnceInEachPeriodUntilItsContextEnds(t *testing.T) {
	for name, c := range map[string]struct {
		loop func(context.Context) func(func(time.Time) bool)
		want []time.Duration
	}{
		"every":                        {func(ctx context.Context) func(func(time.Time) bool) { return steady.Every(ctx, time.Minute) }, []time.Duration{time.Minute, 2 * time.Minute}},
		"at once, and then every time": {func(ctx context.Context) func(func(time.Time) bool) { return steady.AtOnceAndEvery(ctx, time.Minute) }, []time.Duration{0, time.Minute, 2 * time.Minute}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 150*time.Second)
				defer cancel()
				began := time.Now()
				var got []time.Duration
				for range c.loop(ctx) {
					got = append(got, time.Since(began))
				}
				if len(got) != len(c.want) {
					t.Fatalf("the loop ran at %v, want %v", got, c.want)
				}
				for i := range got {
					if got[i] != c.want[i] {
						t.Errorf("the loop ran at %v, want %v", got, c.want)
					}
				}
			})
		})
	}
}

func TestALoopThatRunsAtOnceRunsOnceThoughItsContextHasEnded(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	runs := 0
	for range steady.AtOnceAndEvery(ctx, time.Hour) {
		runs++
	}
	if runs != 1 {
		t.Errorf("it ran %d times, want once", runs)
	}
}

func TestAReaderEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	r := steady.Reader(ctx, strings.NewReader("abc"))
	if n, err := r.Read(make([]byte, 1)); n != 1 || err != nil {
		t.Errorf("before the context ends it read %d bytes, %v", n, err)
	}
	cancel()
	if n, err := r.Read(make([]byte, 1)); n != 0 || !errors.Is(err, context.Canceled) {
		t.Errorf("after the context has ended it read %d bytes, %v", n, err)
	}
}

func TestHealthSaysWhyTheLastAttemptFailedAndWhenThatChanges(t *testing.T) {
	var h steady.Health
	full, lost := errors.New("the disk is full"), errors.New("the disk is lost")
	for i, step := range []struct {
		note    error
		changed bool
	}{{nil, false}, {full, true}, {lost, false}, {nil, true}, {nil, false}} {
		if changed := h.Note(step.note); changed != step.changed || !errors.Is(h.Err(), step.note) {
			t.Errorf("step %d, %v: changed %t and %v, want %t", i, step.note, changed, h.Err(), step.changed)
		}
	}
}
