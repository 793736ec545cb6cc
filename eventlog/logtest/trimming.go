package logtest

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"stele.dev/stele/eventlog"
)

// holds compares what a backend has, read in both directions, with the revisions that it should have.
func holds(t *testing.T, b eventlog.Backend, revisions ...int) {
	t.Helper()
	var want []eventlog.Stored
	for _, r := range revisions {
		want = append(want, stored(r, r)...)
	}
	a, err := b.Read(t.Context(), 1)
	if diff := cmp.Diff(want, a.Batches, cmpopts.EquateEmpty()); err != nil || diff != "" {
		t.Errorf("Read: %v (-want +got):\n%s", err, diff)
	}
	slices.Reverse(want)
	back, err := b.ReadBack(t.Context(), math.MaxUint64, len(want)+1)
	if diff := cmp.Diff(want, back, cmpopts.EquateEmpty()); err != nil || diff != "" {
		t.Errorf("ReadBack: %v (-want +got):\n%s", err, diff)
	}
}

func trim(t *testing.T, c Cluster) {
	b := c.Open()
	fill(t, b, 9)
	for _, tc := range []struct {
		upto uint64
		want []int
	}{
		{1, []int{1, 2, 3, 4, 5, 6, 7, 8, 9}},
		{3, []int{1, 4, 5, 6, 7, 8, 9}},
		{2, []int{1, 4, 5, 6, 7, 8, 9}},
		{6, []int{1, 7, 8, 9}},
		{6, []int{1, 7, 8, 9}},
	} {
		if err := b.Trim(t.Context(), tc.upto); err != nil {
			t.Fatalf("Trim up to %d: %v", tc.upto, err)
		}
		holds(t, c.Open(), tc.want...)
	}
}

func trimAll(t *testing.T, c Cluster) {
	b := c.Open()
	fill(t, b, 5)
	for _, upto := range []uint64{5, 1 << 62, math.MaxUint64} {
		if err := b.Trim(t.Context(), upto); err != nil {
			t.Fatal(err)
		}
		holds(t, b, 1, 5)
	}
}

func trimNothing(t *testing.T, c Cluster) {
	b := c.Open()
	for n := range 3 {
		if err := b.Trim(t.Context(), 10); err != nil {
			t.Errorf("with %d batches: %v", n, err)
		}
		var from []byte
		if n > 0 {
			from = fmt.Appendf(nil, "head %d", n)
		}
		if a, err := b.Append(t.Context(), eventlog.Proposal{From: from, To: fmt.Appendf(nil, "head %d", n+1), At: uint64(n + 1), Value: value(n + 1)}); err != nil || !a.Applied {
			t.Fatal(a, err)
		}
	}
	holds(t, b, 1, 2, 3)
}

func appendAfterTrim(t *testing.T, c Cluster) {
	b := c.Open()
	fill(t, b, 5)
	if err := b.Trim(t.Context(), 4); err != nil {
		t.Fatal(err)
	}
	a, err := b.Append(t.Context(), eventlog.Proposal{From: []byte("head 5"), To: []byte("head 6"), At: 6, Value: value(6)})
	if err != nil || !a.Applied {
		t.Fatalf("Append = %+v, %v", a, err)
	}
	holds(t, b, 1, 5, 6)
}

func appendTrimmedAgain(t *testing.T, c Cluster) {
	b := c.Open()
	fill(t, b, 5)
	if err := b.Trim(t.Context(), 4); err != nil {
		t.Fatal(err)
	}
	a, err := b.Append(t.Context(), eventlog.Proposal{From: []byte("head 2"), To: []byte("head 3"), At: 3, Value: value(3), Again: true})
	want := eventlog.Answer{Head: []byte("head 5"), Batches: stored(5, 5)}
	if diff := cmp.Diff(want, a, cmpopts.EquateEmpty()); err != nil || diff != "" {
		t.Errorf("Append: %v (-want +got):\n%s", err, diff)
	}
	holds(t, b, 1, 5)
}

func trimWhileWriting(t *testing.T, c Cluster) {
	const n = 200
	log, err := eventlog.Open(t.Context(), c.Open(), eventlog.Options{RecentBytes: 1})
	if err != nil {
		t.Fatal(err)
	}
	var archive Archive
	log.SetArchive(&archive)
	var wg sync.WaitGroup
	wg.Go(func() { // the reader
		next := uint64(1)
		for at := log.Start(); next <= n+1; {
			batches, err := log.Next(t.Context(), at)
			if err != nil {
				t.Error(err)
				return
			}
			for _, b := range batches {
				if b.First != next {
					t.Errorf("revision %d after %d", b.First, next-1)
					return
				}
				next, at = b.Last()+1, b.Head()
			}
			back, err := log.Back(t.Context(), at.Revision, 2*n)
			if err != nil || uint64(len(back)) != at.Revision {
				t.Errorf("back from %d: %d batches, %v", at.Revision, len(back), err)
				return
			}
		}
	})
	tip := all(t, log)[0].Head()
	for i := range n {
		won, _, err := log.Append(t.Context(), tip, eventlog.NewDraft([]*eventlog.Entry{Entry(t, fmt.Sprint(i))}))
		if err != nil || won == nil {
			t.Fatal(won, err)
		}
		tip = won.Head()
		if i%10 == 0 {
			if err := archive.Seal(t.Context(), log, tip.Revision-3); err != nil {
				t.Fatal(err)
			}
			if err := log.Trim(t.Context(), archive.Tip().Revision); err != nil {
				t.Fatal(err)
			}
		}
	}
	wg.Wait()
}

func usage(t *testing.T, c Cluster) {
	b := c.Open()
	fill(t, b, 1)
	empty := b.Usage()
	if empty.Used == 0 {
		t.Skip("it is not known")
	}
	to := []byte("head 1")
	const n, size = 40, 256 << 10
	for i := range n {
		from := to
		to = fmt.Appendf(nil, "head %d", i)
		if a, err := b.Append(t.Context(), eventlog.Proposal{From: from, To: to, At: uint64(i + 2), Value: make([]byte, size)}); err != nil || !a.Applied {
			t.Fatal(a, err)
		}
	}
	full := b.Usage()
	for until := time.Now().Add(10 * time.Second); full.Used < empty.Used+n*size && time.Now().Before(until); full = b.Usage() {
		runtime.Gosched() // it may be some moments old
	}
	if full.Used < empty.Used+n*size || full.Used > empty.Used+2*n*size {
		t.Errorf("%d batches of %d bytes use %d bytes", n, size, full.Used-empty.Used)
	}
	if err := b.Trim(t.Context(), n+1); err != nil {
		t.Fatal(err)
	}
	left := int64(3 * size)
	if c.Compact != nil {
		left = 10 * size // others use the store, too
		for until := time.Now().Add(time.Minute); b.Usage().Used > empty.Used+left && time.Now().Before(until); {
			c.Compact()
			time.Sleep(50 * time.Millisecond) // it is known some moments later
		}
	}
	if after := b.Usage(); after.Used > empty.Used+left {
		t.Errorf("after the trim %d bytes are used, before the batches %d and with them %d", after.Used, empty.Used, full.Used)
	}
}
