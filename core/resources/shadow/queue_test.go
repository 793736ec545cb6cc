package shadow

import (
	"context"
	"fmt"
	"log/slog"
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"stele.dev/stele/core/call"
	"stele.dev/stele/core/commit"
	"stele.dev/stele/core/decide"
	"stele.dev/stele/policy"
)

// blocked returns a shadow whose policy refuses everything, but decides nothing until proceed is called.
func blocked(t *testing.T) (r *running, begun <-chan struct{}, proceed func()) {
	gate, first := make(chan struct{}), make(chan struct{}, 1)
	s := New(func(_ context.Context, seen *decide.Question, _ *policy.Policy) decide.Verdict {
		select {
		case first <- struct{}{}:
		default:
		}
		<-gate
		return decide.Verdict{Stage: "authorization", Rule: seen.Info.Name}
	}, slog.New(slog.DiscardHandler))
	r = newRunning(s, &Shadow{}, &policy.Policy{}, nil, 0)
	s.start(r)
	t.Cleanup(r.stop)
	return r, first, func() { close(gate) }
}

func seen(name string, body int) *Seen {
	s := &Seen{Question: decide.Question{User: &user.DefaultInfo{Name: "dana"}, Info: &request.RequestInfo{IsResourceRequest: true, Resource: "things", Verb: "create", Name: name}, Tip: &commit.Tip{}, AuditID: name}}
	if body > 0 {
		s.Body = &call.Body{Raw: make([]byte, body)}
	}
	return s
}

func all(string) shown { return messages }

// TestTheQueueIsBounded: what does not fit is counted, by number and by size, and the rest is decided.
func TestTheQueueIsBounded(t *testing.T) {
	for _, x := range []struct {
		offered, body, dropped int
	}{
		{maxWaiting + 100, 0, 100},
		{20, maxBytes / 8, 13}, // with their overhead, seven fit
	} {
		r, begun, proceed := blocked(t)
		r.offer(seen("first", 0))
		<-begun // it waits no more
		for range x.offered {
			r.offer(seen("a", x.body))
		}
		if s := r.status(all); s.Waiting != x.offered-x.dropped || s.Requests.Dropped != uint64(x.dropped) {
			t.Errorf("%+v: %d wait, %+v", x, s.Waiting, s.Requests)
		}
		proceed()
		r.await(t.Context())
		if s := r.status(all); s.Waiting != 0 || s.Requests.Refused != uint64(x.offered-x.dropped+1) || r.bytes != 0 {
			t.Errorf("%+v: %d wait, %+v, %d bytes", x, s.Waiting, s.Requests, r.bytes)
		}
	}
}

// TestAnEndDropsTheQueue: nothing is recorded after the end, and nobody waits for it.
func TestAnEndDropsTheQueue(t *testing.T) {
	r, begun, proceed := blocked(t)
	for range 10 {
		r.offer(seen("a", 10))
	}
	<-begun
	if !r.of.end(r, "test") || r.of.Active() || r.of.end(r, "test") {
		t.Error("it does not end once")
	}
	r.await(t.Context())
	proceed()
	for r.busy() {
	}
	if s := r.status(all); s.Requests != (Requests{}) || s.Waiting != 0 || r.bytes != 0 {
		t.Errorf("%+v", s)
	}
}

func (r *running) busy() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.working
}

// TestGroupsAreBounded: groups beyond the limit are counted, and those that are known go on.
func TestGroupsAreBounded(t *testing.T) {
	r, _, proceed := blocked(t)
	proceed()
	for i := range maxGroups + 50 {
		r.record(seen("x", 0), decide.Verdict{Stage: "schema", Path: fmt.Sprintf("spec.list[%d].field%04d", i, i)})
	}
	for i := range 5 {
		r.record(seen(fmt.Sprint(i), 0), decide.Verdict{Stage: "schema", Path: fmt.Sprintf("spec.list[%d].field0000", i+7)})
	}
	for i := range maxReasons + 10 {
		r.record(seen("x", 0), decide.Verdict{Unknown: fmt.Sprint(i)})
	}
	s := r.status(func(string) shown { return decided })
	if len(s.Differences) != maxGroups || s.Unlisted != 50 || len(s.Undecided) != maxReasons+1 || s.Undecided[0] != (Reason{"other reasons", 10}) {
		t.Errorf("%d groups, %d unlisted, %+v", len(s.Differences), s.Unlisted, s.Undecided)
	}
	if f := s.Differences[0]; f.Count != 6 || f.Path != "spec.list[].field0000" || fmt.Sprint(f.AuditIDs) != "[x 0 1]" || f.Message != hiddenRefused {
		t.Errorf("%+v", f)
	}
}

// TestAPanicIsUndecided: a panic neither ends the server nor the shadow.
func TestAPanicIsUndecided(t *testing.T) {
	s := New(func(context.Context, *decide.Question, *policy.Policy) decide.Verdict { panic("no") }, slog.New(slog.DiscardHandler))
	r := newRunning(s, &Shadow{}, &policy.Policy{}, nil, 0)
	t.Cleanup(r.stop)
	r.offer(seen("a", 0))
	r.offer(seen("b", 0))
	r.await(t.Context())
	if got := r.status(all).Requests; got.Undecided != 2 {
		t.Errorf("%+v", got)
	}
}
