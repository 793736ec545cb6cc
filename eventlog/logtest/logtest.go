// Package logtest is the conformance suite of the log's backends: it tests what eventlog.Backend promises.
package logtest

import (
	"bytes"
	"context"
	"errors"
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
	"stele.dev/stele/eventlog/logpb"
	"stele.dev/stele/eventlog/turns"
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

// Entry encodes an event about an object of a given name.
func Entry(t testing.TB, name string) *eventlog.Entry {
	t.Helper()
	e := &eventlog.Event{Meta: &logpb.Metadata{Type: logpb.Type_TYPE_CREATED, Object: &logpb.Object{Resource: "tests", Name: name}}}
	e.AddContent(&logpb.Payload{Role: logpb.Role_ROLE_OBJECT}, []byte(`{"name":"`+name+`"}`))
	entry, err := eventlog.Encode(e)
	if err != nil {
		t.Fatal(err)
	}
	return entry
}

// appender appends with a place in the line.
type appender struct {
	b  eventlog.Backend
	id eventlog.ID
}

// append appends revision `at`, and returns whether it was applied.
func (a appender) append(t *testing.T, at int, change func(*eventlog.Proposal)) bool {
	t.Helper()
	p := eventlog.Proposal{To: fmt.Appendf(nil, "head %d", at), At: uint64(at), Value: value(at), Writer: a.id, RoundTrip: 7 * time.Millisecond}
	if at > 1 {
		p.From = fmt.Appendf(nil, "head %d", at-1)
	}
	if change != nil {
		change(&p)
	}
	answer, err := a.b.Append(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	return answer.Applied
}

// sees waits until the line is as wanted: the first byte of each ID.
func (a appender) sees(t *testing.T, want string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		var line []byte
		last, news := uint64(0), a.b.News(0)
		for _, w := range news.Line {
			if w.Place <= last || w.RoundTrip != 7*time.Millisecond {
				t.Errorf("the line has %+v after place %d", w, last)
			}
			line, last = append(line, w.Writer[0]), w.Place
		}
		if string(line) == want {
			return
		}
		select {
		case <-news.Changed:
		case <-ctx.Done():
			t.Fatalf("%c sees the line %q, want %q", a.id[0], line, want)
		}
	}
}

func line(t *testing.T, c Cluster) {
	x, y, z := appender{c.Open(), eventlog.ID{'x'}}, appender{c.Open(), eventlog.ID{'y'}}, appender{c.Open(), eventlog.ID{'z'}}
	stays := func(p *eventlog.Proposal) { p.Stays = true }
	for i, step := range []struct {
		who     appender
		at      int
		change  func(*eventlog.Proposal)
		applied bool
		line    string
	}{
		{x, 1, nil, true, ""},
		{y, 1, nil, false, "y"},
		{z, 1, nil, false, "yz"},
		{y, 1, nil, false, "yz"}, // it keeps its place
		{x, 2, nil, true, "yz"},
		{y, 3, nil, true, "z"},
		{y, 3, nil, false, "zy"}, // a repetition of what was applied
		{z, 4, stays, true, "yz"},
		{x, 5, stays, true, "yzx"},
		{x, 6, func(p *eventlog.Proposal) { p.Skipped = []turns.ID{{'y'}} }, true, "z"},
		{y, 1, func(p *eventlog.Proposal) { p.Writer = eventlog.ID{} }, false, "z"}, // no writer
		{z, 7, nil, true, ""},
	} {
		if applied := step.who.append(t, step.at, step.change); applied != step.applied {
			t.Fatalf("step %d: applied %v, want %v", i, applied, step.applied)
		}
		if i == 0 { // from here on all hear
			for _, a := range []appender{x, y, z} {
				if err := a.b.Wait(t.Context(), 1); err != nil {
					t.Fatal(err)
				}
			}
		}
		for _, a := range []appender{x, y, z} {
			a.sees(t, step.line)
		}
	}
	if err := y.b.Leave(t.Context(), y.id); err != nil {
		t.Errorf("Leave of a writer that does not wait = %v", err)
	}
	y.append(t, 1, nil)
	x.sees(t, "y")
	if err := y.b.Leave(t.Context(), y.id); err != nil {
		t.Error(err)
	}
	x.sees(t, "")
}

func find(b eventlog.Backend, id eventlog.ID) (eventlog.Waiter, bool) {
	for _, w := range b.News(0).Line {
		if w.Writer == id {
			return w, true
		}
	}
	return eventlog.Waiter{}, false
}

func hear(t *testing.T, c Cluster) {
	x, y := appender{c.Open(), eventlog.ID{'x'}}, appender{c.Open(), eventlog.ID{'y'}}
	x.append(t, 1, nil)
	if err := y.b.Wait(t.Context(), 1); err != nil { // from here on it hears
		t.Fatal(err)
	}
	x.append(t, 2, nil)
	x.append(t, 3, func(p *eventlog.Proposal) { p.Stays = true })
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		n := y.b.News(2)
		if _, waits := find(y.b, x.id); waits && len(n.Batches) == 2 {
			if diff := cmp.Diff(stored(2, 3), n.Batches); diff != "" {
				t.Errorf("news (-want +got):\n%s", diff)
			}
			return
		}
		select {
		case <-n.Changed:
		case <-ctx.Done():
			t.Fatalf("the news is %+v", n)
		}
	}
}

