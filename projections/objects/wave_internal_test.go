package objects

import (
	"testing"
	"testing/synctest"
)

// The last watcher of a wave may say so when the next wave has begun. Then the last one of that wave must not wait until somebody hears
// it: it has events to send, and there may be no further wave.
func TestTheLastWatcherOfAWaveNeverWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newWave()
		v.begin()
		v.taken <- struct{}{} // of the wave before
		in := v.woken()
		v.end(t.Context())
		done := make(chan struct{})
		go func() { v.took(in); close(done) }()
		synctest.Wait()
		select {
		case <-done:
		default:
			<-v.taken
			t.Error("it waits")
		}
	})
}
