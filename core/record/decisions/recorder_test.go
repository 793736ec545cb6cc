package decisions_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"stele.dev/stele/core/auth/authn"
	"stele.dev/stele/core/record/decisions"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/filelog"
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
		if from.After(lastRecord.Add(-time.Minute)) || to.Sub(from) < time.Hour || !strings.HasPrefix(lost.GetWhy(), "the server did not stop cleanly") {
			t.Errorf("the gap is from %v to %v: %s", from, to, lost.GetWhy())
		}
		again.stop()
		third := start(t, decisions.Options{Dir: dir})
		time.Sleep(time.Second)
		has(t, third.Recorder, "created", "a", "lost 0", "closed")
		third.stop()
	})
}

// Each decision beyond the budget is counted with those that are alike, and nothing else is.
func TestTheBudgetCountsWhatIsTooMuch(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		r := start(t, decisions.Options{Dir: dir, Budget: decisions.Budget{
			All: decisions.Rate{PerSecond: 1e6, Burst: 1e6}, User: decisions.Rate{PerSecond: 100, Burst: 2000},
			Anonymous: decisions.Rate{PerSecond: 10, Burst: 1000}, Source: decisions.Rate{PerSecond: 10, Burst: 700},
		}})
		for range 100 {
			r.Record(refusal("d", "dana", "1.2.3.4"))
			r.Record(refusal("s", "system:anonymous", "1.2.3.4"))
		}
		r.Record(refusal("e", "eddie", "1.2.3.4"))
		r.Record(refusal("t", "system:anonymous", "1.2.3.5"))
		time.Sleep(30 * time.Second)
		r.Record(refusal("later", "dana", "1.2.3.4"))
		time.Sleep(31 * time.Second)
		one := map[string]int{}
		counted := map[string]uint64{}
		for _, e := range events(t, r.Recorder) {
			switch m := e.Meta; m.GetType() {
			case logpb.Type_TYPE_DECISION:
				one[m.GetActor().GetUser()]++
			case logpb.Type_TYPE_DECISIONS_COUNTED:
				c := m.GetDecisionsCounted()
				counted[m.GetActor().GetUser()] += c.GetCount()
				if c.GetLike().GetStage() != "authorization" || c.GetLike().GetReason() != "Forbidden" || m.GetRequest().GetStatus() != 403 || m.GetObject().GetResource() != "widgets" || c.GetLastUnixNano() < c.GetFirstUnixNano() {
					t.Errorf("counted: %v", m)
				}
			}
		}
		for name, want := range map[string]int{"dana": 101, "system:anonymous": 101, "eddie": 1} {
			if one[name]+int(counted[name]) != want || one[name] == 0 || want > 1 && counted[name] < 90 {
				t.Errorf("%s: %d recorded and %d counted, of %d", name, one[name], counted[name], want)
			}
		}
		r.stop()
	})
}

// Any number of clients with names of their own takes little memory and disk, and all their decisions are counted.
func TestAFloodIsBounded(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		r := start(t, decisions.Options{Dir: dir, Budget: decisions.Budget{
			All: decisions.Rate{PerSecond: 1000, Burst: 10000}, User: decisions.DefaultBudget.User, Anonymous: decisions.DefaultBudget.Anonymous, Source: decisions.DefaultBudget.Source,
		}})
		const n, minutes = 5000, 4
		for range minutes {
			for i := range n {
				r.Record(refusal("x", fmt.Sprintf("user-%d", i), "1.2.3.4"))
			}
			time.Sleep(time.Minute)
		}
		time.Sleep(time.Minute)
		all, other := 0, 0
		for _, e := range events(t, r.Recorder) {
			all += int(e.Meta.GetDecisionsCounted().GetCount())
			if e.Meta.GetDecision() != nil {
				all++
			}
			if e.Meta.GetDecisionsCounted() != nil && e.Meta.GetActor() == nil {
				other += int(e.Meta.GetDecisionsCounted().GetCount())
			}
		}
		if all != minutes*n || other < n {
			t.Errorf("%d of %d are counted, %d of them as others", all, minutes*n, other)
		}
		if used := r.Log().Usage().Allocated; used > 1<<20 {
			t.Errorf("the log takes %d bytes", used)
		}
		r.stop()
	})
}

// full is a file on a disk that may be full.
type full struct {
	*os.File
	disk *atomic.Bool
}

func (f full) WriteAt(b []byte, at int64) (int, error) {
	if f.disk.Load() {
		return 0, syscall.ENOSPC
	}
	return f.File.WriteAt(b, at)
}

