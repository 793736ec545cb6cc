package audit_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/logpb"
	"stele.dev/stele/eventlog/memlog"
	"stele.dev/stele/projections/audit"
)

// fixture is a log to append to, and the folder of its audit log.
type fixture struct {
	t    *testing.T
	log  *eventlog.Log
	tip  eventlog.Head
	file string
	n    int
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
	return &fixture{t: t, log: log, tip: batches[0].Head(), file: filepath.Join(t.TempDir(), "audit", "audit.log")}
}

// append writes a batch of n events with requests.
func (f *fixture) append(n int) {
	f.t.Helper()
	var entries []*eventlog.Entry
	for range n {
		f.n++
		entries = append(entries, f.encode(write(fmt.Sprintf("audit-%d", f.n))))
	}
	f.commit(entries...)
}

func (f *fixture) encode(e *eventlog.Event) *eventlog.Entry {
	f.t.Helper()
	entry, err := eventlog.Encode(e)
	if err != nil {
		f.t.Fatal(err)
	}
	return entry
}

func (f *fixture) commit(entries ...*eventlog.Entry) {
	f.t.Helper()
	won, _, err := f.log.Append(f.t.Context(), f.tip, eventlog.NewDraft(entries))
	if err != nil {
		f.t.Fatal(err)
	}
	f.tip = won.Head()
}

func write(id string) *eventlog.Event {
	return &eventlog.Event{Meta: &logpb.Metadata{
		Type:   logpb.Type_TYPE_UPDATED,
		Object: &logpb.Object{Group: "example.com", Resource: "widgets", Namespace: "ns", Name: "a", Uid: "u", Version: "v1"},
		Actor:  &logpb.Actor{User: "alice", Uid: "7", Groups: []string{"g"}, Extra: []*logpb.Extra{{Key: "k", Values: []string{"v"}}}},
		Request: &logpb.Request{
			Verb: "update", Subresource: "status", AuditId: id, UserAgent: "agent", SourceIps: []string{"10.0.0.1"}, Uri: "/apis/example.com/v1beta1/namespaces/ns/widgets/a/status?fieldManager=m", Status: 200,
			ReceivedUnixNano: time.Date(2026, 1, 2, 3, 4, 5, 678000, time.UTC).UnixNano(),
		},
		Decisions:    &logpb.Decisions{Authorizer: "rbac", Rule: "t/bindings/b", Source: "b.cue:7"},
		PolicyDigest: []byte{0xab},
	}}
}

