package objects_test

import (
	"testing"
	"testing/synctest"
	"time"

	"stele.dev/stele/eventlog/logpb"
	"stele.dev/stele/projections/objects"
)

// crowded is a store with many watchers of the same object, which have taken what there was.
type crowded struct {
	*objects.Store
	t        *testing.T
	watchers []*objects.Watcher
	last     uint64
}

func newCrowded(t *testing.T, watchers int) *crowded {
	t.Helper()
	c := &crowded{Store: newStore(0), t: t}
	go c.Run(t.Context())
	c.change()
	for range watchers {
		w, err := c.Watch(widgets, objects.Selection{}, c.last)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(w.Stop)
		c.watchers = append(c.watchers, w)
	}
	synctest.Wait()
	for i := range c.watchers {
		c.takes(i, 0)
	}
	return c
}

// change publishes a change of the object.
func (c *crowded) change() {
	c.t.Helper()
	kind := logpb.Type_TYPE_UPDATED
	if c.last == 0 {
		kind = logpb.Type_TYPE_CREATED
	}
	apply(c.t, c.Store, c.last+1, event(kind, thing{"ns", "a", "x", "red", int(c.last), c.last + 1}, c.last))
	c.last++
}

// awake returns how many watchers have been woken.
func (c *crowded) awake() (n int) {
	synctest.Wait()
	for _, w := range c.watchers {
		n += len(w.Ready())
	}
	return n
}

// takes lets a watcher that was woken take its events, of which there must be some number.
func (c *crowded) takes(i, want int) {
	c.t.Helper()
	select {
	case <-c.watchers[i].Ready():
	default:
		c.t.Fatalf("watcher %d was not woken", i)
	}
	if events, _, _, err := c.watchers[i].Take(); err != nil || len(events) != want {
		c.t.Fatalf("watcher %d: %d events, %v; want %d", i, len(events), err, want)
	}
}

func TestManyWatchersTakeTogetherWhatChangesMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowded(t, 50)
		c.change()
		if n := c.awake(); n != 50 {
			t.Fatalf("%d of 50 are awake", n)
		}
		for i := range 30 {
			c.takes(i, 1)
		}
		for range 3 {
			c.change()
		}
		if n := c.awake(); n != 20 {
			t.Errorf("%d are awake while 20 have not taken the first change", n)
		}
		for i := 30; i < 49; i++ {
			c.takes(i, 1)
		}
		c.watchers[49].Stop() // as good as taken
		if n := c.awake(); n != 50 {
			t.Errorf("%d are awake for the others", n)
		}
		for i := range 49 {
			c.takes(i, 3)
		}
	})
}

func TestASlowWatcherDelaysOthersOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowded(t, 50)
		const slow = 49
		var waited time.Duration
		for range 20 {
			c.change()
			begun := time.Now()
			for c.awake() < 50 { // the slow one stays awake
				time.Sleep(time.Millisecond)
			}
			waited += time.Since(begun)
			for i := range slow {
				c.takes(i, 1)
			}
		}
		if waited > 6*time.Millisecond {
			t.Errorf("the others waited for %v", waited)
		}
		c.takes(slow, 20)
	})
}

func TestFewWatchersDoNotWaitForEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowded(t, 10)
		for range 3 {
			c.change()
			synctest.Wait()
			for i := range 9 {
				c.takes(i, 1)
			}
		}
		c.takes(9, 3)
	})
}
