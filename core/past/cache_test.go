package past

import (
	"testing"
	"testing/synctest"
	"time"
)

func has(c *cache[string, int], k string) bool {
	_, found := c.get(k)
	return found
}

func TestACacheKeepsWhatWasUsedLast(t *testing.T) {
	c := newCache[string, int](10)
	c.add("a", 1, 4)
	c.add("b", 2, 4)
	if !has(c, "a") {
		t.Error("a fits")
	}
	c.add("c", 3, 4)
	if has(c, "b") || !has(c, "a") || !has(c, "c") {
		t.Error("b was not used for longest")
	}
	if c.add("large", 4, 11); has(c, "large") || !has(c, "a") {
		t.Error("what does not fit was kept")
	}
}

// The pages of a list, and the two states between which an activation is replayed, are asked for again
// and again, however large they are.
func TestTheLatestAreKeptHoweverLarge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCache[string, int](10)
		c.always, c.idle = 2, time.Minute
		c.add("before", 1, 50)
		c.add("after", 2, 50)
		if !has(c, "before") || !has(c, "after") {
			t.Error("two are always kept")
		}
		time.Sleep(40 * time.Second)
		has(c, "before")
		time.Sleep(40 * time.Second)
		if has(c, "after") || !has(c, "before") {
			t.Error("what was not used for a minute is dropped, and nothing else")
		}
		c.add("x", 3, 1)
		if c.add("y", 4, 1); has(c, "before") || !has(c, "x") || !has(c, "y") {
			t.Error("what is too large goes when others come")
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if c.cost != 0 || c.order.Len() != 0 {
			t.Errorf("%d of %d are left when nobody asks", c.cost, c.order.Len())
		}
	})
}
