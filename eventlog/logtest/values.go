package logtest

import (
	"bytes"
	"testing"

	"stele.dev/stele/eventlog"
)

// values tests a backend that keeps values beside the batches.
func values(t *testing.T, c Cluster) {
	b, ok := c.Open().(eventlog.Values)
	if !ok {
		return
	}
	swap := func(name, from, to string, want bool) {
		t.Helper()
		if swapped, err := b.Swap(t.Context(), name, []byte(from), []byte(to)); err != nil || swapped != want {
			t.Errorf("Swap of %s from %q to %q: %v, %v", name, from, to, swapped, err)
		}
	}
	holds := func(name, want string) {
		t.Helper()
		if value, err := b.Value(t.Context(), name); err != nil || string(value) != want {
			t.Errorf("%s is %q, %v; want %q", name, value, err, want)
		}
	}
	holds("some", "")
	swap("some", "x", "y", false)
	swap("some", "", "one", true)
	swap("some", "", "two", false)
	swap("some", "one", "two", true)
	holds("some", "two")
	holds("other", "")
	swap("some", "two", "", true)
	holds("some", "")

	// A head that is replaced stops writers, and the batches can be removed.
	for _, p := range []eventlog.Proposal{{To: []byte("1"), At: 1, Value: []byte("first")}, {From: []byte("1"), To: []byte("2"), At: 2, Value: []byte("second")}} {
		if a, err := b.Append(t.Context(), p); err != nil || !a.Applied {
			t.Fatal(a, err)
		}
	}
	swap(eventlog.HeadValue, "2", "marked", true)
	if a, err := b.Append(t.Context(), eventlog.Proposal{From: []byte("2"), To: []byte("3"), At: 3, Value: []byte("third")}); err != nil || a.Applied || !bytes.Equal(a.Head, []byte("marked")) {
		t.Errorf("an append at the former head: %+v, %v", a, err)
	}
	if err := b.Clear(t.Context()); err != nil {
		t.Fatal(err)
	}
	if a, err := b.Read(t.Context(), 1); err != nil || len(a.Batches) > 0 || string(a.Head) != "marked" {
		t.Errorf("after Clear: %+v, %v", a, err)
	}
	swap(eventlog.HeadValue, "marked", "", true)
	holds(eventlog.HeadValue, "")
}
