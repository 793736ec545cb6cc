package fairqueue_test

import (
	"context"
	"testing"

	"stele.dev/stele/limits/fairqueue"
)

// A request that waits for another server gives its seats to others, and gets them back without waiting. Then no other request
// begins until there are seats again.
func TestAPausedRequestHoldsNoSeats(t *testing.T) {
	s := fairqueue.New(fairqueue.Config{Seats: 1})
	flow, one := fairqueue.Flow{Schema: "s"}, fairqueue.Work{Seats: 1}
	take := func(x *fairqueue.Ticket) error { return s.Take(context.Background(), x, flow, one, 0, nil) }
	var slow, other, third fairqueue.Ticket
	if err := take(&slow); err != nil {
		t.Fatal(err)
	}
	if take(&other) == nil {
		t.Fatal("two requests have one seat")
	}
	slow.Pause()
	slow.Pause() // does nothing
	if err := take(&other); err != nil {
		t.Fatal("the seat of a paused request is not free: ", err)
	}
	slow.Resume()
	slow.Resume()
	if is := s.State(); is.Taken != 2 || is.Executing != 2 || is.Dispatched != 2 {
		t.Errorf("after the request went on: %+v", is)
	}
	other.Release()
	if take(&third) == nil {
		t.Error("the seat that the resumed request has was given away")
	}
	slow.Pause()
	slow.Release() // ends while it is paused
	slow.Resume()
	if err := take(&third); err != nil {
		t.Error(err)
	}
	third.Release()
	if is := s.State(); is.Taken != 0 || is.Executing != 0 || !is.Idle() {
		t.Errorf("at the end: %+v", is)
	}
}
