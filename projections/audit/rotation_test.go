package audit_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
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

// pair is a log of record and a log of decisions, and the file of both.
type pair struct {
	*fixture
	decisions *fixture
	agent     string // of decisions
}

func newPair(t *testing.T) *pair { return &pair{fixture: newFixture(t), decisions: newFixture(t)} }

// decide appends n decisions to their log.
func (p *pair) decide(n int) {
	p.t.Helper()
	for range n {
		p.decisions.n++
		e := decided(logpb.AuditLevel_AUDIT_LEVEL_METADATA, 1|4)
		e.Meta.Request.AuditId, e.Meta.Request.UserAgent = fmt.Sprintf("decision-%d", p.decisions.n), p.agent
		p.decisions.commit(p.decisions.encode(e))
	}
}

func (p *pair) options(file string) audit.Options {
	return audit.Options{File: file, Log: p.log, Start: p.log.Start(), Decisions: p.decisions.log, DecisionsStart: p.decisions.log.Start(), Key: hashKey}
}

// writeAll runs a writer until it has all lines.
func writeAll(t *testing.T, o audit.Options) *audit.Writer {
	t.Helper()
	w, err := audit.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := w.Run(ctx); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	return w
}

// files returns the contents of the rotated files, the oldest first, and of the file.
func files(t *testing.T, file string) (contents [][]byte) {
	t.Helper()
	dir := filepath.Dir(file)
	names, err := filepath.Glob(filepath.Join(dir, "audit-*.log*"))
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(names)
	for _, name := range append(names, file) {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(name, ".gz") {
			z, err := gzip.NewReader(bytes.NewReader(data))
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if data, err = io.ReadAll(z); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		contents = append(contents, data)
	}
	return contents
}

// wrong says what is wrong with the lines of all files: each event of the two logs must have its lines exactly once, and
// those of one log in order.
func (p *pair) wrong(file string) string {
	var got, want [2][]string
	for _, e := range parse(p.t, bytes.Join(files(p.t, file), nil)) {
		which := 0
		if strings.HasPrefix(string(e.AuditID), "decision-") {
			which = 1
		}
		got[which] = append(got[which], fmt.Sprint(e.AuditID, e.Stage))
	}
	for i := range p.n {
		want[0] = append(want[0], fmt.Sprintf("audit-%dResponseComplete", i+1))
	}
	for i := range p.decisions.n {
		want[1] = append(want[1], fmt.Sprintf("decision-%dRequestReceived", i+1), fmt.Sprintf("decision-%dResponseComplete", i+1))
	}
	return cmp.Diff(want, got)
}

// Whatever the limit is, files end at it, and no line is lost, divided or repeated.
func TestFilesAreRotatedAtEverySize(t *testing.T) {
	p := newPair(t)
	limits := []int{1}
	for i := range 4 { // around every end of a line
		p.append(1 + i%2)
		p.decide(i % 2)
	}
	all := filepath.Join(t.TempDir(), "audit.log")
	writeAll(t, p.options(all))
	at := 0
	for line := range bytes.Lines(files(t, all)[0]) {
		at += len(line)
		limits = append(limits, at-1, at)
	}
	for _, limit := range limits {
		file := filepath.Join(t.TempDir(), "audit.log")
		o := p.options(file)
		o.Rotation = audit.Rotation{MaxBytes: int64(limit)}
		writeAll(t, o)
		if wrong := p.wrong(file); wrong != "" {
			t.Fatalf("limit %d (-want +got):\n%s", limit, wrong)
		}
		for i, content := range files(t, file) {
			if batches := bytes.Count(content, []byte("\n")); len(content) > limit && batches > 2 || len(content) == 0 {
				t.Errorf("limit %d: file %d has %d bytes in %d lines", limit, i, len(content), batches)
			}
		}
	}
}

// watched is a file that knows how much of it is durable.
type watched struct {
	*os.File
	written, synced *int64
}

func (w *watched) Write(b []byte) (int, error) {
	n, err := w.File.Write(b)
	*w.written += int64(n)
	return n, err
}

func (w *watched) Sync() error { *w.synced = *w.written; return w.File.Sync() }

// A crash may follow any step of a rotation, or a write; of the machine, too, which loses what was not synced. The next
// start must leave every line exactly once, also if the cursor is lost.
func TestACrashInARotation(t *testing.T) {
	p := newPair(t)
	base := t.TempDir()
	var crashes []string
	snapshot := func(name string, file string, keep int64) {
		dir := filepath.Join(base, fmt.Sprint(len(crashes), "-", name))
		if err := os.CopyFS(dir, os.DirFS(filepath.Dir(file))); err != nil {
			t.Fatal(err)
		}
		copied := filepath.Join(dir, "audit.log")
		if info, err := os.Stat(copied); keep >= 0 && err == nil && info.Size() > keep {
			if err := os.Truncate(copied, keep); err != nil {
				t.Fatal(err)
			}
		}
		crashes = append(crashes, copied)
	}
	file := filepath.Join(t.TempDir(), "audit", "audit.log")
	for i := range 3 {
		p.append(1)
		p.decide(i % 2)
		var written, synced int64
		o := p.options(file).WithFile(func(f *os.File) audit.File {
			info, err := f.Stat()
			if err != nil {
				t.Fatal(err)
			}
			written, synced = info.Size(), info.Size()
			return &watched{f, &written, &synced}
		}).WithSteps(func(name string) error {
			snapshot(name, file, -1)
			snapshot(name+" of the machine", file, synced)
			return nil
		})
		o.Rotation = audit.Rotation{MaxBytes: 1500}
		writeAll(t, o)
	}
	if len(crashes) < 30 {
		t.Fatalf("only %d crashes", len(crashes))
	}
	for _, copied := range crashes {
		for _, lost := range []string{"", ".cursor"} {
			if lost != "" {
				if err := os.RemoveAll(copied + lost); err != nil {
					t.Fatal(err)
				}
			}
			o := p.options(copied)
			o.Rotation = audit.Rotation{MaxBytes: 1500}
			writeAll(t, o)
			if wrong := p.wrong(copied); wrong != "" {
				t.Fatalf("%s, without %q (-want +got):\n%s", copied, lost, wrong)
			}
			if aside, _ := filepath.Glob(copied + ".replaced-*"); len(aside) > 0 {
				t.Errorf("%s: %v", copied, aside)
			}
		}
	}
}

// A step that fails, as on a full disk, is repeated.
func TestAStepOfARotationFails(t *testing.T) {
	for _, failing := range []string{"begin", "rename", "open", "sync", "cursor", "end", "write"} {
		synctest.Test(t, func(t *testing.T) {
			p := newPair(t)
			fails := 0
			o := p.options(p.file).WithSteps(func(name string) error {
				if name == failing && fails < 3 {
					fails++
					return syscall.ENOSPC
				}
				return nil
			})
			o.Rotation = audit.Rotation{MaxBytes: 2000}
			w, err := audit.Open(o)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error)
			go func() { done <- w.Run(ctx) }()
			unhealthy := false
			for range 6 {
				p.append(1)
				p.decide(1)
				time.Sleep(1100 * time.Millisecond)
				unhealthy = unhealthy || errors.Is(w.Health(), syscall.ENOSPC)
			}
			time.Sleep(10 * time.Second)
			if !unhealthy || w.Health() != nil || w.Revision() != p.tip.Revision {
				t.Errorf("%s: unhealthy %v, now %v, at %d of %d", failing, unhealthy, w.Health(), w.Revision(), p.tip.Revision)
			}
			cancel()
			<-done
			if wrong := p.wrong(p.file); wrong != "" {
				t.Errorf("%s (-want +got):\n%s", failing, wrong)
			}
		})
	}
}

