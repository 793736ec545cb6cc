package past

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
)

func TestOnlySomeAreMadeAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShared[int, int](2)
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
			go s.do(ctx, i, work)
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