// While the disk is full, decisions are counted as lost. Who waits for a record is told.
func TestAFullDiskLeavesAGapOfKnownSize(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		var disk atomic.Bool
		r := start(t, decisions.Options{Dir: dir, Files: filelog.Options{OpenFile: func(name string) (filelog.File, error) {
			f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE, 0o600)
			return full{f, &disk}, err
		}}})
		r.Record(refusal("a", "dana", "1.2.3.4"))
		time.Sleep(time.Second)
		disk.Store(true)
		for range 7 {
			r.Record(refusal("lost", "dana", "1.2.3.4"))
			time.Sleep(time.Second)
		}
		if err := r.RecordSync(t.Context(), refusal("sync", "dana", "1.2.3.4")); !errors.Is(err, decisions.ErrNotRecorded) || !errors.Is(err, eventlog.ErrFull) {
			t.Errorf("a record that must be on disk: %v", err)
		}
		if err := r.Health(); err == nil || !strings.Contains(err.Error(), "8 are lost") {
			t.Errorf("health: %v", err)
		}
		disk.Store(false)
		if err := r.RecordSync(t.Context(), refusal("b", "dana", "1.2.3.4")); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if err := r.Health(); err != nil {
			t.Error(err)
		}
		has(t, r.Recorder, "created", "a", "lost 8", "b")
		r.stop()
	})
}

// Failed authentications are counted by network and reason, and none is lost or counted twice.
func TestFailedAuthenticationsAreCounted(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		r := start(t, decisions.Options{Dir: dir})
		now := time.Now()
		of := func(source, method, reason string, n uint64) authn.FailureCount {
			return authn.FailureCount{Source: source, Method: method, Reason: reason, Count: n, First: now, Last: now}
		}
		r.CountFailures(&authn.FailureRecord{
			Count:   17,
			Classes: []authn.FailureCount{of("", "jwt", "expired", 10), of("", "static", "unknown", 7)},
			Sources: []authn.FailureCount{of("192.0.2.0/24", "jwt", "expired", 4), of("198.51.100.0/24", "jwt", "expired", 3), of("192.0.2.0/24", "static", "unknown", 7)},
		})
		time.Sleep(time.Second) // they are of a whole minute already
		got := map[string]uint64{}
		for _, e := range events(t, r.Recorder) {
			if c := e.Meta.GetDecisionsCounted(); c != nil {
				got[strings.Join(e.Meta.GetRequest().GetSourceIps(), ",")+" "+c.GetLike().GetReason()] += c.GetCount()
			}
		}
		want := map[string]uint64{"192.0.2.0/24 jwt: expired": 4, "198.51.100.0/24 jwt: expired": 3, "192.0.2.0/24 static: unknown": 7, " jwt: expired": 3}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("counted (-want +got):\n%s", diff)
		}
		r.stop()
	})
}

// Decisions that find the queue full are counted.
func TestAFullQueueIsCounted(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		r := start(t, decisions.Options{Dir: dir, Queue: 1000})
		for range 10 {
			r.Record(refusal("x", "dana", "1.2.3.4"))
		}
		time.Sleep(2 * time.Minute)
		one, counted := 0, uint64(0)
		for _, e := range events(t, r.Recorder) {
			counted += e.Meta.GetDecisionsCounted().GetCount()
			if e.Meta.GetDecision() != nil {
				one++
			}
		}
		if one == 0 || one > 5 || one+int(counted) != 10 {
			t.Errorf("%d are recorded and %d counted, of 10", one, counted)
		}
		r.stop()
	})
}

