package objects_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/logpb"
	"stele.dev/stele/projections/objects"
)

// A watcher that expires in the middle of a revision must return a place that covers exactly the changes
// that it has returned.
func TestThePlaceOfAWatcherThatIsLeftBehind(t *testing.T) {
	const n = 300
	s := newStore(1)
	for i := range uint64(n) {
		apply(t, s, i+1, event(logpb.Type_TYPE_CREATED, thing{"ns", fmt.Sprintf("w%03d", i), "x", "red", 7, i + 1}, 0))
	}
	w, err := s.Watch(widgets, objects.Selection{}, n)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	tx := s.Begin()
	if err := tx.Apply(&eventlog.Event{Meta: &logpb.Metadata{Type: logpb.Type_TYPE_POLICY_ACTIVATED}}, n+1); err != nil {
		t.Fatal(err)
	}
	tx.SetKinds([]objects.Kind{{GroupResource: widgets, Render: func(payload []byte) []byte {
		return []byte(strings.Replace(string(payload), `"red"`, `"blue"`, 1))
	}}}, nil)
	s.Publish(tx, n+1)
	events, bookmark, more, err := w.Take()
	if err != nil || len(events) == 0 || len(events) == n || bookmark != n || !more {
		t.Fatalf("%d events, then %d, %v, %v; want a part of the revision", len(events), bookmark, more, err)
	}
	want := objects.Place{Revision: n, Partly: true, Namespace: "ns", Name: events[len(events)-1].Object.Name}
	if diff := cmp.Diff(want, w.Place()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	ctx, cancel := context.WithCancel(t.Context())
	running := make(chan struct{})
	go func() { defer close(running); s.Run(ctx) }()
	for err == nil { // memory is dropped once it has been offered
		_, err = s.At(widgets, n)
	}
	cancel()
	<-running
	if _, _, _, err := w.Take(); !errors.Is(err, objects.ErrExpired) {
		t.Errorf("%v, want ErrExpired", err)
	}
	if diff := cmp.Diff(want, w.Place()); diff != "" {
		t.Errorf("after that (-want +got):\n%s", diff)
	}
}
