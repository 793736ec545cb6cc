package objects_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/projections/objects"
)

// Lists of a sorted kind are in the order of the sort keys, after any number of changes of the same and of other objects, whether or not
// somebody has listed in between. An earlier state stays in its order.
func TestSortedListsFollowChanges(t *testing.T) {
	r := schema.GroupResource{Group: "example.com", Resource: "rows"}
	k := objects.NewKind(objects.Kind{GroupResource: r, Sorted: true})
	row := func(name string, key int, revision uint64) *objects.Object {
		o, err := k.Derive(fmt.Appendf(nil, `{"metadata":{"namespace":"n","name":%q}}`, name), revision, fmt.Sprintf("%03d", key))
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	random := rand.New(rand.NewPCG(4, 1))
	keys := map[string]int{}
	want := func() (names []string) {
		for name, key := range keys {
			names = append(names, fmt.Sprintf("%03d%s", key, name))
		}
		slices.Sort(names)
		return names
	}
	listed := func(s *objects.State) (names []string) {
		for o := range s.List(r, &objects.Selection{}, "", "") {
			names = append(names, fmt.Sprintf("%03d%s", keys[o.Name], o.Name))
		}
		return names
	}
	store, all := objects.New(1<<20), []*objects.Object(nil)
	for i := range 4000 {
		name := fmt.Sprint("o", i)
		keys[name] = i % 100
		all = append(all, row(name, keys[name], 1))
	}
	tx := store.Begin()
	tx.Replace(k, all)
	store.Publish(tx, 1)
	revision := uint64(1)
	for round := range 12 {
		for range 300 + random.IntN(600) {
			revision++
			tx := store.Begin()
			for range 1 + random.IntN(3) {
				name := fmt.Sprint("o", random.IntN(4000)%(1+random.IntN(4000)))
				if random.IntN(5) == 0 {
					tx.Remove(r, "n", name, revision)
					delete(keys, name)
				} else {
					keys[name] = random.IntN(100)
					tx.Put(row(name, keys[name], revision), revision)
				}
			}
			store.Publish(tx, revision)
		}
		if round%3 == 1 {
			continue // nobody lists, so that changes pile up
		}
		if got, want := listed(store.State()), want(); !slices.Equal(got, want) {
			t.Fatalf("round %d: %d objects are not in their order, or are others than the %d there are", round, len(got), len(want))
		}
	}
	before, was := store.State(), listed(store.State())
	kept := map[string]int{}
	for name, key := range keys {
		kept[name] = key
	}
	for i := range 3000 {
		revision++
		tx := store.Begin()
		tx.Put(row(fmt.Sprint("o", i), 99-i%100, revision), revision)
		store.Publish(tx, revision)
	}
	keys = kept
	if !slices.Equal(listed(before), was) {
		t.Error("a state that is not the newest any more is in another order than it was")
	}
}

// A write of an object that a view does not have looks for its row, and allocates nothing for that: most writes concern few of
// the views of their kind.
func TestNothingIsAllocatedForARowThatIsNotThere(t *testing.T) {
	r := schema.GroupResource{Group: "example.com", Resource: "rows"}
	k := objects.NewKind(objects.Kind{GroupResource: r, Sorted: true})
	store := objects.New(1 << 20)
	tx := store.Begin()
	tx.Replace(k, nil)
	store.Publish(tx, 1)
	tx = store.Begin()
	if n := testing.AllocsPerRun(100, func() { tx.Remove(r, "n", "absent", 2) }); n != 0 {
		t.Errorf("removing a row that is not there allocates %v times", n)
	}
}

// Writes that nobody reads note what has become of a row. The order of many rows is brought up to date after more changes than that
// of a few: else each few hundred writes would copy most of it.
func TestUnreadChangesOfTheOrderCopyLittle(t *testing.T) {
	r := schema.GroupResource{Group: "example.com", Resource: "rows"}
	k := objects.NewKind(objects.Kind{GroupResource: r, Sorted: true})
	row := func(i, key int, revision uint64) *objects.Object {
		o, err := k.Derive(fmt.Appendf(nil, `{"metadata":{"namespace":"n","name":"o%d"}}`, i), revision, fmt.Sprintf("%05d", key))
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	const rows, writes, atOnce = 10_000, 5_000, 50
	store, all := objects.New(1), make([]*objects.Object, rows)
	for i := range all {
		all[i] = row(i, i, 1)
	}
	tx := store.Begin()
	tx.Replace(k, all)
	store.Publish(tx, 1)
	next := make([]*objects.Object, writes)
	for i := range next {
		next[i] = row(i*7919%rows, (i*104729)%rows, uint64(2+i))
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for i := 0; i < writes; i += atOnce {
		tx := store.Begin()
		for j := range atOnce {
			tx.Put(next[i+j], uint64(2+i+j))
		}
		store.Publish(tx, uint64(1+i+atOnce))
	}
	runtime.ReadMemStats(&after)
	if n := (after.TotalAlloc - before.TotalAlloc) / writes; n > 1200 { // it was 1,540 when the order was brought up to date every 512 changes
		t.Errorf("%d bytes a write", n)
	} else {
		t.Logf("%d bytes a write", n)
	}
}
