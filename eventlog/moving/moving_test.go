package moving_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"

	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/logpb"
	"stele.dev/stele/eventlog/memlog"
	"stele.dev/stele/eventlog/moving"
)

// write appends n events to the log in a store, and returns its head.
func write(t *testing.T, store *memlog.Store, n int) eventlog.Head {
	t.Helper()
	log, err := eventlog.Open(t.Context(), store.Open(nil), eventlog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	tip, err := log.Tip(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		won, err := appendOne(t.Context(), log, tip, fmt.Sprint(tip.Revision, i))
		if err != nil {
			t.Fatal(err)
		}
		tip = won
	}
	return tip
}

func appendOne(ctx context.Context, log *eventlog.Log, tip eventlog.Head, name string) (eventlog.Head, error) {
	entry, err := eventlog.Encode(&eventlog.Event{Meta: &logpb.Metadata{Type: logpb.Type_TYPE_CREATED, Object: &logpb.Object{Resource: "notes", Name: name}}})
	if err != nil {
		return tip, err
	}
	won, _, err := log.Append(ctx, tip, eventlog.NewDraft([]*eventlog.Entry{entry}))
	if err != nil {
		return tip, err
	}
	if won == nil {
		return tip, errors.New("lost")
	}
	return won.Head(), nil
}

// usable reports whether a store can be used as a log.
func usable(t *testing.T, store *memlog.Store) bool {
	value, err := store.Open(nil).Value(t.Context(), eventlog.HeadValue)
	if err != nil {
		t.Fatal(err)
	}
	head, err := eventlog.DecodeHead(value)
	return err == nil && head.Revision > 0
}

func options(from, to *memlog.Store, schedule memlog.Schedule) moving.Options {
	return moving.Options{From: from.Open(schedule), To: to.Open(schedule), FromPlace: "here", ToPlace: "there"}
}

// same checks that a store has the log up to a head.
func same(t *testing.T, store *memlog.Store, was []eventlog.Stored, head eventlog.Head) {
	t.Helper()
	got := store.Batches()
	if len(got) != len(was) {
		t.Fatalf("%d batches, want %d", len(got), len(was))
	}
	for i := range got {
		if got[i].First != was[i].First || !bytes.Equal(got[i].Value, was[i].Value) {
			t.Fatalf("batch %d differs", i)
		}
	}
	log, err := eventlog.Open(t.Context(), store.Open(nil), eventlog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if tip, err := log.Tip(t.Context()); err != nil || tip != head {
		t.Fatalf("%v (%v), want %v", tip, err, head)
	}
}

// faults makes the n-th call fail, before or after it was executed. Waits, which are hints, do not count.
func faults(n int, executed bool) memlog.Schedule {
	calls := 0
	return func(op memlog.Op) memlog.Fault {
		if op == memlog.Wait {
			return memlog.Fault{}
		}
		if calls++; calls != n+1 {
			return memlog.Fault{}
		}
		return memlog.Fault{LoseRequest: !executed, LoseAnswer: executed}
	}
}

func TestAMoveThatIsInterruptedAnywhereContinues(t *testing.T) {
	for _, executed := range []bool{false, true} {
		for n := 0; ; n++ {
			from, to := &memlog.Store{MaxBatches: 3}, &memlog.Store{MaxBatches: 3}
			head := write(t, from, 8)
			was := from.Batches()
			_, err := moving.Move(t.Context(), options(from, to, faults(n, executed)))
			if usable(t, from) && usable(t, to) || !usable(t, from) && !usable(t, to) && err == nil {
				t.Fatalf("after call %d: the source is usable: %v, the target: %v", n, usable(t, from), usable(t, to))
			}
			if err == nil {
				same(t, to, was, head)
				if n < 20 {
					t.Errorf("a move takes %d calls", n)
				}
				break
			}
			if n%3 == 0 && !usable(t, from) && !usable(t, to) { // given up, and begun again
				if err := moving.Abandon(t.Context(), options(from, to, nil)); err != nil {
					t.Fatalf("after call %d: %v", n, err)
				}
				same(t, from, was, head)
				if left, _ := to.Open(nil).Value(t.Context(), eventlog.HeadValue); len(left)+len(to.Batches()) > 0 {
					t.Fatalf("after call %d something is left", n)
				}
			}
			if _, err := moving.Move(t.Context(), options(from, to, nil)); err != nil {
				t.Fatalf("again, after call %d: %v", n, err)
			}
			same(t, to, was, head)
			if usable(t, from) {
				t.Fatalf("after call %d: the source is usable", n)
			}
		}
	}
}

// incomplete returns the source and the target of a move that was interrupted while it copied.
func incomplete(t *testing.T) (from, to *memlog.Store, head eventlog.Head) {
	t.Helper()
	for n := 0; ; n++ {
		from, to = &memlog.Store{MaxBatches: 3}, &memlog.Store{MaxBatches: 3}
		head = write(t, from, 8)
		if _, err := moving.Move(t.Context(), options(from, to, faults(n, false))); err == nil {
			t.Fatal("no move was interrupted while it copied")
		}
		if len(to.Batches()) > 3 && !usable(t, from) {
			return from, to, head
		}
	}
}

// Two data directories can be the target of a move of the same log. Only one of them may get it, also if the other move
// began earlier, was interrupted at any moment, and is repeated.
func TestOfTwoMovesToDifferentPlacesOneSucceeds(t *testing.T) {
	for _, executed := range []bool{false, true} {
		for n := 0; ; n++ {
			from, first, second := &memlog.Store{MaxBatches: 3}, &memlog.Store{MaxBatches: 3}, &memlog.Store{MaxBatches: 3}
			head := write(t, from, 8)
			to := func(store *memlog.Store, place string, schedule memlog.Schedule) moving.Options {
				o := options(from, store, schedule)
				o.ToPlace = place
				return o
			}
			check := func(when string) {
				t.Helper()
				if usable(t, first) && usable(t, second) || usable(t, from) && (usable(t, first) || usable(t, second)) {
					t.Fatalf("call %d, %s: the log can be used in two places", n, when)
				}
			}
			_, err := moving.Move(t.Context(), to(first, "first", faults(n, executed)))
			complete := err == nil
			_, err = moving.Move(t.Context(), to(second, "second", nil))
			check("after the second move")
			was := usable(t, second)
			if was != (err == nil) {
				t.Fatalf("call %d: %v", n, err)
			}
			_, err = moving.Move(t.Context(), to(first, "first", nil))
			check("after the first move was repeated")
			if usable(t, first) != (err == nil) || usable(t, first) == usable(t, second) {
				t.Fatalf("call %d: %v", n, err)
			}
			if was { // the copy of the first one can be removed
				if err := moving.Abandon(t.Context(), to(first, "first", nil)); err != nil && len(first.Batches()) > 0 {
					t.Fatalf("call %d: %v", n, err)
				}
				check("after the first move was given up")
				if left, _ := first.Open(nil).Value(t.Context(), eventlog.HeadValue); len(left) > 0 {
					t.Fatalf("call %d: something is left", n)
				}
				same(t, second, from.Batches(), head)
			}
			if complete {
				break
			}
		}
	}
}

// Another move takes the log away after a move has begun and before it has marked the source.
func TestAMoveThatIsOvertakenFails(t *testing.T) {
	from, first, second := new(memlog.Store), new(memlog.Store), new(memlog.Store)
	head := write(t, from, 8)
	o := options(from, first, nil)
	o.Check = func(eventlog.Head) error {
		_, err := moving.Move(t.Context(), options(from, second, nil))
		return err
	}
	if _, err := moving.Move(t.Context(), o); !errors.As(err, new(*eventlog.MarkedError)) || usable(t, first) {
		t.Errorf("%v", err)
	}
	same(t, second, from.Batches(), head)
}

// A machine that has another name since the move was interrupted can give it up.
func TestAMoveIsGivenUpByAnotherNameOfThePlace(t *testing.T) {
	from, to, head := incomplete(t)
	was := from.Batches()
	o := options(from, to, nil)
	o.ToPlace = "there, by another name"
	if err := moving.Abandon(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	same(t, from, was, head)
}

func TestAnAbandonedMoveThatIsInterruptedAnywhereContinues(t *testing.T) {
	for _, executed := range []bool{false, true} {
		for n := 0; ; n++ {
			from, to, head := incomplete(t)
			was := from.Batches()
			err := moving.Abandon(t.Context(), options(from, to, faults(n, executed)))
			if usable(t, to) || err == nil && !usable(t, from) {
				t.Fatalf("after call %d: the target is usable, or the source is not", n)
			}
			if err == nil {
				break
			}
			if err := moving.Abandon(t.Context(), options(from, to, nil)); err != nil && !usable(t, from) {
				t.Fatalf("again, after call %d: %v", n, err)
			}
			same(t, from, was, head)
		}
	}
}

func TestALogMovesThereAndBackAndAgain(t *testing.T) {
	from, to := new(memlog.Store), new(memlog.Store)
	head := write(t, from, 5)
	floors := func(store *memlog.Store, is string) {
		t.Helper()
		value, err := store.Open(nil).Value(t.Context(), eventlog.FloorsValue)
		if err != nil || string(value) != is {
			t.Errorf("how far the past is erased: %q %v, want %q", value, err, is)
		}
	}
	erase := func(store *memlog.Store, from, to string) {
		t.Helper()
		if swapped, err := store.Open(nil).Swap(t.Context(), eventlog.FloorsValue, []byte(from), []byte(to)); err != nil || !swapped {
			t.Fatal(swapped, err)
		}
	}
	for range 3 {
		erase(from, "", "some")
		if m, err := moving.Move(t.Context(), options(from, to, nil)); err != nil || m.Head != head || m.Before {
			t.Fatalf("%+v %v", m, err)
		}
		if m, err := moving.Move(t.Context(), options(from, to, nil)); err != nil || m.Head != head || !m.Before {
			t.Fatalf("again: %+v %v", m, err)
		}
		var marked *eventlog.MarkedError
		if _, err := eventlog.Open(t.Context(), from.Open(nil), eventlog.Options{}); !errors.As(err, &marked) || marked.Mark.Place != "there" {
			t.Fatal(err)
		}
		floors(to, "some")
		erase(to, "some", "more")
		head = write(t, to, 5)
		if err := to.Open(nil).Trim(t.Context(), head.Revision-3); err != nil { // so that the leftover is no beginning of it
			t.Fatal(err)
		}
		from, to = to, from
		if _, err := moving.Move(t.Context(), options(from, to, nil)); err == nil {
			t.Fatal("a log whose older part is nowhere moves")
		}
		o := options(from, to, nil)
		o.Older = func(context.Context, *eventlog.Batch) error { return nil }
		if m, err := moving.Move(t.Context(), o); err != nil || m.Head != head {
			t.Fatalf("back: %+v %v", m, err)
		}
		floors(to, "more")
		same(t, to, from.Batches(), head)
		from, to = new(memlog.Store), new(memlog.Store)
		head = write(t, from, 5)
	}
}

func TestAWriterDuringAMoveLosesNothing(t *testing.T) {
	from, to := new(memlog.Store), new(memlog.Store)
	write(t, from, 3)
	log, err := eventlog.Open(t.Context(), from.Open(nil), eventlog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	acknowledged := make(chan eventlog.Head, 1)
	begun := make(chan struct{})
	go func() {
		tip, err := log.Tip(t.Context())
		for i := 0; err == nil; i++ {
			if i == 50 {
				close(begun)
			}
			var next eventlog.Head
			if next, err = appendOne(t.Context(), log, tip, fmt.Sprint(i)); err == nil {
				tip = next
			}
		}
		if !errors.As(err, new(*eventlog.MarkedError)) || !eventlog.IsFatal(err) {
			t.Errorf("the writer ended with %v", err)
		}
		acknowledged <- tip
	}()
	<-begun
	m, err := moving.Move(t.Context(), options(from, to, nil))
	if err != nil {
		t.Fatal(err)
	}
	if tip := <-acknowledged; tip != m.Head {
		t.Errorf("acknowledged up to %v, moved up to %v", tip, m.Head)
	}
	same(t, to, from.Batches(), m.Head)
}

func TestAWrongTargetIsRefusedAndNothingChanges(t *testing.T) {
	from, other := new(memlog.Store), new(memlog.Store)
	head := write(t, from, 5)
	was := from.Batches()
	otherHead := write(t, other, 2)
	otherWas := other.Batches()
	if _, err := moving.Move(t.Context(), options(from, other, nil)); err == nil {
		t.Error("the target had another log")
	}
	same(t, other, otherWas, otherHead)
	same(t, from, was, head)

	copied := new(memlog.Store) // an older copy of the same log, of which the other half is newer
	copied.Tamper(func([]byte, []eventlog.Stored) ([]byte, []eventlog.Stored) { return head.Encode(), was })
	if _, err := moving.Move(t.Context(), options(from, copied, nil)); err == nil {
		t.Error("the target is in use")
	}
	write(t, from, 3)
	done := new(memlog.Store)
	if _, err := moving.Move(t.Context(), options(from, done, nil)); err != nil {
		t.Fatal(err)
	}
	if _, err := moving.Move(t.Context(), options(from, new(memlog.Store), nil)); err == nil {
		t.Error("a log that has moved moves to a second place")
	}
	if err := moving.Abandon(t.Context(), options(from, done, nil)); err == nil || usable(t, from) {
		t.Errorf("a complete move is given up: %v", err)
	}
	if err := moving.Abandon(t.Context(), options(from, new(memlog.Store), nil)); err == nil || usable(t, from) {
		t.Errorf("a complete move is given up by another target: %v", err)
	}
	if _, err := moving.Move(t.Context(), options(copied, from, nil)); err == nil {
		t.Error("an older copy replaces a newer log")
	}
	small := &memlog.Store{MaxValue: 10}
	if _, err := moving.Move(t.Context(), options(copied, small, nil)); err == nil || !usable(t, copied) {
		t.Errorf("batches are too large: %v", err)
	}
}