// run writes the audit log of all events, and returns the file's lines.
func (f *fixture) run() []auditv1.Event {
	f.t.Helper()
	w, err := audit.Open(audit.Options{File: f.file, Log: f.log, Start: f.log.Start()})
	if err != nil {
		f.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(f.t.Context())
	cancel() // it finishes what is there
	if err := w.Run(ctx); !errors.Is(err, context.Canceled) {
		f.t.Fatal(err)
	}
	if w.Revision() != f.tip.Revision {
		f.t.Errorf("written up to %d of %d", w.Revision(), f.tip.Revision)
	}
	return f.lines()
}

func (f *fixture) lines() []auditv1.Event {
	f.t.Helper()
	data, err := os.ReadFile(f.file)
	if err != nil {
		f.t.Fatal(err)
	}
	var events []auditv1.Event
	for line := range bytes.Lines(data) {
		var e auditv1.Event
		if err := json.Unmarshal(line, &e); err != nil {
			f.t.Fatalf("line %q: %v", line, err)
		}
		events = append(events, e)
	}
	return events
}

// check compares the lines with the log: every write must have one line, in order.
func (f *fixture) check(events []auditv1.Event) {
	f.t.Helper()
	var got, want []string
	for _, e := range events {
		got = append(got, string(e.AuditID))
	}
	for i := range f.n {
		want = append(want, fmt.Sprintf("audit-%d", i+1))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		f.t.Errorf("audit ids (-want +got):\n%s", diff)
	}
}

// Violations of admission rules that did not refuse the write are in the annotation that auditors of
// Kubernetes know.
func TestFindingsAreAnnotated(t *testing.T) {
	f := newFixture(t)
	e := write("audit-1")
	e.Meta.Decisions.Admission = []*logpb.Admission{{Rule: "t/validate/a/b", Source: "b.cue:9", Action: "Warn,Audit", Message: "say who owns it"}}
	f.commit(f.encode(e))
	const want = `[{"rule":"t/validate/a/b","source":"b.cue:9","message":"say who owns it","validationActions":["Warn","Audit"]}]`
	if got := f.run()[0].Annotations[audit.FailureAnnotation]; got != want {
		t.Errorf("annotated %s", got)
	}
}

func TestEveryWriteIsOneLine(t *testing.T) {
	f := newFixture(t)
	f.append(3)
	f.commit(f.encode(&eventlog.Event{Meta: &logpb.Metadata{Type: logpb.Type_TYPE_LEVEL_RAISED}})) // of no request
	f.append(1)
	events := f.run()
	f.check(events)
	data, err := os.ReadFile(f.file)
	if err != nil {
		t.Fatal(err)
	}
	var got, want map[string]any
	line, _, _ := bytes.Cut(data, []byte("\n"))
	if err := json.Unmarshal(line, &got); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(`{
		"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Metadata","auditID":"audit-1","stage":"ResponseComplete","requestURI":"/apis/example.com/v1beta1/namespaces/ns/widgets/a/status?fieldManager=m","verb":"update",
		"user":{"username":"alice","uid":"7","groups":["g"],"extra":{"k":["v"]}},"sourceIPs":["10.0.0.1"],"userAgent":"agent",
		"objectRef":{"resource":"widgets","namespace":"ns","name":"a","uid":"u","apiGroup":"example.com","apiVersion":"v1beta1","resourceVersion":"2","subresource":"status"},
		"responseStatus":{"metadata":{},"code":200},"requestReceivedTimestamp":"2026-01-02T03:04:05.000678Z",
		"annotations":{"authorization.k8s.io/decision":"allow","stele.dev/revision":"2","stele.dev/rule":"t/bindings/b","stele.dev/source":"b.cue:7","stele.dev/policy":"ab"}}`), &want); err != nil {
		t.Fatal(err)
	}
	if got["stageTimestamp"] == nil {
		t.Error("no stageTimestamp")
	}
	delete(got, "stageTimestamp")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("line (-want +got):\n%s", diff)
	}
}

func TestImpersonationShowsBoth(t *testing.T) {
	e := write("x")
	e.Revision = 5
	e.Meta.Actor = &logpb.Actor{User: "alice", Impersonator: &logpb.Actor{User: "root"}}
	line := audit.Render(nil, e, nil)
	var event auditv1.Event
	if err := json.Unmarshal(line, &event); err != nil {
		t.Fatal(err)
	}
	if event.User.Username != "root" || event.ImpersonatedUser == nil || event.ImpersonatedUser.Username != "alice" {
		t.Errorf("user %v, impersonated %v", event.User, event.ImpersonatedUser)
	}
}

func TestABulkEventIsALinePerObject(t *testing.T) {
	e := write("x")
	e.Revision = 10
	e.Meta.Type, e.Meta.Object, e.Meta.Span = logpb.Type_TYPE_BULK_DELETED, nil, 3
	e.Meta.Detail = &logpb.Metadata_Bulk{Bulk: &logpb.Bulk{Objects: []*logpb.BulkObject{{Object: &logpb.Object{Name: "a"}}, {Object: &logpb.Object{Name: "b"}}, {Object: &logpb.Object{Name: "c"}}}}}
	lines := audit.Render(nil, e, nil)
	if n := bytes.Count(lines, []byte("\n")); n != 3 || !bytes.Contains(lines, []byte(`"name":"b"`)) || !bytes.Contains(lines, []byte(`"stele.dev/revision":"12"`)) {
		t.Errorf("%d lines: %s", n, lines)
	}
}

