package audit_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"stele.dev/stele/core/record/audit"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/logpb"
	"stele.dev/stele/eventlog/memlog"
)

// fixture is a log to append to.
type fixture struct {
	t   *testing.T
	log *eventlog.Log
	tip eventlog.Head
	n   int
	dir string
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	var store memlog.Store
	log, err := eventlog.Open(t.Context(), store.Open(nil), eventlog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	batches, err := log.CatchUp(t.Context(), log.Start())
	if err != nil {
		t.Fatal(err)
	}
	return &fixture{t: t, log: log, tip: batches[0].Head(), dir: t.TempDir()}
}

// append writes n decisions, each a batch.
func (f *fixture) append(n int) {
	f.t.Helper()
	for range n {
		f.n++
		e := &eventlog.Event{Meta: &logpb.Metadata{
			Type: logpb.Type_TYPE_DECISION, Actor: &logpb.Actor{User: "alice"}, Object: &logpb.Object{Resource: "pods", Namespace: "ns", Name: "a", Version: "v1"},
			Request:   &logpb.Request{Verb: "get", AuditId: fmt.Sprintf("id-%d", f.n), Uri: "/api/v1/namespaces/ns/pods/a", Status: 403, ReceivedUnixNano: 1},
			Decisions: &logpb.Decisions{Audit: &logpb.Audit{Level: logpb.AuditLevel_AUDIT_LEVEL_REQUEST, Stages: 4}},
			Detail:    &logpb.Metadata_Decision{Decision: &logpb.Decision{Outcome: logpb.Outcome_OUTCOME_REFUSED, AuditStage: 4}},
		}}
		e.AddContent(&logpb.Payload{Role: logpb.Role_ROLE_REQUEST}, []byte(`{"a":"`+strings.Repeat("x", 300)+`"}`))
		f.put(e)
	}
}

func (f *fixture) put(e *eventlog.Event) {
	f.t.Helper()
	entry, err := eventlog.Encode(e)
	if err != nil {
		f.t.Fatal(err)
	}
	won, _, err := f.log.Append(f.t.Context(), f.tip, eventlog.NewDraft([]*eventlog.Entry{entry}))
	if err != nil {
		f.t.Fatal(err)
	}
	f.tip = won.Head()
}

// anchor records how far a sink has got.
func (f *fixture) anchor(sink string, revision uint64) {
	f.put(&eventlog.Event{Meta: &logpb.Metadata{Type: logpb.Type_TYPE_DECISIONS_ANCHORED, Skippable: true,
		Detail: &logpb.Metadata_DecisionsAnchored{DecisionsAnchored: &logpb.DecisionsAnchored{Sinks: []*logpb.SinkCursor{{Sink: sink, Revision: revision}}}}}})
}

// sink is one whose answers a test decides.
type sink struct {
	mu     sync.Mutex
	ids    []string
	lines  []string
	calls  int
	answer func(ctx context.Context, records []audit.Record) error
}

func (s *sink) Name() string { return "fake" }

func (s *sink) Send(ctx context.Context, records []audit.Record) error {
	s.mu.Lock()
	s.calls++
	answer := s.answer
	s.mu.Unlock()
	if answer != nil {
		if err := answer(ctx, records); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range records {
		var e auditv1.Event
		if err := json.Unmarshal(r.Line, &e); err != nil {
			return err
		}
		s.ids = append(s.ids, string(e.AuditID))
		s.lines = append(s.lines, string(r.Line))
	}
	return nil
}

func (s *sink) set(answer func(context.Context, []audit.Record) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer = answer
}

// gaps says what the sink has not got of n lines in order; repeated lines are allowed.
func (s *sink) gaps(n int) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := 1
	for _, id := range s.ids {
		var got int
		if _, err := fmt.Sscanf(id, "id-%d", &got); err != nil {
			continue
		}
		if got > next {
			return fmt.Sprintf("id-%d follows id-%d", got, next-1)
		}
		if got == next {
			next++
		}
	}
	if next <= n {
		return fmt.Sprintf("it ends with id-%d of %d", next-1, n)
	}
	return ""
}

func (f *fixture) options(s audit.Sink) audit.Options {
	return audit.Options{Sink: s, LogName: audit.DecisionsLog, Log: f.log, Start: f.log.Start(), File: filepath.Join(f.dir, "fake.cursor"), Batching: audit.Batching{Size: 10}}
}

// run runs a feeder until stop is called.
func run(t *testing.T, o audit.Options) (feeder *audit.Feeder, stop func()) {
	t.Helper()
	feeder = audit.NewFeeder(o)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- feeder.Run(ctx) }()
	return feeder, func() {
		t.Helper()
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
}

func TestEveryLineIsSentOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, s := newFixture(t), &sink{}
		for range 4 {
			f.append(23)
			_, stop := run(t, f.options(s))
			time.Sleep(3 * time.Second)
			f.append(1)
			stop() // what is there is sent
		}
		if gaps := s.gaps(f.n); gaps != "" || len(s.ids) != f.n {
			t.Errorf("%d of %d lines; %s", len(s.ids), f.n, gaps)
		}
		if s.calls > 4*5 {
			t.Errorf("%d lines in %d calls", f.n, s.calls)
		}
	})
}

