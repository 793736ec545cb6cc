// Package logtest is the conformance suite of the log's backends: it tests what eventlog.Backend promises.
package logtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"stele.dev/stele/eventlog"
)

// Cluster is the store of one subtest, empty at first.
type Cluster struct {
	// Open returns a backend on the store. Each call returns another one, as another process would have,
	// or the same one if the backend is exclusive.
	Open func() eventlog.Backend
	// Compact frees the space of what was deleted, and may be called again; nil if the backend does.
	Compact func()
}

// Run runs the suite. It calls newCluster once per subtest; newCluster cleans up by t.Cleanup.
func Run(t *testing.T, newCluster func(t *testing.T) Cluster) {
	for _, tc := range []struct {
		name string
		run  func(*testing.T, Cluster)
	}{
		{"an empty store has neither head nor batches", emptyStore},
		{"an append at the head is applied and read back as it was", appendAndRead},
		{"an append at another head is not applied, and answered with what is there", appendElsewhere},
		{"an append on a taken key is not applied", appendOnTakenKey},
		{"the same append twice is applied once", appendTwice},
		{"reads go on from any revision until the head", readPages},
		{"reading back goes from any revision to the first", readBack},
		{"a trim removes what is between the first batch and a revision", trim},
		{"a trim keeps the newest batch", trimAll},
		{"a trim of a store with nothing to remove succeeds", trimNothing},
		{"appends go on after a trim", appendAfterTrim},
		{"an append that was applied and trimmed is not applied again", appendTrimmedAgain},
		{"many trims beside a writer and a reader lose nothing", trimWhileWriting},
		{"the usage, if it is known, goes back after a trim", usage},
		{"a value over the limit is refused, one at the limit is not", valueLimit},
		{"a wait ends when the log grows", waitEnds},
		{"a wait for what is there ends at once", waitForPresent},
		{"a wait ends with its context", waitCancelled},
		{"writers that lose stand in a line until they win, leave or are skipped", line},
		{"all hear of batches and of the line", hear},
		{"values beside the batches are replaced one after the other", values},
		{"calls after close fail", closed},
		{"many writers make one log", manyWriters},
		{"a follower sees every batch once, in order", followers},
		{"an epoch starts above what was lost, and everybody follows", epochs},
		{"an epoch that others have overtaken does not start", epochOvertaken},
	} {
		t.Run(tc.name, func(t *testing.T) { tc.run(t, newCluster(t)) })
	}
}

func emptyStore(t *testing.T, c Cluster) {
	a, err := c.Open().Read(t.Context(), 1)
	if err != nil || len(a.Head) > 0 || len(a.Batches) > 0 {
		t.Errorf("Read of an empty store = %v, %v", a, err)
	}
	back, err := c.Open().ReadBack(t.Context(), 10, 10)
	if err != nil || len(back) > 0 {
		t.Errorf("ReadBack of an empty store = %v, %v", back, err)
	}
}

// fill appends n batches: revision i has value "value i", and head "head i".
func fill(t *testing.T, b eventlog.Backend, n int) {
	t.Helper()
	var from []byte
	for i := 1; i <= n; i++ {
		to := []byte(fmt.Sprintf("head %d", i))
		a, err := b.Append(t.Context(), eventlog.Proposal{From: from, To: to, At: uint64(i), Value: value(i)})
		if err != nil || !a.Applied {
			t.Fatalf("append %d = %+v, %v", i, a, err)
		}
		from = to
	}
}

func value(i int) []byte { return []byte(fmt.Sprintf("value %d", i)) }

func stored(from, to int) (want []eventlog.Stored) {
	for i := from; i <= to; i++ {
		want = append(want, eventlog.Stored{First: uint64(i), Value: value(i)})
	}
	return want
}

func appendAndRead(t *testing.T, c Cluster) {
	b := c.Open()
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	p := eventlog.Proposal{To: every, At: 1, Value: append(every, 0)}
	if a, err := b.Append(t.Context(), p); err != nil || !a.Applied {
		t.Fatalf("Append = %+v, %v", a, err)
	}
	got, err := c.Open().Read(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	want := eventlog.Answer{Head: p.To, Batches: []eventlog.Stored{{First: 1, Value: p.Value}}}
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("Read (-want +got):\n%s", diff)
	}
}

func appendElsewhere(t *testing.T, c Cluster) {
	b := c.Open()
	fill(t, b, 3)
	for name, p := range map[string]eventlog.Proposal{
		"at an old head":                {From: []byte("head 2"), To: []byte("x"), At: 3, Value: []byte("x")},
		"at an old head, on a free key": {From: []byte("head 2"), To: []byte("x"), At: 4, Value: []byte("x")},
		"at no head":                    {To: []byte("x"), At: 3, Value: []byte("x")},
	} {
		a, err := c.Open().Append(t.Context(), p)
		want := eventlog.Answer{Head: []byte("head 3"), Batches: stored(int(p.At), 3)}
		if diff := cmp.Diff(want, a, cmpopts.EquateEmpty()); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", name, err, diff)
		}
	}
	if a, err := b.Read(t.Context(), 1); err != nil || !cmp.Equal(a.Batches, stored(1, 3)) {
		t.Errorf("afterwards: %v, %v", a, err)
	}
}

