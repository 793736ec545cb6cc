package lru_test

import (
	"testing"
	"testing/synctest"
	"time"

	"stele.dev/stele/limits/lru"
)

func has(c *lru.Cache[string, int], k string) bool {
	_, found := c.Get(k)
	return found
}

func TestACacheKeepsWhatWasUsedLast(t *testing.T) {
	c := lru.New[string, int](10)
	c.Add("a", 1, 4)
	c.Add("b", 2, 4)
	if !has(c, "a") {
		t.Error("a fits")
	}
	c.Add("c", 3, 4)
	if has(c, "b") || !has(c, "a") || !has(c, "c") {
		t.Error("b was not used for longest")
	}
	if c.Add("c", 5, 4); c.Len() != 2 {
		t.Error("c is there twice")
	}
	if v, _ := c.Get("c"); v != 5 {
		t.Errorf("c is %d", v)
	}
	if c.Add("large", 4, 11); has(c, "large") || !has(c, "a") {
		t.Error("what does not fit was kept")
	}
}

// The pages of a list, and the two states between which an activation is replayed, are asked for again
// and again, however large they are.
func TestTheLatestAreKeptHoweverLarge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := lru.New[string, int](10)
		c.AtLeast, c.Idle = 2, time.Minute
		c.Add("before", 1, 50)
		c.Add("after", 2, 50)
		if !has(c, "before") || !has(c, "after") {
			t.Error("two are always kept")
		}
		time.Sleep(40 * time.Second)
		has(c, "before")
		time.Sleep(40 * time.Second)
		if has(c, "after") || !has(c, "before") {
			t.Error("what was not used for a minute is dropped, and nothing else")
		}
		c.Add("x", 3, 1)
		if c.Add("y", 4, 1); has(c, "before") || !has(c, "x") || !has(c, "y") {
			t.Error("what is too large goes when others come")
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if n := c.Len(); n != 0 {
			t.Errorf("%d are left when nobody asks", n)
		}
	})
}
