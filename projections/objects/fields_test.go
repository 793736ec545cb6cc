package objects_test

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/fields"
	"stele.dev/stele/eventlog/logpb"
	"stele.dev/stele/projections/objects"
)

// A policy without a selectable field may be in force so briefly that no watch notices. Watches must still
// get the changes of that time.
func TestAFieldThatIsNotSelectableForAMoment(t *testing.T) {
	s := newStore(0)
	kind := objects.Kind{GroupResource: widgets, Fields: []string{"spec.color"}}
	setKind := func(k objects.Kind, revision uint64) {
		tx := s.Begin()
		tx.SetKinds([]objects.Kind{k}, nil)
		s.Publish(tx, revision)
	}
	setKind(kind, 0)
	apply(t, s, 1, event(logpb.Type_TYPE_CREATED, thing{"ns", "a", "x", "red", 1, 1}, 0))
	sel := objects.Select("", nil, fields.OneTermEqualSelector("spec.color", "red")).As(kind)
	w, err := s.Watch(widgets, sel, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	if events, _, more, err := w.Take(); len(events) > 0 || more || err != nil { // from here on it is offered what concerns it
		t.Fatal(events, more, err)
	}
	setKind(objects.Kind{GroupResource: widgets}, 1)
	apply(t, s, 2, event(logpb.Type_TYPE_UPDATED, thing{"ns", "a", "x", "blue", 1, 2}, 1))
	setKind(kind, 2)
	apply(t, s, 3, event(logpb.Type_TYPE_CREATED, thing{"ns", "b", "x", "red", 1, 3}, 0))
	ctx, cancel := context.WithCancel(t.Context())
	running := make(chan struct{})
	go func() { defer close(running); s.Run(ctx) }()
	defer func() { cancel(); <-running }()
	var got []string
	for len(got) == 0 || got[len(got)-1] != "b came" {
		<-w.Ready()
		events, _, _, err := w.Take()
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range events {
			got = append(got, e.Object.Name+map[objects.EventType]string{objects.Added: " came", objects.Modified: " changed", objects.Deleted: " went"}[e.Type])
		}
	}
	if diff := cmp.Diff([]string{"a went", "b came"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