// full is a file on a disk with limited room.
type full struct {
	*os.File
	room *atomic.Int64
	// stuck makes Truncate fail while the disk is full.
	stuck bool
}

func (f *full) Write(b []byte) (int, error) {
	room := f.room.Load()
	if int64(len(b)) <= room {
		f.room.Add(-int64(len(b)))
		return f.File.Write(b)
	}
	n, _ := f.File.Write(b[:room])
	f.room.Store(0)
	return n, syscall.ENOSPC
}

func (f *full) Truncate(size int64) error {
	if f.stuck && f.room.Load() == 0 {
		return syscall.EIO
	}
	return f.File.Truncate(size)
}

func TestAFullDisk(t *testing.T) {
	for _, stuck := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			p := newPair(t)
			var room atomic.Int64
			o := p.options(p.file).WithFile(func(f *os.File) audit.File { return &full{f, &room, stuck} })
			o.Rotation = audit.Rotation{MaxBytes: 3000}
			w, err := audit.Open(o)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error)
			go func() { done <- w.Run(ctx) }()
			for range 30 {
				p.append(1)
				p.decide(1)
				time.Sleep(3 * time.Second)
				room.Store(700) // as much as part of a line
				time.Sleep(3 * time.Second)
			}
			room.Store(1 << 30)
			time.Sleep(time.Minute)
			if w.Health() != nil || w.Revision() != p.tip.Revision || w.DecisionsRevision() != p.decisions.tip.Revision {
				t.Errorf("%v, at %d and %d", w.Health(), w.Revision(), w.DecisionsRevision())
			}
			cancel()
			<-done
			if wrong := p.wrong(p.file); wrong != "" {
				t.Errorf("(-want +got):\n%s", wrong)
			}
		})
	}
}

func TestOldFilesAreCompressedAndDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t)
		o := p.options(p.file)
		o.Rotation = audit.Rotation{MaxBytes: 1000, MaxBackups: 3, MaxAge: 24 * time.Hour, Compress: true}
		w, err := audit.Open(o)
		if err != nil {
			t.Fatal(err)
		}
		other := filepath.Join(filepath.Dir(p.file), "audit-notes.log")
		if err := os.WriteFile(other, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- w.Run(ctx) }()
		backups := func() []string {
			names, err := filepath.Glob(filepath.Join(filepath.Dir(p.file), "audit-2*"))
			if err != nil {
				t.Fatal(err)
			}
			return names
		}
		for range 9 {
			p.append(1)
			time.Sleep(2 * time.Second)
		}
		names := backups()
		if len(names) != 3 || slices.ContainsFunc(names, func(n string) bool { return !strings.HasSuffix(n, ".log.gz") }) {
			t.Errorf("there are %v", names)
		}
		last := parse(t, bytes.Join(files(t, p.file)[:3], nil)) // the note is before them
		if len(last) == 0 || !strings.HasPrefix(string(last[0].AuditID), "audit-") {
			t.Errorf("compressed are %v", last)
		}
		time.Sleep(26 * time.Hour)
		if names := backups(); len(names) != 0 {
			t.Errorf("after a day there are %v", names)
		}
		cancel()
		<-done
		if _, err := os.Stat(other); err != nil {
			t.Error(err)
		}
	})
}

// What is damaged in a file that others were rotated before is made from the logs, and the others are not needed.
func TestADamagedFileAfterARotation(t *testing.T) {
	p := newPair(t)
	o := p.options(p.file)
	o.Rotation = audit.Rotation{MaxBytes: 3000}
	for i := range 12 {
		p.append(1)
		p.decide(i % 2)
		writeAll(t, o)
	}
	dir := filepath.Dir(p.file)
	backups, err := filepath.Glob(filepath.Join(dir, "audit-*"))
	if err != nil || len(backups) < 2 {
		t.Fatal(backups, err)
	}
	saved := map[string][]byte{}
	for _, name := range []string{"", ".cursor", ".begin"} {
		saved[name] = p.read(p.file + name)
	}
	for _, name := range slices.Sorted(maps.Keys(saved)) {
		size := len(saved[name])
		flipped := bytes.Clone(saved[name])
		flipped[size/3] ^= 1
		for way, damaged := range map[string][]byte{"deleted": nil, "empty": {}, "cut": saved[name][:size/2], "changed": flipped} {
			for other, content := range saved {
				p.put(p.file+other, content)
			}
			p.put(p.file+name, damaged)
			writeAll(t, o)
			if wrong := p.wrong(p.file); wrong != "" {
				t.Errorf("audit.log%s %s (-want +got):\n%s", name, way, wrong)
			}
			if now := p.read(p.file + ".begin"); !bytes.Equal(now, saved[".begin"]) {
				t.Errorf("audit.log%s %s: the beginning is %s", name, way, now)
			}
			for _, aside := range p.aside() {
				p.put(aside, nil)
			}
		}
	}
	for _, name := range backups { // an operator may remove them
		p.put(name, nil)
	}
	p.put(p.file+".cursor", nil)
	before := p.read(p.file)
	writeAll(t, o)
	if now := p.read(p.file); !bytes.Equal(now, before) {
		t.Errorf("without the rotated files it is\n%s", now)
	}
}

// forgetful is a log that does not keep what is before a position.
type forgetful struct {
	eventlog.Reader
	oldest eventlog.Head
}