func appendOnTakenKey(t *testing.T, c Cluster) {
	b := c.Open()
	fill(t, b, 3)
	a, err := b.Append(t.Context(), eventlog.Proposal{From: []byte("head 3"), To: []byte("x"), At: 2, Value: []byte("x")})
	if err != nil || a.Applied {
		t.Errorf("Append on a taken key = %+v, %v", a, err)
	}
}

func appendTwice(t *testing.T, c Cluster) {
	b := c.Open()
	p := eventlog.Proposal{To: []byte("head"), At: 1, Value: []byte("value")}
	if a, err := b.Append(t.Context(), p); err != nil || !a.Applied {
		t.Fatalf("Append = %+v, %v", a, err)
	}
	a, err := b.Append(t.Context(), p)
	want := eventlog.Answer{Head: p.To, Batches: []eventlog.Stored{{First: 1, Value: p.Value}}}
	if diff := cmp.Diff(want, a, cmpopts.EquateEmpty()); err != nil || diff != "" {
		t.Errorf("second Append: %v (-want +got):\n%s", err, diff)
	}
}

func readPages(t *testing.T, c Cluster) {
	const n = 150
	b := c.Open()
	fill(t, b, n)
	for _, from := range []int{1, 2, n - 1, n, n + 1} {
		var got []eventlog.Stored
		for next := uint64(from); ; {
			a, err := b.Read(t.Context(), next)
			if err != nil {
				t.Fatal(err)
			}
			if string(a.Head) != fmt.Sprintf("head %d", n) {
				t.Fatalf("head %q", a.Head)
			}
			if len(a.Batches) == 0 {
				break
			}
			got = append(got, a.Batches...)
			next = a.Batches[len(a.Batches)-1].First + 1
		}
		if diff := cmp.Diff(stored(from, n), got, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("from %d (-want +got):\n%s", from, diff)
		}
	}
}

func readBack(t *testing.T, c Cluster) {
	b := c.Open()
	fill(t, b, 12)
	for _, tc := range []struct{ from, max, first, last int }{
		{12, 3, 12, 10}, {100, 1, 12, 12}, {math.MaxInt, 2, 12, 11}, {5, 100, 5, 1}, {1, 1, 1, 1}, {0, 1, 1, 2},
	} {
		var want []eventlog.Stored
		for i := tc.first; i >= tc.last; i-- {
			want = append(want, stored(i, i)...)
		}
		got, err := b.ReadBack(t.Context(), uint64(tc.from), tc.max)
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); err != nil || diff != "" {
			t.Errorf("from %d: %v (-want +got):\n%s", tc.from, err, diff)
		}
	}
}

func valueLimit(t *testing.T, c Cluster) {
	b := c.Open()
	limit := b.Limits().Value
	_, err := b.Append(t.Context(), eventlog.Proposal{To: []byte("h"), At: 1, Value: make([]byte, limit+64<<10)})
	if !errors.Is(err, eventlog.ErrTooLarge) || !eventlog.Refused(err) {
		t.Errorf("over the limit: %v, want ErrTooLarge", err)
	}
	full := bytes.Repeat([]byte{0xa5}, limit)
	if a, err := b.Append(t.Context(), eventlog.Proposal{To: []byte("h"), At: 1, Value: full}); err != nil || !a.Applied {
		t.Fatalf("at the limit: %+v, %v", a.Applied, err)
	}
	if a, err := b.Read(t.Context(), 1); err != nil || len(a.Batches) != 1 || !bytes.Equal(a.Batches[0].Value, full) {
		t.Errorf("the value at the limit does not read back: %v", err)
	}
}

func waitEnds(t *testing.T, c Cluster) {
	b := c.Open()
	fill(t, b, 2)
	ended := make(chan error, 1)
	go func() {
		for { // a hint may be early
			if err := b.Wait(t.Context(), 3); err != nil {
				ended <- err
				return
			}
			if a, err := b.Read(t.Context(), 3); err != nil || len(a.Batches) > 0 {
				ended <- err
				return
			}
		}
	}()
	if a, err := c.Open().Append(t.Context(), eventlog.Proposal{From: []byte("head 2"), To: []byte("head 3"), At: 3, Value: value(3)}); err != nil || !a.Applied {
		t.Fatal(a, err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func waitForPresent(t *testing.T, c Cluster) {
	b := c.Open()
	fill(t, b, 2)
	if err := b.Wait(t.Context(), 2); err != nil {
		t.Error(err)
	}
}

func waitCancelled(t *testing.T, c Cluster) {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	b := c.Open()
	for ctx.Err() == nil {
		if err := b.Wait(ctx, 1); err == nil {
			continue // early
		} else if ctx.Err() == nil {
			t.Fatal(err)
		}
	}
}

func closed(t *testing.T, c Cluster) {
	b := c.Open()
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if _, err := b.Read(ctx, 1); err == nil {
		t.Error("Read succeeded")
	}
	if _, err := b.Append(ctx, eventlog.Proposal{To: []byte("h"), At: 1, Value: []byte("v")}); err == nil {
		t.Error("Append succeeded")
	}
	if err := b.Wait(ctx, 1); err == nil {
		t.Error("Wait succeeded")
	}
	if err := b.Trim(ctx, 1); err == nil {
		t.Error("Trim succeeded")
	}
}