func TestItGoesOnWhereItEnded(t *testing.T) {
	f := newFixture(t)
	for i := range 5 {
		f.append(1 + i)
		f.run()
	}
	f.check(f.lines())
}

// A crash may leave an old cursor, an incomplete last line, or both. After the next start the file must
// have every line exactly once.
func TestCrashesLeaveNoGapAndNoRepeat(t *testing.T) {
	f := newFixture(t)
	f.append(4)
	f.run()
	oldCursor, err := os.ReadFile(f.file + ".cursor")
	if err != nil {
		t.Fatal(err)
	}
	f.append(4)
	f.run()
	whole, err := os.ReadFile(f.file)
	if err != nil {
		t.Fatal(err)
	}
	half := bytes.Index(whole, []byte("audit-4"))
	half += bytes.IndexByte(whole[half:], '\n') + 1
	f.append(2)
	for end := half; end <= len(whole); end += 61 { // up to half was synced, says the cursor
		if err := os.WriteFile(f.file, whole[:end], 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(f.file+".cursor", oldCursor, 0o600); err != nil {
			t.Fatal(err)
		}
		f.run()
		f.check(f.lines())
		if t.Failed() {
			t.Fatalf("with %d of %d bytes", end, len(whole))
		}
	}
}

// whole is a log, its correct audit file, and the cursor.
func (f *fixture) whole() (file, cursor []byte) {
	f.t.Helper()
	f.check(f.run())
	return f.read(f.file), f.read(f.file + ".cursor")
}

func (f *fixture) read(file string) []byte {
	f.t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		f.t.Fatal(err)
	}
	return data
}

// put writes a file, or deletes it if data is nil.
func (f *fixture) put(file string, data []byte) {
	f.t.Helper()
	err := os.Remove(file)
	if data != nil {
		err = os.WriteFile(file, data, 0o600)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		f.t.Fatal(err)
	}
}

// aside returns the files of lines that were set aside.
func (f *fixture) aside() []string {
	f.t.Helper()
	files, err := filepath.Glob(f.file + ".replaced-*")
	if err != nil {
		f.t.Fatal(err)
	}
	return files
}

// cursors are the possible contents of the cursor file, by description.
func cursors(cursor []byte) map[string][]byte {
	old, _, _ := bytes.Cut(cursor, []byte("\n"))
	flipped := bytes.Clone(cursor)
	flipped[len(flipped)/2] ^= 1
	return map[string][]byte{
		"as it was": cursor, "deleted": nil, "empty": {}, "cut": cursor[:len(cursor)/2], "without its checksum": cursor[:len(old)+1],
		"changed": flipped, "of an earlier version": regexp.MustCompile(`,"size":.*}`).ReplaceAll(old, []byte("}")),
	}
}

// ends are offsets at which a file may be cut: at its start, around the ends of its lines, and in between.
func ends(file []byte, many bool) (ends []int) {
	step := 23
	if !many {
		step = 1 << 20
	}
	for end := 0; end <= len(file); end++ {
		if end%step == 0 || end == len(file) || file[end] == '\n' || file[end-1] == '\n' {
			ends = append(ends, end)
		}
	}
	return ends
}

// The file is a function of the log: if it is cut anywhere while no server runs, and the cursor is lost or
// damaged, the next start must restore the same file.
func TestAFileThatWasCutIsWholeAgain(t *testing.T) {
	f := newFixture(t)
	f.append(3)
	f.run()
	f.append(4)
	whole, cursor := f.whole()
	for name, left := range cursors(cursor) {
		for _, end := range ends(whole, name == "as it was") {
			f.put(f.file, whole[:end])
			f.put(f.file+".cursor", left)
			f.run()
			if got := f.read(f.file); !bytes.Equal(got, whole) {
				t.Fatalf("cut to %d bytes, the cursor %s: it has %d of %d bytes\n%s", end, name, len(got), len(whole), got)
			}
			if now := f.read(f.file + ".cursor"); !bytes.Equal(now, cursor) {
				t.Fatalf("cut to %d bytes, the cursor %s: the cursor is %s", end, name, now)
			}
		}
	}
	if aside := f.aside(); aside != nil {
		t.Errorf("nothing was replaced, but there is %v", aside)
	}
}

