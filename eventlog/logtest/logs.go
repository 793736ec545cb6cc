package logtest

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/logpb"
	"stele.dev/stele/eventlog/turns"
)

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