// A damaged log does not stop the server: it is set aside, and a new one begins with a gap. Damage of an older file sets
// aside what is before it only.
func TestADamagedLogIsSetAside(t *testing.T) {
	for _, older := range []bool{false, true} {
		dir := filepath.Join(t.TempDir(), "decisions")
		synctest.Test(t, func(t *testing.T) {
			files := filelog.Options{FileBytes: 800}
			r := start(t, decisions.Options{Dir: dir, Files: files})
			for i := range 6 {
				r.Record(refusal(fmt.Sprint(i), "dana", "1.2.3.4"))
				time.Sleep(time.Second)
			}
			r.stop()
			list, err := filepath.Glob(filepath.Join(dir, "*.log"))
			if err != nil || len(list) < 4 {
				t.Fatal(list, err)
			}
			file := list[0]
			if older {
				file = list[2]
			}
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			text[20] ^= 1
			if !older {
				text = append(text, text...) // damage in the middle
			}
			if err := os.WriteFile(file, text, 0o600); err != nil {
				t.Fatal(err)
			}
			r = start(t, decisions.Options{Dir: dir, Files: files})
			r.Record(refusal("new", "dana", "1.2.3.4"))
			time.Sleep(time.Second)
			aside, err := filepath.Glob(dir + ".damaged-*/" + filepath.Base(file))
			if err != nil || len(aside) != 1 {
				t.Errorf("set aside: %v, %v", aside, err)
			}
			got := strings.Join(texts(events(t, r.Recorder)), " ")
			if !strings.Contains(got, "lost 0") || !strings.HasSuffix(got, "new") && !strings.Contains(got, "new lost 0") {
				t.Errorf("the log has %s", got)
			}
			if older && !strings.Contains(got, "5 closed") || !older && strings.Contains(got, "5") {
				t.Errorf("the log has %s", got)
			}
			r.stop()
		})
	}
}

// The head is recorded once a minute, if something was added.
func TestHeadsAreAnchored(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		var heads []eventlog.Head
		r := start(t, decisions.Options{Dir: dir, Anchor: func(_ context.Context, h eventlog.Head) error { heads = append(heads, h); return nil }})
		r.Record(refusal("a", "dana", "1.2.3.4"))
		time.Sleep(10 * time.Minute)
		r.Record(refusal("b", "dana", "1.2.3.4"))
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if len(heads) != 2 || heads[1].Revision <= heads[0].Revision {
			t.Errorf("%d anchors: %v", len(heads), heads)
		}
		r.stop()
		if v, err := filelog.Verify(t.Context(), dir, func(context.Context, time.Time) ([]eventlog.Head, error) { return heads, nil }); err != nil || v.Anchors != 2 {
			t.Errorf("%+v, %v", v, err)
		}
	})
}

// Decisions are found in any part of the log, by an index that is made again if it is damaged.
func TestTheIndexFindsOldDecisions(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		const n = 70_000 // more than a file of the index has
		unlimited := decisions.Rate{PerSecond: 1e12, Burst: 1e12}
		o := decisions.Options{Dir: dir, Queue: 1 << 40, Budget: decisions.Budget{All: unlimited, User: unlimited, Anonymous: unlimited, Source: unlimited}}
		r := start(t, o)
		for i := range n {
			r.Record(refusal(fmt.Sprint("id-", i), "dana", "1.2.3.4"))
		}
		time.Sleep(time.Second)
		find := func(when string, r *running) {
			t.Helper()
			for _, i := range []int{0, 1, n / 2, n - 1} {
				if found, err := r.Find(t.Context(), fmt.Sprint("id-", i)); err != nil || len(found) != 1 {
					t.Errorf("%s: id-%d: %d found, %v", when, i, len(found), err)
				}
			}
			if found, err := r.Find(t.Context(), "id-x"); err != nil || len(found) != 0 {
				t.Errorf("%s: %d found, %v", when, len(found), err)
			}
		}
		find("at first", r)
		r.stop()
		r = start(t, o)
		find("after a restart", r)
		r.stop()
		if err := os.RemoveAll(filepath.Join(dir, "index")); err != nil {
			t.Fatal(err)
		}
		r = start(t, o)
		find("without an index", r)
		r.stop()
	})
}