func TestADeletedFolderIsWrittenAgain(t *testing.T) {
	f := newFixture(t)
	f.append(3)
	whole, cursor := f.whole()
	if err := os.RemoveAll(filepath.Dir(f.file)); err != nil {
		t.Fatal(err)
	}
	if again, c := f.whole(); !bytes.Equal(again, whole) || !bytes.Equal(c, cursor) {
		t.Errorf("it is\n%s\nand the cursor %s", again, c)
	}
}

// Lines that are in the file but not in the log are kept for an investigation.
func TestAFileThatWasChangedIsWholeAgain(t *testing.T) {
	f := newFixture(t)
	f.append(5)
	whole, cursor := f.whole()
	middle := bytes.IndexByte(whole[len(whole)/2:], '\n') + len(whole)/2 + 1
	change := func(at int) []byte {
		b := bytes.Clone(whole)
		b[at] ^= 1
		return b
	}
	changes := map[string][]byte{
		"a bit at the start": change(0), "a bit in the middle": change(middle), "a bit at the end": change(len(whole) - 1),
		"lines behind the last": append(bytes.Clone(whole), whole[:middle]...), "a line twice": append(bytes.Clone(whole[:middle]), whole...),
		"zeros": make([]byte, len(whole)), "another file": []byte("hello\n"),
	}
	for name, changed := range changes {
		for _, left := range [][]byte{cursor, nil} {
			f.put(f.file, changed)
			f.put(f.file+".cursor", left)
			f.run()
			if got := f.read(f.file); !bytes.Equal(got, whole) {
				t.Errorf("%s: it is\n%s", name, got)
			}
			if now := f.read(f.file + ".cursor"); !bytes.Equal(now, cursor) {
				t.Errorf("%s: the cursor is %s", name, now)
			}
			aside := f.aside()
			if left != nil && name == "lines behind the last" { // what is behind the cursor may be there
				continue
			}
			if len(aside) != 1 {
				t.Fatalf("%s: set aside are %v", name, aside)
			}
			if kept := f.read(aside[0]); !bytes.HasSuffix(changed, kept) {
				t.Errorf("%s: set aside is\n%s", name, kept)
			}
			f.put(aside[0], nil)
		}
	}
}

// Bytes after the cursor are of a write that was not synced; they may have any content.
func TestWhatIsBehindTheCursorIsWrittenAgain(t *testing.T) {
	f := newFixture(t)
	f.append(2)
	_, cursor := f.whole()
	f.append(2)
	whole, _ := f.whole()
	for _, garbage := range [][]byte{make([]byte, 4096), []byte("{}\n"), whole} {
		f.put(f.file, append(bytes.Clone(whole), garbage...))
		f.put(f.file+".cursor", cursor)
		f.run()
		if got := f.read(f.file); !bytes.Equal(got, whole) {
			t.Errorf("with %.20q behind it, it is\n%s", garbage, got)
		}
	}
}

