package postings_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"stele.dev/stele/projections/objects/postings"
)

type item struct {
	key   postings.Key
	value string
	n     int
}

func (i *item) Key() postings.Key { return i.key }

func value(i *item) (string, bool) { return i.value, i.value != "" }

type change = postings.Change[*item]

// An index answers for each revision, older or newer than its own, what looking at all items of the revision does.
func TestHitsAreThoseOfEachRevision(t *testing.T) {
	for seed := range uint64(30) {
		rng := rand.New(rand.NewPCG(seed, 0))
		random := func() *item {
			return &item{postings.Key{Namespace: fmt.Sprint("n", rng.IntN(3)), Name: fmt.Sprint("i", rng.IntN(12))}, []string{"", "a", "b", "c"}[rng.IntN(4)], rng.Int()}
		}
		states := []map[postings.Key]*item{{}}
		var changes []change // the one at i leads from state i to state i+1
		for range 80 {
			is, next := random(), maps.Clone(states[len(states)-1])
			c := change{Before: next[is.key], After: is}
			if c.Before != nil && rng.IntN(3) == 0 {
				c.After = nil
				delete(next, is.key)
			} else {
				next[is.key] = is
			}
			states, changes = append(states, next), append(changes, c)
		}
		sorted := func(s map[postings.Key]*item) []*item {
			return slices.SortedFunc(maps.Values(s), func(a, b *item) int { return a.key.Compare(b.key) })
		}
		at := rng.IntN(len(states))
		x := postings.New(uint64(at), value, func(each func(*item) bool) {
			for _, i := range sorted(states[at]) {
				if !each(i) {
					return
				}
			}
		})
		for range 60 {
			if to := at + rng.IntN(5); to < len(states) && rng.IntN(4) == 0 {
				x.Advance(changes[at:to], uint64(at), uint64(to))
				at = to
			}
			if x.Revision() != uint64(at) {
				t.Fatalf("the index is at %d, want %d", x.Revision(), at)
			}
			of, ns := rng.IntN(len(states)), []string{"", "n1"}[rng.IntN(2)]
			r := postings.Requirement{Values: [][]string{nil, {"a"}, {"a", "c"}, {"none"}, {}}[rng.IntN(5)]}
			after := random().key
			h := x.Look(r, ns, 1000)
			if !h.Usable() || h.Revision != uint64(at) {
				t.Fatalf("usable %v, revision %d, want %d", h.Usable(), h.Revision, at)
			}
			moved := h.Moved(changes[min(at, of):max(at, of)], of > at)
			var got, want []*item
			h.Each(moved, after, func(i *item) bool {
				if ns == "" || i.key.Namespace == ns {
					got = append(got, i)
				}
				return true
			})
			for _, i := range sorted(states[of]) {
				if (ns == "" || i.key.Namespace == ns) && i.key.Compare(after) > 0 && i.value != "" && (r.Values == nil || slices.Contains(r.Values, i.value)) {
					want = append(want, i)
				}
			}
			if !slices.Equal(got, want) {
				t.Fatalf("seed %d, index at %d, state %d, %+v in %q behind %v: %d items, want %d", seed, at, of, r, ns, after, len(got), len(want))
			}
		}
	}
}

// Only the number of items is known if they have several values and there are too many; changes from another revision than
// the index's are not applied.
func TestTheLimitsOfAnIndex(t *testing.T) {
	items := []*item{{postings.Key{Name: "a"}, "x", 0}, {postings.Key{Name: "b"}, "x", 0}, {postings.Key{Name: "c"}, "y", 0}}
	x := postings.New(7, value, func(each func(*item) bool) {
		for _, i := range items {
			each(i)
		}
	})
	for _, c := range []struct {
		values []string
		most   int
		count  int
		usable bool
	}{{nil, 3, 3, true}, {nil, 2, 3, false}, {[]string{"x", "y"}, 2, 3, false}, {[]string{"x"}, 0, 2, true}, {[]string{"z"}, 0, 0, true}} {
		if h := x.Look(postings.Requirement{Values: c.values}, "", c.most); h.Count != c.count || h.Usable() != c.usable {
			t.Errorf("%v, at most %d: %d items, usable %v", c.values, c.most, h.Count, h.Usable())
		}
	}
	x.Advance([]change{{items[0], nil}}, 6, 8)
	if n := x.Look(postings.Requirement{Values: []string{"x"}}, "", 9).Count; n != 2 || x.Revision() != 7 {
		t.Errorf("%d items at revision %d", n, x.Revision())
	}
	x.Advance([]change{{items[0], nil}, {items[2], nil}}, 7, 8)
	if n := x.Look(postings.Requirement{}, "", 9).Count; n != 1 || x.Revision() != 8 {
		t.Errorf("%d items at revision %d", n, x.Revision())
	}
}