// A server that stops as soon as it has started sends what is there, too.
func TestAStopAtOnceSendsEachLine(t *testing.T) {
	f, s := newFixture(t), &sink{}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for range 2 {
		f.append(23)
		if err := audit.NewFeeder(f.options(s)).Run(ended); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
	if gaps := s.gaps(f.n); gaps != "" || len(s.ids) != f.n {
		t.Errorf("%d of %d lines; %s", len(s.ids), f.n, gaps)
	}
}

// A new sink of the log of record gets what is written from when the server starts, although Run begins later.
func TestANewSinkBeginsWithTheServer(t *testing.T) {
	f, s := newFixture(t), &sink{}
	o := f.options(s)
	o.LogName, o.Begin = audit.RecordLog, f.tip
	f.append(3)
	_, stop := run(t, o)
	stop()
	if gaps := s.gaps(f.n); gaps != "" || len(s.ids) != f.n {
		t.Errorf("%d of %d lines; %s", len(s.ids), f.n, gaps)
	}
}

// Whatever a sink does for how long: nothing is lost, the log gets two messages, and the sink has everything when it is
// back.
func TestASinkFails(t *testing.T) {
	refused := errors.New("refused")
	for name, answer := range map[string]func(context.Context, []audit.Record) error{
		"refuses": func(context.Context, []audit.Record) error { return refused },
		"hangs":   func(ctx context.Context, _ []audit.Record) error { <-ctx.Done(); return ctx.Err() },
		"is slow": func(ctx context.Context, _ []audit.Record) error { time.Sleep(20 * time.Second); return refused },
	} {
		synctest.Test(t, func(t *testing.T) {
			f, s := newFixture(t), &sink{answer: answer}
			var logged bytes.Buffer
			o := f.options(s)
			o.Logger = slog.New(slog.NewTextHandler(&logged, nil))
			feeder, stop := run(t, o)
			for range 60 {
				f.append(1)
				time.Sleep(10 * time.Second)
			}
			if feeder.Health() == nil || !strings.Contains(feeder.Health().Error(), "fake has taken no audit lines since 2000-01-01") || feeder.Floor() >= f.tip.Revision {
				t.Errorf("%s: health %v, floor %d", name, feeder.Health(), feeder.Floor())
			}
			synctest.Wait()
			if s.calls > 30 {
				t.Errorf("%s: %d attempts in ten minutes", name, s.calls)
			}
			s.set(nil)
			time.Sleep(2 * time.Minute)
			if gaps := s.gaps(f.n); gaps != "" || feeder.Health() != nil || feeder.Floor() != f.tip.Revision {
				t.Errorf("%s: %s, %v, floor %d", name, gaps, feeder.Health(), feeder.Floor())
			}
			if n := strings.Count(logged.String(), "\n"); n != 2 {
				t.Errorf("%s: logged are\n%s", name, logged.String())
			}
			stop()
		})
	}
}

// The process may end at any time, without storing its cursor.
func TestACrashLosesNoLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, s := newFixture(t), &sink{}
		var saved []byte
		for i := range 12 {
			f.append(7)
			if i == 5 {
				s.set(func(context.Context, []audit.Record) error { return errors.New("refused") })
			} else {
				s.set(nil)
			}
			_, stop := run(t, f.options(s))
			time.Sleep(time.Duration(i%3) * 700 * time.Millisecond)
			stop()
			switch cursor := filepath.Join(f.dir, "fake.cursor"); i % 4 {
			case 0:
				saved, _ = os.ReadFile(cursor)
			case 2: // an old cursor
				if err := os.WriteFile(cursor, saved, 0o600); err != nil {
					t.Fatal(err)
				}
			case 3: // a damaged one
				if err := os.WriteFile(cursor, []byte("{"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
		}
		if gaps := s.gaps(f.n); gaps != "" {
			t.Error(gaps)
		}
	})
}

// A sink that has taken nothing yet when the server crashes gets everything since it was configured.
func TestACrashBeforeASinkHasTakenAnything(t *testing.T) {
	for _, damaged := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			f, s := newFixture(t), &sink{answer: func(context.Context, []audit.Record) error { return errors.New("down") }}
			o := f.options(s)
			o.LogName = audit.RecordLog
			if damaged {
				if err := os.WriteFile(o.File, []byte("{"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			_, stop := run(t, o)
			time.Sleep(2 * time.Second)
			f.append(3)
			time.Sleep(2 * time.Second)
			cursor, err := os.ReadFile(o.File)
			if err != nil {
				t.Fatal(err)
			}
			stop()
			if err := os.WriteFile(o.File, cursor, 0o600); err != nil { // as after a crash
				t.Fatal(err)
			}
			f.append(2)
			s.set(nil)
			_, stop = run(t, o)
			time.Sleep(5 * time.Second)
			if gaps := s.gaps(f.n); gaps != "" {
				t.Errorf("damaged before: %v: %s", damaged, gaps)
			}
			stop()
		})
	}
}

// The log is the buffer: what a sink does not take costs no memory.
func TestADeadSinkTakesNoMemory(t *testing.T) {
	var taken atomic.Int64
	synctest.Test(t, func(t *testing.T) {
		f, s := newFixture(t), &sink{answer: func(context.Context, []audit.Record) error { return errors.New("refused") }}
		log := &counting{Reader: f.log, taken: &taken}
		o := f.options(s)
		o.Log = log
		_, stop := run(t, o)
		for range 300 { // five minutes
			f.append(20)
			time.Sleep(time.Second)
		}
		if n := taken.Load(); n > 200 {
			t.Errorf("the feeder has read %d batches of %d", n, f.n)
		}
		stop()
	})
	runtime.GC()
}

// counting counts the batches that are read and used.
type counting struct {
	eventlog.Reader
	taken *atomic.Int64
}

func (c *counting) Next(ctx context.Context, after eventlog.Head) ([]*eventlog.Batch, error) {
	batches, err := c.Reader.Next(ctx, after)
	c.taken.Add(int64(len(batches)))
	return batches, err
}

// A sink may take less at once than is sent. A line that is too large alone is sent without its bodies.
func TestWhatIsTooLargeIsSentInParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		limit := 2500
		s := &sink{}
		s.set(func(_ context.Context, records []audit.Record) error {
			size := 0
			for _, r := range records {
				size += len(r.Line)
			}
			if size > limit {
				return audit.ErrTooLarge
			}
			return nil
		})
		f.append(25)
		_, stop := run(t, f.options(s))
		time.Sleep(5 * time.Second)
		if gaps := s.gaps(25); gaps != "" || strings.Count(strings.Join(s.lines, ""), `"requestObject"`) != 25 {
			t.Error(gaps)
		}
		limit = 700
		f.append(2)
		time.Sleep(5 * time.Second)
		stop()
		if gaps := s.gaps(27); gaps != "" || strings.Contains(s.lines[26], `"requestObject"`) {
			t.Error(gaps, s.lines[26])
		}
	})
}