// A search for a user or a rule leaves out most of what has nothing of them, and nothing else; also after a restart, with damaged
// files, and without any.
func TestSearchesLeaveOutWhatLacksAUserOrARule(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		unlimited := decisions.Rate{PerSecond: 1e12, Burst: 1e12}
		o := decisions.Options{Dir: dir, Queue: 1 << 40, Budget: decisions.Budget{All: unlimited, User: unlimited, Anonymous: unlimited, Source: unlimited}}
		r := start(t, o)
		const n = 6000
		for i := range n {
			e := refusal(fmt.Sprint("id-", i), fmt.Sprint("user-", i%20), "1.2.3.4")
			if i%2500 == 1200 {
				e.Meta.Actor.User = "rare"
			}
			if i == 5000 {
				e.Meta.GetDecision().Rule = "team/denies/rare"
			}
			if r.Record(e); i%100 == 99 {
				time.Sleep(200 * time.Millisecond) // a batch of its own
			}
		}
		time.Sleep(time.Second)
		search := func(when string, r *running, sought decisions.Sought, want, most int) {
			t.Helper()
			newest, err := r.Log().Back(t.Context(), math.MaxInt64, 1)
			if err != nil {
				t.Fatal(err)
			}
			found, read := 0, 0
			for from := r.Back(newest[0].Last(), sought); from > 0; {
				batches, err := r.Log().Back(t.Context(), from, 1)
				if err != nil || len(batches) == 0 {
					t.Fatal(len(batches), err)
				}
				for _, e := range batches[0].Events {
					read++
					if (sought.User == "" || e.Meta.GetActor().GetUser() == sought.User) && (sought.Rule == "" || e.Meta.GetDecision().GetRule() == sought.Rule) {
						found++
					}
				}
				from = r.Back(batches[0].First-1, sought)
			}
			if found != want || read > most {
				t.Errorf("%s: %+v: %d found of %d, by reading %d", when, sought, found, want, read)
			}
		}
		all := func(when string, r *running, most int) {
			t.Helper()
			search(when, r, decisions.Sought{User: "rare"}, 2, most)
			search(when, r, decisions.Sought{Rule: "team/denies/rare"}, 1, most)
			search(when, r, decisions.Sought{User: "rare", Rule: "team/denies/rare"}, 0, most)
			search(when, r, decisions.Sought{User: "nobody"}, 0, most)
			search(when, r, decisions.Sought{User: "user-7"}, n/20, n+10)
		}
		all("at first", r, 3500)
		r.stop()
		r = start(t, o)
		all("after a restart", r, 4500)
		r.stop()
		files, err := filepath.Glob(filepath.Join(dir, "index", "*.blocks"))
		if err != nil || len(files) == 0 {
			t.Fatal(files, err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			text[len(text)/2] ^= 1
			if err := os.WriteFile(file, text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		r = start(t, o)
		all("with damaged files", r, n+10)
		r.stop()
		if err := os.RemoveAll(filepath.Join(dir, "index")); err != nil {
			t.Fatal(err)
		}
		r = start(t, o)
		all("without an index", r, 4500)
		r.stop()
	})
}

// A log of record that hangs holds up no decisions. When it answers again, the newest head is recorded.
func TestALogOfRecordThatHangsHoldsUpNothing(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		answers := make(chan struct{})
		var mu sync.Mutex
		var heads []eventlog.Head
		r := start(t, decisions.Options{Dir: dir, Anchor: func(_ context.Context, h eventlog.Head) error {
			<-answers // whatever its context says
			mu.Lock()
			defer mu.Unlock()
			heads = append(heads, h)
			return nil
		}})
		r.Record(refusal("a", "dana", "1.2.3.4"))
		for minute := range 5 {
			time.Sleep(time.Minute) // the first one is asked for a head, and hangs
			id, began := fmt.Sprint(minute), time.Now()
			if err := r.RecordSync(t.Context(), refusal(id, "dana", "1.2.3.4")); err != nil || time.Since(began) > time.Second {
				t.Errorf("minute %d: %v after %v", minute, err, time.Since(began))
			}
			if err := r.Health(); err != nil {
				t.Errorf("minute %d: %v", minute, err)
			}
		}
		has(t, r.Recorder, "created", "a", "0", "1", "2", "3", "4")
		close(answers)
		time.Sleep(2 * time.Minute)
		newest, err := r.Log().Back(t.Context(), math.MaxInt64, 1)
		mu.Lock()
		recorded := heads
		mu.Unlock()
		if err != nil || len(recorded) < 2 || recorded[len(recorded)-1] != newest[0].Head() {
			t.Errorf("heads %v, the newest is %v, %v", recorded, newest, err)
		}
		r.stop()
	})
}

// smallDisk has limited room, and takes nothing after a kill.
type smallDisk struct {
	mu     sync.Mutex
	room   int
	killed bool
}

// take returns how many of n bytes are written, and why not more.
func (d *smallDisk) take(n int) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.killed:
		return 0, os.ErrClosed
	case n > d.room:
		n, d.room = d.room, 0
		return n, syscall.ENOSPC
	}
	d.room -= n
	return n, nil
}

func (d *smallDisk) set(room int, killed bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.room, d.killed = room, killed
}

// fileOn is a file on a smallDisk.
type fileOn struct {
	*os.File
	disk *smallDisk
}

func (f fileOn) WriteAt(b []byte, at int64) (int, error) {
	n, why := f.disk.take(len(b))
	n, err := f.File.WriteAt(b[:n], at)
	return n, errors.Join(err, why)
}