// For an unchanged file, a start does not read the log again.
func TestAnUntouchedFileGoesOnFromItsCursor(t *testing.T) {
	f := newFixture(t)
	f.append(3)
	f.whole()
	log := &countingReader{Reader: f.log}
	w, err := audit.Open(audit.Options{File: f.file, Log: log, Start: f.log.Start()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := w.Run(ctx); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if log.lowest != f.tip.Revision {
		t.Errorf("it was read from revision %d, not %d", log.lowest, f.tip.Revision)
	}
}

// countingReader records the earliest position that was read.
type countingReader struct {
	eventlog.Reader
	read   bool
	lowest uint64
}

func (r *countingReader) CatchUp(ctx context.Context, after eventlog.Head) ([]*eventlog.Batch, error) {
	if !r.read || after.Revision < r.lowest {
		r.read, r.lowest = true, after.Revision
	}
	return r.Reader.CatchUp(ctx, after)
}

func TestACursorOfAnotherLogIsRefused(t *testing.T) {
	f := newFixture(t)
	f.append(1)
	f.run()
	other := newFixture(t)
	_, err := audit.Open(audit.Options{File: f.file, Log: other.log, Start: other.log.Start()})
	if !errors.Is(err, audit.ErrForeignCursor) {
		t.Errorf("Open = %v", err)
	}
}

func TestALogThatWasRolledBackIsNoticed(t *testing.T) {
	f := newFixture(t)
	f.append(3)
	f.run()
	var store memlog.Store
	log, err := eventlog.Open(t.Context(), store.Open(nil), eventlog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	// The same log, by its id, but shorter.
	text, _, _ := strings.Cut(string(f.read(f.file+".cursor")), "\n")
	text = strings.Replace(text, f.log.ID().String(), log.ID().String(), 1)
	sum := crc32.Checksum([]byte(text), crc32.MakeTable(crc32.Castagnoli))
	f.put(f.file+".cursor", fmt.Appendf(nil, "%s\n%08x\n", text, sum))
	w, err := audit.Open(audit.Options{File: f.file, Log: log, Start: log.Start()})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Run(t.Context()); !errors.Is(err, eventlog.ErrDiverged) {
		t.Errorf("Run = %v", err)
	}
}

func TestFilesAreForTheirOwnerAlone(t *testing.T) {
	f := newFixture(t)
	f.append(1)
	f.run()
	for _, path := range []string{f.file, f.file + ".cursor", filepath.Dir(f.file)} {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if mode := info.Mode().Perm(); mode&0o077 != 0 {
			t.Errorf("%s has mode %v", path, mode)
		}
	}
}

// A log that grows without pause must be synced, too.
func TestItSyncsUnderSteadyWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		w, err := audit.Open(audit.Options{File: f.file, Log: f.log, Start: f.log.Start()})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- w.Run(ctx) }()
		for range 20 {
			f.append(1)
			time.Sleep(300 * time.Millisecond)
		}
		data, err := os.ReadFile(f.file + ".cursor")
		if err != nil {
			t.Error(err)
		}
		var c struct{ Revision uint64 }
		if err := json.NewDecoder(bytes.NewReader(data)).Decode(&c); err != nil || c.Revision+6 < f.tip.Revision {
			t.Errorf("the cursor is at %d of %d, %v", c.Revision, f.tip.Revision, err)
		}
		cancel()
		<-done
	})
}

// Revisions jump where an epoch starts. The audit log must continue there, also from its cursor.
func TestEpochsAreFollowed(t *testing.T) {
	f := newFixture(t)
	f.append(2)
	started, _, err := f.log.StartEpoch(t.Context(), f.tip, f.tip.Revision+1, 100)
	if err != nil {
		t.Fatal(err)
	}
	f.tip = started.Head()
	f.run()
	f.append(1)
	var got []string
	for _, line := range f.run() {
		got = append(got, line.Annotations[audit.RevisionAnnotation])
	}
	if diff := cmp.Diff([]string{"2", "3", "101"}, got); diff != "" {
		t.Errorf("revisions in the audit log (-want +got):\n%s", diff)
	}
}