// What the log does not keep any more is missing, and a line says so.
func TestAGapIsSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, s := newFixture(t), &sink{}
		f.append(5)
		o := f.options(s)
		o.Log = &forgetful{f.log, f.tip}
		f.append(1)
		_, stop := run(t, o)
		time.Sleep(5 * time.Second)
		stop()
		if !slices.Equal(s.ids, []string{"lost-lines-decisions-1-6", "id-6"}) {
			t.Errorf("sent are %v", s.ids)
		}
	})
}

type forgetful struct {
	eventlog.Reader
	oldest eventlog.Head
}

func (f *forgetful) Next(ctx context.Context, after eventlog.Head) ([]*eventlog.Batch, error) {
	if after.Revision < f.oldest.Revision {
		return nil, &eventlog.ForgottenError{Oldest: f.oldest}
	}
	return f.Reader.Next(ctx, after)
}

// A sink that is new gets what follows, and not the whole past. One that another replica has fed gets what it lacks.
func TestANewLeaderGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.append(10)
		first, second := &sink{}, &sink{}
		var leader atomic.Int32
		options := func(i int32, s *sink) audit.Options {
			o := f.options(s)
			o.LogName, o.File = audit.RecordLog, filepath.Join(f.dir, fmt.Sprint(i))
			o.Leads = func() bool { return leader.Load() == i }
			return o
		}
		one, stopOne := run(t, options(0, first))
		two, stopTwo := run(t, options(1, second))
		time.Sleep(2 * time.Second)
		f.append(5)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if !slices.Equal(first.ids, []string{"id-11", "id-12", "id-13", "id-14", "id-15"}) {
			t.Errorf("the first leader has sent %v", first.ids)
		}
		f.anchor("fake", one.Cursor().Revision)
		f.append(2)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if two.Cursor().Revision >= one.Cursor().Revision || two.Cursor().Revision < 16 || len(second.ids) > 0 {
			t.Errorf("the follower is at %d, the leader at %d; sent are %v", two.Cursor().Revision, one.Cursor().Revision, second.ids)
		}
		leader.Store(1)
		time.Sleep(3 * time.Second)
		f.append(1)
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if !slices.Equal(second.ids, []string{"id-16", "id-17", "id-18"}) || len(first.ids) != 7 {
			t.Errorf("the second leader has sent %v, the first one %v", second.ids, first.ids)
		}
		stopOne()
		stopTwo()
		third := &sink{}
		leader.Store(2)
		_, stop := run(t, options(2, third)) // it has no cursor, and finds the anchor
		time.Sleep(3 * time.Second)
		stop()
		synctest.Wait()
		if !slices.Equal(third.ids, []string{"id-16", "id-17", "id-18"}) {
			t.Errorf("a new replica has sent %v", third.ids)
		}
	})
}

