package decisions_test

import (
	"context"
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"stele.dev/stele/core/decisions"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/logpb"
)

// running is a recorder that runs.
type running struct {
	*decisions.Recorder
	stop func()
}

// start opens and runs a recorder. stop stops it cleanly.
func start(t *testing.T, o decisions.Options) *running {
	t.Helper()
	r, err := decisions.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error)
	go func() { done <- r.Run(ctx) }()
	return &running{r, func() {
		cancel()
		<-done
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}}
}

// refusal returns the event of a refused create.
func refusal(auditID, user, source string) *eventlog.Event {
	return &eventlog.Event{Meta: &logpb.Metadata{
		Type: logpb.Type_TYPE_DECISION, Actor: &logpb.Actor{User: user}, Object: &logpb.Object{Group: "example.com", Resource: "widgets"},
		Request: &logpb.Request{Verb: "create", AuditId: auditID, Status: 403, SourceIps: []string{source}},
		Detail:  &logpb.Metadata_Decision{Decision: &logpb.Decision{Outcome: logpb.Outcome_OUTCOME_REFUSED, Stage: "authorization", Reason: "Forbidden"}},
	}}
}

// events returns all events that the log of a recorder has, the oldest first.
func events(t *testing.T, r *decisions.Recorder) (list []*eventlog.Event) {
	t.Helper()
	back, err := r.Log().Back(t.Context(), math.MaxInt64, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	for i := len(back) - 1; i >= 0; i-- {
		list = append(list, back[i].Events...)
	}
	return list
}

// texts describes events in a word or two each.
func texts(list []*eventlog.Event) (texts []string) {
	for _, e := range list {
		switch m := e.Meta; m.GetType() {
		case logpb.Type_TYPE_LOG_CREATED:
			texts = append(texts, "created")
		case logpb.Type_TYPE_DECISION:
			texts = append(texts, m.GetRequest().GetAuditId())
		case logpb.Type_TYPE_DECISIONS_CLOSED:
			texts = append(texts, "closed")
		case logpb.Type_TYPE_DECISIONS_LOST:
			texts = append(texts, fmt.Sprintf("lost %d", m.GetDecisionsLost().GetCount()))
		case logpb.Type_TYPE_DECISIONS_COUNTED:
			texts = append(texts, fmt.Sprintf("%d times %s", m.GetDecisionsCounted().GetCount(), m.GetActor().GetUser()))
		default:
			texts = append(texts, m.GetType().String())
		}
	}
	return texts
}

func has(t *testing.T, r *decisions.Recorder, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, texts(events(t, r))); diff != "" {
		t.Errorf("the log of decisions (-want +got):\n%s", diff)
	}
}

func TestDecisionsAreRecordedAndFoundAgain(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		r := start(t, decisions.Options{Dir: dir})
		r.Record(refusal("a", "dana", "1.2.3.4"))
		r.Record(refusal("b", "dana", "1.2.3.4"))
		time.Sleep(time.Second)
		has(t, r.Recorder, "created", "a", "b")
		r.stop()

		r = start(t, decisions.Options{Dir: dir})
		r.Record(refusal("a", "eddie", "1.2.3.4"))
		time.Sleep(time.Second)
		found, err := r.Find(t.Context(), "a")
		if err != nil || len(found) != 2 || found[0].Meta.GetActor().GetUser() != "eddie" || found[1].Meta.GetActor().GetUser() != "dana" {
			t.Errorf("found %v, %v", texts(found), err)
		}
		if found, err = r.Find(t.Context(), "c"); err != nil || len(found) > 0 {
			t.Errorf("found %v, %v", texts(found), err)
		}
		has(t, r.Recorder, "created", "a", "b", "closed", "a")
		r.stop()
	})
}

// A start that does not find the clean end of the log before it records a gap.
func TestAServerThatDidNotStopCleanlyLeavesAGap(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		r, err := decisions.Open(t.Context(), decisions.Options{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- r.Run(ctx) }()
		r.Record(refusal("a", "dana", "1.2.3.4"))
		time.Sleep(time.Second)
		lastRecord := time.Now()
		r.Log().Close() // from here on nothing reaches the disk, as after a crash
		cancel()
		<-done
		time.Sleep(time.Hour)

		again := start(t, decisions.Options{Dir: dir})
		time.Sleep(time.Second)
		has(t, again.Recorder, "created", "a", "lost 0")
		list := events(t, again.Recorder)
		lost := list[len(list)-1].Meta.GetDecisionsLost()
		from, to := time.Unix(0, lost.GetFromUnixNano()), time.Unix(0, lost.GetToUnixNano())
		if from.After(lastRecord) || to.Sub(from) < time.Hour || lost.GetWhy() != "the server did not stop cleanly" {
			t.Errorf("the gap is from %v to %v: %s", from, to, lost.GetWhy())
		}
		again.stop()
		third := start(t, decisions.Options{Dir: dir})
		time.Sleep(time.Second)
		has(t, third.Recorder, "created", "a", "lost 0", "closed")
		third.stop()
	})
}
