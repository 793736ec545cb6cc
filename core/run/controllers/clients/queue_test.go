package clients_test

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"stele.dev/stele/core/run/controllers/clients"
)

// lines counts those of a log.
type lines struct{ atomic.Int64 }

func (l *lines) Write(line []byte) (int, error) {
	l.Add(1)
	return len(line), nil
}

// A policy that denies a controller everything costs the server little, however much there is to do, and fills no disk.
func TestWhatFailsForManyIsTriedAgainInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const many = 1500
		q := clients.NewQueue[int]("test")
		for i := range many {
			q.Add(i)
		}
		var tries atomic.Int64
		var done [many]bool
		var wrong atomic.Bool
		wrong.Store(true)
		var log lines
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			q.Work(ctx, 1, slog.New(slog.NewTextHandler(&log, nil)), func(_ context.Context, i int) error {
				tries.Add(1)
				if wrong.Load() {
					return errors.New("denied")
				}
				done[i] = true
				return nil
			})
		}()
		time.Sleep(5 * time.Minute)
		if n := tries.Load(); n > many+51*300 || n < many+45*300 {
			t.Errorf("it was tried %d times", n)
		}
		before := log.Load()
		time.Sleep(2 * time.Minute)
		if more := log.Load() - before; more > many {
			t.Errorf("it was said %d times", more)
		}
		wrong.Store(false)
		time.Sleep(time.Minute)
		cancel()
		<-ended
		for i, ok := range done {
			if !ok {
				t.Fatalf("%d is not done once it can be", i)
			}
		}
	})
}