// The log is kept for a sink for a week.
func TestTheLogIsNotKeptForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, s := newFixture(t), &sink{answer: func(context.Context, []audit.Record) error { return errors.New("refused") }}
		f.append(1)
		feeder, stop := run(t, f.options(s))
		time.Sleep(6 * 24 * time.Hour)
		if feeder.Floor() != 0 {
			t.Errorf("after six days the floor is %d", feeder.Floor())
		}
		time.Sleep(2 * 24 * time.Hour)
		if feeder.Floor() != math.MaxUint64 {
			t.Errorf("after eight days the floor is %d", feeder.Floor())
		}
		stop()
	})
}

func TestMetricsSayWhetherASinkIsUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, s := newFixture(t), &sink{}
		o := f.options(s)
		o.Metrics = audit.NewMetrics()
		f.append(3)
		_, stop := run(t, o)
		time.Sleep(3 * time.Second)
		s.set(func(context.Context, []audit.Record) error { return errors.New("refused") })
		f.append(1)
		time.Sleep(3 * time.Second)
		got := gather(t, o.Metrics)
		want := map[string]float64{"stele_audit_sink_sent_lines_total": 3, "stele_audit_sink_up": 0, "stele_audit_sink_revision": 4, "stele_audit_sink_gaps_total": 0, "stele_audit_sink_refused_lines_total": 0}
		if failures := got["stele_audit_sink_failures_total"]; failures < 1 {
			t.Errorf("%v failures", failures)
		}
		delete(got, "stele_audit_sink_failures_total")
		if !maps.Equal(got, want) {
			t.Errorf("metrics are %v, want %v", got, want)
		}
		stop()
	})
}

// A sink that refuses some lines for ever gets all others. The refused ones are set aside, also if they are alone, first, last
// or many.
func TestALineThatIsRefusedHoldsUpNoOthers(t *testing.T) {
	for name, poison := range map[string]func(n int) bool{
		"one":          func(n int) bool { return n == 13 },
		"first":        func(n int) bool { return n == 1 },
		"last":         func(n int) bool { return n == 30 },
		"whole batch":  func(n int) bool { return n <= 12 },
		"every second": func(n int) bool { return n%2 == 0 },
	} {
		synctest.Test(t, func(t *testing.T) {
			f, s := newFixture(t), &sink{}
			s.set(func(_ context.Context, records []audit.Record) error {
				for _, r := range records {
					n := 0
					if _, err := fmt.Sscanf(r.Event.Meta.GetRequest().GetAuditId(), "id-%d", &n); err != nil || poison(n) {
						return fmt.Errorf("%w: 400", audit.ErrRefused)
					}
				}
				return nil
			})
			var logged bytes.Buffer
			o := f.options(s)
			o.Logger, o.Metrics = slog.New(slog.NewTextHandler(&logged, nil)), audit.NewMetrics()
			feeder, stop := run(t, o)
			f.append(30)
			time.Sleep(time.Minute)
			f.append(10)
			time.Sleep(10 * time.Minute)
			aside := asideIn(t, f)
			for n := 1; n <= f.n; n++ {
				id := fmt.Sprint("id-", n)
				if got := slices.Contains(aside, id); got != poison(n) || slices.Contains(s.ids, id) == got {
					t.Errorf("%s: %s is set aside: %v, sent: %v", name, id, got, slices.Contains(s.ids, id))
				}
			}
			if n := gather(t, o.Metrics)["stele_audit_sink_refused_lines_total"]; int(n) != len(aside) {
				t.Errorf("%s: %v lines are counted, %d are set aside", name, n, len(aside))
			}
			if err := feeder.Health(); err == nil || !strings.Contains(err.Error(), "refused.jsonl") || feeder.Floor() != f.tip.Revision {
				t.Errorf("%s: health %v, floor %d", name, err, feeder.Floor())
			}
			if n := strings.Count(logged.String(), "are set aside"); n != 1 {
				t.Errorf("%s: logged are\n%s", name, logged.String())
			}
			stop()
		})
	}
}

