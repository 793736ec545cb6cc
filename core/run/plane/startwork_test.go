package plane_test

import (
	"fmt"
	"testing"

	"stele.dev/stele/core/keep/checkpoints"
	"stele.dev/stele/core/run/plane"
	"stele.dev/stele/core/run/plane/planetest"
	"stele.dev/stele/eventlog/memlog"
)

// What a start reads follows the number of objects, and not how often they were written.
func TestTheWorkOfAStartDoesNotFollowHistory(t *testing.T) {
	var store memlog.Store
	dir := t.TempDir()
	const number, events = 50, 100 // objects, and revisions between checkpoints
	start := func() *planetest.Replica {
		return planetest.StartIn(t, store.Open(nil), planetest.Options{Dir: dir, Config: plane.Config{Checkpoints: checkpoints.Options{Events: events}}})
	}
	r := start()
	r.Bootstrap(t, planetest.Bundle)
	for i := range number {
		r.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget(fmt.Sprint("w", i), 1))
	}
	// work writes so often, with a refusal after every fourth time, and returns the work of a start after that.
	work := func(writes int) plane.StartWork {
		for i := range writes {
			r.Must(t, 200, "PATCH", fmt.Sprintf("%s/w%d", planetest.WidgetsPath, i%number), fmt.Sprintf(`{"spec":{"size":%d}}`, i%900+1), "Content-Type", "application/merge-patch+json")
			if i%4 == 0 {
				r.Must(t, 409, "POST", planetest.WidgetsPath, planetest.Widget("w1", 1))
			}
		}
		r.Close()
		r = start()
		return r.Plane.StartWork()
	}
	const history = 4 * events
	once, eight := work(history), work(8*history)
	for what, is := range map[string][2]int64{
		"objects of the checkpoint":    {once.Objects, eight.Objects},
		"bytes of the checkpoint":      {once.CheckpointBytes, eight.CheckpointBytes},
		"revisions after it":           {int64(once.Replayed), int64(eight.Replayed)},
		"events read of the log":       {once.Log.Events, eight.Log.Events},
		"events read of the decisions": {once.Decisions.Events, eight.Decisions.Events},
	} {
		if bound := max(events, is[0]/4); is[1] > is[0]+bound {
			t.Errorf("%s: %d after %d writes, %d after 8 times as many", what, is[0], history, is[1])
		}
	}
	if once.Objects < number || once.CheckpointBytes == 0 || once.Log.Bytes == 0 {
		t.Errorf("the start did not count its work: %+v", once)
	}
}
