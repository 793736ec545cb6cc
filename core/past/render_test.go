package past

import (
	"testing"

	"stele.dev/stele/limits/memory"
)

// A state that cannot be made because of a panic gives its share of memory back.
func TestAPanicFreesTheShare(t *testing.T) {
	g := memory.New(memory.Options{MaxBody: 3 << 20, Limit: 256 << 20, Usage: func() memory.Usage { return memory.Usage{} }})
	room := func() (n int) {
		for ; g.Try(memory.Past, 1<<20); n++ {
			defer g.Free(memory.Past, 1<<20)
		}
		return n
	}
	before := room()
	func() {
		defer func() {
			if recover() == nil {
				t.Error("there was no panic")
			}
		}()
		p := &Past{memory: g} // without a history
		_, _ = p.makeCounted(t.Context(), nil, place{})
	}()
	if after := room(); after != before {
		t.Errorf("there was room for %d MiB, and is for %d", before, after)
	}
}