func manyWriters(t *testing.T, c Cluster) {
	const writers, each = 4, 25
	var wg sync.WaitGroup
	var mu sync.Mutex
	at := map[string]uint64{} // name -> revision that its writer was told
	for w := range writers {
		log, err := eventlog.Open(t.Context(), c.Open(), eventlog.Options{})
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			tip := log.Start()
			for i := range each {
				name := fmt.Sprintf("%d-%d", w, i)
				draft := eventlog.NewDraft([]*eventlog.Entry{Entry(t, name)})
				for {
					won, newer, err := log.Append(t.Context(), tip, draft)
					if err != nil {
						t.Error(err)
						return
					}
					if won != nil {
						tip = won.Head()
						mu.Lock()
						at[name] = won.First
						mu.Unlock()
						break
					}
					tip = newer[len(newer)-1].Head()
				}
			}
		})
	}
	wg.Wait()

	log, err := eventlog.Open(t.Context(), c.Open(), eventlog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]uint64{}
	for _, b := range all(t, log) {
		for _, e := range b.Events {
			if name := e.Meta.GetObject().GetName(); name != "" {
				got[name] = e.Revision
			}
		}
	}
	if diff := cmp.Diff(at, got); diff != "" {
		t.Errorf("what writers were told and what is in the log (-told +log):\n%s", diff)
	}
	if len(got) != writers*each {
		t.Errorf("%d events, want %d", len(got), writers*each)
	}
}

// all reads a log from its start to its tip.
func all(t testing.TB, log *eventlog.Log) (batches []*eventlog.Batch) {
	t.Helper()
	for at := log.Start(); ; at = batches[len(batches)-1].Head() {
		more, err := log.CatchUp(t.Context(), at)
		if err != nil {
			t.Fatal(err)
		}
		if len(more) == 0 {
			return batches
		}
		batches = append(batches, more...)
	}
}

func followers(t *testing.T, c Cluster) {
	const n = 60
	writer, err := eventlog.Open(t.Context(), c.Open(), eventlog.Options{RecentBytes: 1}) // followers must read
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 3 {
		log := writer
		if !writer.Exclusive() {
			if log, err = eventlog.Open(t.Context(), c.Open(), eventlog.Options{}); err != nil {
				t.Fatal(err)
			}
		}
		wg.Go(func() {
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
			}
		})
	}
	tip := all(t, writer)[0].Head()
	for i := range n {
		won, _, err := writer.Append(t.Context(), tip, eventlog.NewDraft([]*eventlog.Entry{Entry(t, fmt.Sprint(i))}))
		if err != nil || won == nil {
			t.Fatal(won, err)
		}
		tip = won.Head()
	}
	wg.Wait()
}

