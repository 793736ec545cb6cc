package blame_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"stele.dev/stele/core/resources/blame"
)

// states are what an object was, the oldest first: structs of structs of scalars.
func states(g *rand.Rand) (all []map[string]any) {
	now := map[string]map[string]any{}
	for range 1 + g.IntN(12) {
		for range 1 + g.IntN(3) {
			part, name := fmt.Sprint("p", g.IntN(3)), fmt.Sprint("f", g.IntN(3))
			if now[part] == nil {
				now[part] = map[string]any{}
			}
			if g.IntN(4) == 0 {
				delete(now[part], name)
			} else {
				now[part][name] = int64(g.IntN(2))
			}
		}
		state := map[string]any{}
		for part, fields := range now {
			state[part] = maps.Clone(fields)
		}
		all = append(all, state)
	}
	return all
}

// A field is the work of the first of those states, up to the newest, that all have its value.
func TestALeafIsAttributedToTheStateThatBroughtItsValue(t *testing.T) {
	for seed := range uint64(5_000) {
		all := states(rand.New(rand.NewPCG(seed, 1)))
		last := len(all) - 1
		got := map[string]int{}
		note := func(leaves []blame.Leaf, by int) {
			for _, l := range leaves {
				got[l.Path().String()] = by
			}
		}
		fold := blame.NewFold(all[last], nil)
		for i := last; i > 0 && fold.Left() > 0; i-- {
			note(fold.Older(all[i-1]), i)
		}
		note(fold.Older(nil), 0)
		if fold.Left() != 0 {
			t.Fatalf("seed %d: %d leaves are left", seed, fold.Left())
		}
		want := map[string]int{}
		for part, fields := range all[last] {
			if len(fields.(map[string]any)) == 0 {
				delete(got, part) // a leaf of its own
			}
			for name, value := range fields.(map[string]any) {
				since := last
				for since > 0 {
					before, _ := all[since-1][part].(map[string]any)
					if was, ok := before[name]; !ok || was != value {
						break
					}
					since--
				}
				want[part+"."+name] = since
			}
		}
		if !maps.Equal(got, want) {
			t.Fatalf("seed %d: of %v\ngot %v\nwant %v", seed, all, got, want)
		}
	}
}

// An item of a list is the same one as long as those before and behind it come and go.
func TestItemsAreFollowed(t *testing.T) {
	list := func(items ...any) map[string]any { return map[string]any{"l": items} }
	fold := blame.NewFold(list("new", "a", "b"), nil)
	var got []string
	for i, older := range []map[string]any{list("a", "b"), list("gone", "a", "b"), list("gone", "a"), nil} {
		for _, l := range fold.Older(older) {
			got = append(got, fmt.Sprintf("%s %v, then at %s, by %d", l.Path(), l.Value, l.Then(), i))
		}
	}
	want := []string{"l[0] new, then at l[0], by 0", "l[2] b, then at l[2], by 2", "l[1] a, then at l[1], by 3"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// What lies deep, or behind a long name, is one leaf: else the paths of the leaves could be many
// times as long as the object.
func TestALeafIsNoDeeperThanItsPathMayBeLong(t *testing.T) {
	for name, steps := range map[string][]string{"deep": make([]string, 1000), "behind a long name": {strings.Repeat("x", 10_000)}} {
		around := func(inside map[string]any) map[string]any {
			for _, step := range steps {
				inside = map[string]any{"a" + step: inside}
			}
			return inside
		}
		newest, middle, oldest := map[string]any{}, map[string]any{}, map[string]any{}
		for i := range 100 {
			newest[fmt.Sprint("l", i)], middle[fmt.Sprint("l", i)], oldest[fmt.Sprint("l", i)] = int64(1), int64(1), int64(2)
		}
		fold := blame.NewFold(around(newest), nil)
		if n := fold.Left(); n != 1 {
			t.Fatalf("%s: %d leaves", name, n)
		}
		if leaves := fold.Older(around(middle)); len(leaves) > 0 {
			t.Errorf("%s: by the newest: %v", name, leaves)
		}
		if leaves := fold.Older(around(oldest)); len(leaves) != 1 || len(leaves[0].Path().String()) > 20_000 {
			t.Errorf("%s: by the one before: %v", name, leaves)
		}
	}
}
