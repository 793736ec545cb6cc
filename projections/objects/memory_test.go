package objects_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"stele.dev/stele/eventlog/logpb"
)

// What an object takes in memory beyond its JSON, with two labels and two selectable fields, and its part of the tree and of the recent changes.
// A collection runs first, so that the number is that of a server at rest. It is held with a margin of 10 %: sizes of allocations are
// rounded up, and nodes of trees are not always full.
//
//	176 the Object: strings that are parts of the JSON, revision, slices
//	 64 keys and values of two labels, which are parts of the JSON
//	 32 values of two selectable fields
//	 14 the slot in a node of the tree, which are between half full and full
//	 90 the change, and its slots in the recent changes of all resources and of this one; those are bounded by Options, not by the objects
//	 64 the JSON rounded up to a size of allocations
const perObject = 440

func TestMemoryOfAnObject(t *testing.T) {
	const n = 20_000
	s := newStore(0)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	size := 0
	for i := range n {
		w := thing{namespace: "ns", name: fmt.Sprintf("w-%06d", i), app: "x", color: "red", size: i}
		e := event(logpb.Type_TYPE_CREATED, w, 0)
		text := strings.Replace(string(e.Contents[0]), `"spec":{`, `"spec":{"payload":"`+strings.Repeat("lorem ipsum ", 80)+`",`, 1)
		e.Contents[0] = []byte(text)
		o := apply(t, s, uint64(i+1), e).Get(widgets, "ns", w.name)
		size += len(o.JSON)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	beyond := (int(after.HeapAlloc) - int(before.HeapAlloc) - size) / n
	if beyond > perObject*110/100 || beyond < perObject*90/100 {
		t.Errorf("an object of %d bytes of JSON takes %d bytes more, not about %d", size/n, beyond, perObject)
	}
	t.Logf("%d bytes of JSON, %d more", size/n, beyond)
	runtime.KeepAlive(s)
}