func (f *forgetful) CatchUp(ctx context.Context, after eventlog.Head) ([]*eventlog.Batch, error) {
	if after.Revision < f.oldest.Revision {
		return nil, &eventlog.ForgottenError{Oldest: f.oldest}
	}
	return f.Reader.CatchUp(ctx, after)
}

func (f *forgetful) Next(ctx context.Context, after eventlog.Head) ([]*eventlog.Batch, error) {
	if after.Revision < f.oldest.Revision {
		return nil, &eventlog.ForgottenError{Oldest: f.oldest}
	}
	return f.Reader.Next(ctx, after)
}

// Decisions that are dropped before their lines are written leave a line that says so; those that are dropped later keep
// their lines, also if the rest of the file was damaged.
func TestDecisionsThatAreNotKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t)
		p.append(2)
		p.decide(3)
		writeAll(t, p.options(p.file))
		p.decide(2)
		log := &forgetful{p.decisions.log, p.decisions.tip}
		p.decide(1)
		p.append(1)
		run := func() {
			o := p.options(p.file)
			o.Decisions = log
			w, err := audit.Open(o)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error)
			go func() { done <- w.Run(ctx) }()
			time.Sleep(5 * time.Second)
			cancel()
			<-done
		}
		run()
		lines := p.lines()
		gaps := 0
		for _, e := range lines {
			if e.Annotations[audit.LostAnnotation] == "2" && strings.Contains(e.Annotations[audit.LostReasonAnnotation], "revisions 5 to 6") {
				gaps++
			}
		}
		if gaps != 1 || len(lines) != 3+3*2+1+2 {
			t.Errorf("%d lines, %d gaps: %v", len(lines), gaps, lines)
		}
		whole := p.read(p.file)
		p.put(p.file, whole[:len(whole)-30])
		p.put(p.file+".cursor", nil)
		run()
		if now := p.read(p.file); !bytes.Equal(now, whole) {
			t.Errorf("after a repair it is\n%s\nwas\n%s", now, whole)
		}
	})
}

// A new log of decisions begins when the former one is lost; one that was cut off by a crash of the machine has lost its
// end, whose lines stay.
func TestALogOfDecisionsIsLost(t *testing.T) {
	p := newPair(t)
	var store memlog.Store
	open := func() {
		var err error
		if p.decisions.log, err = eventlog.Open(t.Context(), store.Open(nil), eventlog.Options{}); err != nil {
			t.Fatal(err)
		}
		batches, err := p.decisions.log.CatchUp(t.Context(), p.decisions.log.Start())
		if err != nil {
			t.Fatal(err)
		}
		p.decisions.tip = batches[len(batches)-1].Head()
	}
	open()
	p.append(2)
	p.decide(2)
	kept := p.decisions.tip
	p.decide(1)
	writeAll(t, p.options(p.file))
	store.Tamper(func(_ []byte, batches []eventlog.Stored) ([]byte, []eventlog.Stored) {
		return kept.Encode(), batches[:3]
	})
	open()
	p.decisions.n, p.agent = 3, "another"
	p.decide(1)
	writeAll(t, p.options(p.file))
	if wrong := p.wrong(p.file); wrong != "" {
		t.Errorf("after the end was lost (-want +got):\n%s", wrong)
	}
	if len(p.aside()) != 0 {
		t.Errorf("set aside: %v", p.aside())
	}
	p.decisions = newFixture(t)
	p.decisions.n = 4
	p.decide(1)
	writeAll(t, p.options(p.file))
	if wrong := p.wrong(p.file); wrong != "" {
		t.Errorf("with a new log (-want +got):\n%s", wrong)
	}
}