// A sink that has taken a batch and rejects some of its lines, without saying which, does not get them again. All of the batch are
// set aside, because none may be lost, and as many as it rejects are counted.
func TestABatchThatIsPartlyRefusedIsSetAside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, s := newFixture(t), &sink{}
		o := f.options(s)
		o.Metrics = audit.NewMetrics()
		feeder, stop := run(t, o)
		f.append(5)
		time.Sleep(5 * time.Second)
		s.set(func(_ context.Context, records []audit.Record) error {
			return &audit.PartlyRefused{Records: 2, Answer: "400 too old"}
		})
		f.append(4)
		time.Sleep(5 * time.Second)
		s.set(nil)
		f.append(3)
		time.Sleep(5 * time.Second)
		if aside := asideIn(t, f); !slices.Equal(aside, []string{"id-6", "id-7", "id-8", "id-9"}) {
			t.Errorf("set aside are %v", aside)
		}
		if s.calls != 3 {
			t.Errorf("%d requests", s.calls)
		}
		got := gather(t, o.Metrics)
		for name, want := range map[string]float64{"stele_audit_sink_refused_lines_total": 2, "stele_audit_sink_sent_lines_total": 10, "stele_audit_sink_up": 1} {
			if got[name] != want {
				t.Errorf("%s is %v, want %v", name, got[name], want)
			}
		}
		if err := feeder.Health(); err == nil || !strings.Contains(err.Error(), "refused.jsonl") || feeder.Floor() != f.tip.Revision {
			t.Errorf("health %v, floor %d", err, feeder.Floor())
		}
		stop()
	})
}

// asideIn returns the audit IDs of the lines that were set aside, each once.
func asideIn(t *testing.T, f *fixture) (ids []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(f.dir, "fake.refused.jsonl"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var x struct {
			Event  auditv1.Event
			Answer string
		}
		if err := json.Unmarshal([]byte(line), &x); err != nil || !strings.Contains(x.Answer, "400") {
			t.Errorf("%s: %v", line, err)
		}
		ids = append(ids, string(x.Event.AuditID))
	}
	slices.Sort(ids)
	return ids
}

// A sink that refuses everything, for example because its credentials have expired, is one that is down: nothing is set aside.
func TestASinkThatRefusesEverythingGetsItLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, s := newFixture(t), &sink{}
		o := f.options(s)
		var said bytes.Buffer // read after the feeder has ended
		o.Logger = slog.New(slog.NewTextHandler(&said, nil))
		feeder, stop := run(t, o)
		f.append(3)
		time.Sleep(3 * time.Second)
		s.set(func(context.Context, []audit.Record) error { return fmt.Errorf("%w: 401", audit.ErrRefused) })
		for range 360 { // an hour
			f.append(1)
			time.Sleep(10 * time.Second)
		}
		synctest.Wait()
		if s.calls > 1000 || feeder.Health() == nil {
			t.Errorf("%d attempts in an hour; %v", s.calls, feeder.Health())
		}
		s.set(nil)
		time.Sleep(2 * time.Minute)
		if gaps, aside := s.gaps(f.n), asideIn(t, f); gaps != "" || len(aside) > 0 || feeder.Health() != nil {
			t.Errorf("%s, set aside %v, %v", gaps, aside, feeder.Health())
		}
		stop()
		if n := strings.Count(said.String(), "a sink refuses all audit lines"); n < 30 || n > 60 {
			t.Errorf("in an hour it was said %d times", n)
		}
	})
}