func epochs(t *testing.T, c Cluster) {
	backend := c.Open()
	writer, err := eventlog.Open(t.Context(), backend, eventlog.Options{RecentBytes: 1}) // followers must read
	if err != nil {
		t.Fatal(err)
	}
	follower := writer
	if !writer.Exclusive() {
		if follower, err = eventlog.Open(t.Context(), c.Open(), eventlog.Options{}); err != nil {
			t.Fatal(err)
		}
	}
	write := func(at eventlog.Head, name string) eventlog.Head {
		won, _, err := writer.Append(t.Context(), at, eventlog.NewDraft([]*eventlog.Entry{Entry(t, name)}))
		if err != nil || won == nil {
			t.Fatal(won, err)
		}
		return won.Head()
	}
	before := write(all(t, writer)[0].Head(), "before")
	followed := make(chan eventlog.Head, 1)
	go func() {
		batches, err := follower.Next(t.Context(), before)
		if err != nil || len(batches) == 0 {
			t.Errorf("Next = %v, %v", batches, err)
			close(followed)
			return
		}
		followed <- batches[0].Head()
	}()
	started, newer, err := writer.StartEpoch(t.Context(), before, before.Revision+1, 1000)
	if err != nil || started == nil || len(newer) > 0 {
		t.Fatalf("StartEpoch = %v, %v, %v", started, newer, err)
	}
	if got, want := started.Head(), (eventlog.Head{Log: before.Log, Epoch: 1, Revision: 1000, Hash: started.Hash}); got != want {
		t.Errorf("the log is at %v, want %v", got, want)
	}
	if at := <-followed; at != started.Head() {
		t.Errorf("a follower came to %v, want %v", at, started.Head())
	}
	after := write(started.Head(), "after")
	if after.Revision != 1001 || after.Epoch != 1 {
		t.Errorf("what follows is at %v", after)
	}
	second, _, err := writer.StartEpoch(t.Context(), after, after.Revision+1, after.Revision+1) // nothing was lost
	if err != nil || second == nil || second.First != 1002 || second.Epoch != 2 {
		t.Fatalf("StartEpoch = %v, %v", second, err)
	}

	fresh, err := eventlog.Open(t.Context(), c.Open(), eventlog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var revisions []uint64
	var lost []string
	for _, b := range all(t, fresh) {
		revisions = append(revisions, b.First)
		if e := b.Events[0].Meta.GetEpochStarted(); e != nil {
			lost = append(lost, fmt.Sprint(e.GetLostFrom(), "..", e.GetNext()))
		}
	}
	if diff := cmp.Diff([]uint64{1, 2, 1000, 1001, 1002}, revisions); diff != "" {
		t.Errorf("revisions (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"3..1000", "1002..1002"}, lost); diff != "" {
		t.Errorf("what was lost (-want +got):\n%s", diff)
	}
	if back, err := fresh.Back(t.Context(), 999, 10); err != nil || len(back) != 2 || back[0].Last() != 2 {
		t.Errorf("back from a lost revision: %v, %v", back, err)
	}
}

func epochOvertaken(t *testing.T, c Cluster) {
	log, err := eventlog.Open(t.Context(), c.Open(), eventlog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	old := all(t, log)[0].Head()
	won, _, err := log.Append(t.Context(), old, eventlog.NewDraft([]*eventlog.Entry{Entry(t, "first")}))
	if err != nil || won == nil {
		t.Fatal(won, err)
	}
	started, newer, err := log.StartEpoch(t.Context(), old, 5, 1000)
	if err != nil || started != nil || len(newer) != 1 || newer[0].Head() != won.Head() {
		t.Errorf("StartEpoch at an old position = %v, %v, %v; want what follows that", started, newer, err)
	}
	if batches := all(t, log); len(batches) != 2 {
		t.Errorf("the log has %d batches, want 2", len(batches))
	}
}