// A log that was restored from an older copy goes on with an epoch. Lines of what it has lost are set aside.
func TestLinesOfLostRevisionsAreSetAside(t *testing.T) {
	var store memlog.Store
	log, err := eventlog.Open(t.Context(), store.Open(nil), eventlog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{t: t, log: log, file: filepath.Join(t.TempDir(), "audit", "audit.log")}
	batches, err := log.CatchUp(t.Context(), log.Start())
	if err != nil {
		t.Fatal(err)
	}
	f.tip = batches[0].Head()
	f.append(2)
	kept := f.tip
	f.append(1)
	f.append(1)
	f.run()
	store.Tamper(func(_ []byte, batches []eventlog.Stored) ([]byte, []eventlog.Stored) {
		return kept.Encode(), batches[:2]
	})
	if f.log, err = eventlog.Open(t.Context(), store.Open(nil), eventlog.Options{}); err != nil {
		t.Fatal(err)
	}
	started, _, err := f.log.StartEpoch(t.Context(), kept, kept.Revision+1, 100)
	if err != nil {
		t.Fatal(err)
	}
	f.tip = started.Head()
	f.append(1)
	var got []string
	for _, line := range f.run() {
		got = append(got, line.Annotations[audit.RevisionAnnotation])
	}
	if diff := cmp.Diff([]string{"2", "3", "101"}, got); diff != "" {
		t.Errorf("revisions in the audit log (-want +got):\n%s", diff)
	}
	if files := f.aside(); len(files) != 1 || bytes.Count(f.read(files[0]), []byte("\n")) != 2 {
		t.Errorf("set aside: %v", files)
	}
}

// What is before the mark is checked while lines are written, so that a start does not read a large file first.
func TestAChangeBeforeTheMarkIsFoundWhileItRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		start := func() (w *audit.Writer, stop func()) {
			t.Helper()
			w, err := audit.Open(audit.Options{File: f.file, Log: f.log, Start: f.log.Start(), MarkBytes: 1000})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error)
			go func() { ended <- w.Run(ctx) }()
			return w, func() { cancel(); <-ended }
		}
		for range 20 {
			f.append(1)
			_, stop := start()
			time.Sleep(2 * time.Second)
			stop()
		}
		whole := f.read(f.file)
		if cursor := f.read(f.file + ".cursor"); !bytes.Contains(cursor, []byte(`"mark":{"size":`)) {
			t.Fatalf("the cursor has no mark: %s", cursor)
		}
		for _, at := range []int{0, len(whole) / 2, len(whole) - 2} {
			changed := bytes.Clone(whole)
			changed[at] ^= 1
			f.put(f.file, changed)
			w, stop := start()
			time.Sleep(10 * time.Second)
			if got := f.read(f.file); !bytes.Equal(got, whole) {
				t.Errorf("changed at %d of %d: it is\n%s", at, len(whole), got)
			}
			if w.Revision() != f.tip.Revision || w.Health() != nil {
				t.Errorf("changed at %d: written up to %d of %d, %v", at, w.Revision(), f.tip.Revision, w.Health())
			}
			f.append(1) // it goes on
			time.Sleep(2 * time.Second)
			stop()
			f.check(f.lines())
			whole = f.read(f.file)
		}
	})
}

// What is not durable may be lost by a crash, so that the next start needs the log for it.
func TestLinesThatAreNotDurableDoNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.append(1)
		w, err := audit.Open(audit.Options{File: f.file, Log: f.log, Start: f.log.Start()})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- w.Run(ctx) }()
		defer func() { cancel(); <-ended }()
		time.Sleep(5 * time.Second)
		durable := f.tip.Revision
		if w.Revision() != durable {
			t.Errorf("durable up to %d of %d", w.Revision(), durable)
		}
		if err := errors.Join(os.Remove(f.file+".cursor"), os.MkdirAll(f.file+".cursor/in/the/way", 0o700)); err != nil {
			t.Fatal(err)
		}
		f.append(1)
		time.Sleep(5 * time.Second)
		if w.Revision() != durable || w.Health() == nil {
			t.Errorf("durable up to %d, although the cursor could not be written since %d; health %v", w.Revision(), durable, w.Health())
		}
		if err := os.RemoveAll(f.file + ".cursor"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		if w.Revision() != f.tip.Revision {
			t.Errorf("durable up to %d of %d", w.Revision(), f.tip.Revision)
		}
	})
}