// Retention erases payloads. A line that has them stays when the file is compared with the log.
func TestBodiesThatAreErasedStayInTheFile(t *testing.T) {
	f := newFixture(t)
	e := audited(logpb.AuditLevel_AUDIT_LEVEL_REQUEST, 4)
	e.Revision = 0
	f.commit(f.encode(e))
	f.append(1)
	f.run()
	whole := f.read(f.file)
	f.put(f.file+".cursor", nil)
	w, err := audit.Open(audit.Options{File: f.file, Log: &erasing{f.log}, Start: f.log.Start()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := w.Run(ctx); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if now := f.read(f.file); !bytes.Equal(now, whole) || len(f.aside()) > 0 {
		t.Errorf("it is\n%s", now)
	}
	var events []auditv1.Event = f.lines()
	if events[0].RequestObject == nil {
		t.Error("the line has no body")
	}
}

// erasing is a log whose payloads are erased.
type erasing struct{ eventlog.Reader }

func (l *erasing) CatchUp(ctx context.Context, after eventlog.Head) ([]*eventlog.Batch, error) {
	batches, err := l.Reader.CatchUp(ctx, after)
	var erased []*eventlog.Batch
	for _, b := range batches {
		c := *b
		c.Events = nil
		for _, e := range b.Events {
			d := *e
			d.Contents = make([][]byte, len(e.Contents))
			c.Events = append(c.Events, &d)
		}
		erased = append(erased, &c)
	}
	return erased, err
}

// BenchmarkFile writes the lines of a thousand events, each a batch, with the syncs of a stop.
func BenchmarkFile(b *testing.B) {
	for name, level := range map[string]logpb.AuditLevel{"Metadata": logpb.AuditLevel_AUDIT_LEVEL_METADATA, "RequestResponse": logpb.AuditLevel_AUDIT_LEVEL_REQUEST_RESPONSE} {
		b.Run(name, func(b *testing.B) {
			log, err := eventlog.Open(b.Context(), new(memlog.Store).Open(nil), eventlog.Options{})
			if err != nil {
				b.Fatal(err)
			}
			first, err := log.CatchUp(b.Context(), log.Start())
			if err != nil {
				b.Fatal(err)
			}
			tip := first[0].Head()
			for range 1000 {
				entry, err := eventlog.Encode(audited(level, 4))
				if err != nil {
					b.Fatal(err)
				}
				won, _, err := log.Append(b.Context(), tip, eventlog.NewDraft([]*eventlog.Entry{entry}))
				if err != nil {
					b.Fatal(err)
				}
				tip = won.Head()
			}
			for b.Loop() {
				w, err := audit.Open(audit.Options{File: filepath.Join(b.TempDir(), "audit.log"), Log: log, Start: log.Start(), Key: hashKey})
				if err != nil {
					b.Fatal(err)
				}
				ctx, cancel := context.WithCancel(b.Context())
				cancel()
				if err := w.Run(ctx); !errors.Is(err, context.Canceled) {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/1000, "µs/event")
		})
	}
}

// diskFile is a file on a disk with limited room, which takes nothing after a kill.
type diskFile struct {
	full
	killed *atomic.Bool
}

func (f *diskFile) Write(b []byte) (int, error) {
	if f.killed.Load() {
		return 0, os.ErrClosed
	}
	return f.full.Write(b)
}

func (f *diskFile) Truncate(size int64) error {
	if f.killed.Load() {
		return os.ErrClosed
	}
	return f.full.Truncate(size)
}

// A server is killed again and again while the disk is full, or has just been. Afterwards each event has its lines exactly once.
func TestKillsOnAFullDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, rng, problems := newPair(t), rand.New(rand.NewPCG(5, 6)), 0
		for round := range 40 {
			var room, opened atomic.Int64
			var killed atomic.Bool
			room.Store(int64(rng.IntN(4000)))
			o := p.options(p.file).WithFile(func(f *os.File) audit.File {
				return &diskFile{full{f, &room, opened.Add(1)%2 == 0}, &killed}
			}).WithSteps(func(string) error {
				if killed.Load() {
					return os.ErrClosed // files are not renamed any more, and no cursor is written
				}
				return nil
			})
			o.Rotation = audit.Rotation{MaxBytes: 3000}
			w, err := audit.Open(o)
			if err != nil {
				t.Fatalf("round %d: %v", round, err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error)
			go func() { done <- w.Run(ctx) }()
			for range 4 {
				p.append(1)
				p.decide(1)
				time.Sleep(time.Duration(rng.IntN(2500)) * time.Millisecond)
				if w.Health() != nil {
					problems++
				}
				if rng.IntN(3) == 0 {
					room.Store(int64(rng.IntN(2000)))
				}
			}
			killed.Store(true)
			cancel()
			<-done
		}
		if problems < 20 {
			t.Errorf("the disk was full only %d times", problems)
		}
		o := p.options(p.file)
		o.Rotation = audit.Rotation{MaxBytes: 3000}
		writeAll(t, o)
		if wrong := p.wrong(p.file); wrong != "" {
			t.Errorf("(-want +got):\n%s", wrong)
		}
	})
}