func (f fileOn) Truncate(size int64) error {
	if _, err := f.disk.take(0); err != nil {
		return err
	}
	return f.File.Truncate(size)
}

// A server is killed while its disk is full, or has just been. No decision that was acknowledged is lost or repeated, and each kill
// leaves a gap.
func TestKillsOnAFullDiskLoseNothingThatWasAcknowledged(t *testing.T) {
	const rounds = 30
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		rng, acknowledged, refused := rand.New(rand.NewPCG(1, 2)), map[string]bool{}, 0
		for round := range rounds {
			disk := &smallDisk{room: 1 << 20}
			r, err := decisions.Open(t.Context(), decisions.Options{Dir: dir, Files: filelog.Options{FileBytes: 4000, OpenFile: func(name string) (filelog.File, error) {
				f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE, 0o600)
				return fileOn{f, disk}, err
			}}})
			if err != nil {
				t.Fatalf("round %d: %v", round, err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error)
			go func() { done <- r.Run(ctx) }()
			for i := range 8 {
				switch rng.IntN(4) {
				case 0:
					disk.set(rng.IntN(1500), false)
				case 1:
					disk.set(1<<20, false)
				}
				id := fmt.Sprintf("%d.%d", round, i)
				if r.RecordSync(t.Context(), refusal(id, "dana", "1.2.3.4")) == nil {
					acknowledged[id] = true
				} else {
					refused++
				}
				r.Record(refusal("late", "dana", "1.2.3.4")) // nobody waits for it
			}
			disk.set(0, true) // nothing reaches the disk any more, not even at the end of the process
			cancel()
			<-done
			_ = r.Close()
		}
		if len(acknowledged) < rounds || refused < rounds {
			t.Fatalf("%d decisions were acknowledged, %d were not", len(acknowledged), refused)
		}
		r := start(t, decisions.Options{Dir: dir})
		time.Sleep(time.Second)
		times, gaps := map[string]int{}, 0
		for _, text := range texts(events(t, r.Recorder)) {
			if times[text]++; strings.HasPrefix(text, "lost") {
				gaps++
			}
		}
		for id := range acknowledged {
			if times[id] != 1 {
				t.Errorf("%s was acknowledged, and is in the log %d times", id, times[id])
			}
		}
		for text, n := range times {
			if n > 1 && strings.Contains(text, ".") {
				t.Errorf("%s is in the log %d times", text, n)
			}
		}
		if gaps == 0 {
			t.Error("no gap is recorded")
		}
		r.stop()
		if _, err := filelog.Verify(t.Context(), dir, nil); err != nil {
			t.Error(err)
		}
	})
}

// sealing are keys that seal all contents, and open those that were sealed under their name.
type sealing string

func (sealing) Seals(eventlog.Kind) bool { return true }

func (k sealing) Seal(_ context.Context, _ eventlog.Kind, plain []byte) (string, []byte, error) {
	return string(k), append([]byte(k), plain...), nil
}

func (k sealing) Open(_ context.Context, _ eventlog.Kind, id string, sealed []byte) ([]byte, bool, error) {
	if id != string(k) {
		return nil, false, errors.New("another key")
	}
	return sealed[len(k):], false, nil
}

func (sealing) Temporary(error) bool { return false }

// A key that is gone hides the bodies that are encrypted under it, and nothing else of the log.
func TestDecisionsOutlastTheirKey(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		body := []byte(`{"kind":"Widget"}`)
		r := start(t, decisions.Options{Dir: dir, Keys: sealing("first")})
		e := refusal("a", "dana", "1.2.3.4")
		e.AddContent(&logpb.Payload{Role: logpb.Role_ROLE_REQUEST}, body)
		r.Record(e)
		time.Sleep(time.Second)
		r.stop()
		for _, tc := range []struct {
			keys eventlog.Keys
			body []byte
		}{{sealing("first"), body}, {sealing("second"), nil}, {nil, nil}} {
			r := start(t, decisions.Options{Dir: dir, Keys: tc.keys})
			found, err := r.Find(t.Context(), "a")
			if err != nil || len(found) != 1 || string(found[0].Content(logpb.Role_ROLE_REQUEST)) != string(tc.body) {
				t.Errorf("keys %v: found %v, %v", tc.keys, texts(found), err)
			}
			r.stop()
		}
		if aside, err := filepath.Glob(dir + ".damaged*"); err != nil || len(aside) > 0 {
			t.Errorf("the log was set aside: %v, %v", aside, err)
		}
	})
}
