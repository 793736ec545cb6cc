package filelog_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/filelog"
	"stele.dev/stele/eventlog/logtest"
)

// write opens the log in a folder, appends an event for each name, and closes it.
func write(t *testing.T, dir string, o filelog.Options, names ...string) {
	t.Helper()
	log := open(t, dir, o)
	for _, name := range names {
		add(t, log, name)
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
}

func open(t *testing.T, dir string, o filelog.Options) *filelog.Log {
	t.Helper()
	log, err := filelog.OpenLog(t.Context(), dir, o, eventlog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { log.Close() })
	return log
}

func tip(t *testing.T, log *filelog.Log) eventlog.Head {
	t.Helper()
	batches, err := log.Back(t.Context(), math.MaxInt64, 1)
	if err != nil {
		t.Fatal(err)
	}
	return batches[0].Head()
}

func add(t *testing.T, log *filelog.Log, name string) {
	t.Helper()
	if won, _, err := log.Append(t.Context(), tip(t, log), eventlog.NewDraft([]*eventlog.Entry{logtest.Entry(t, name)})); err != nil || won == nil {
		t.Fatal(won, err)
	}
}

// names returns the names of all events that can be read, from a position on.
func names(t *testing.T, log *filelog.Log, at eventlog.Head) string {
	t.Helper()
	var list []string
	for {
		batches, err := log.CatchUp(t.Context(), at)
		if err != nil {
			t.Fatal(err)
		}
		if len(batches) == 0 {
			return strings.Join(list, " ")
		}
		for _, b := range batches {
			for _, e := range b.Events {
				if name := e.Meta.GetObject().GetName(); name != "" {
					list = append(list, name)
				}
			}
			at = b.Head()
		}
	}
}

func files(t *testing.T, dir string) []string {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(dir, "*.log"))
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// A crash can leave any part of the last record, or zeros in its place. The log then ends before it, and goes on.
func TestATornEndIsCutOff(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, filelog.Options{}, "a", "b", "c")
	file := files(t, dir)[1]
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	last := bytes.LastIndex(whole, []byte("SLR\x01"))
	for n := last; n < len(whole); n++ {
		for _, torn := range [][]byte{whole[:n], append(slices.Clone(whole[:n]), make([]byte, len(whole)-n)...)} {
			if n == len(whole)-1 && whole[n] == 0 && len(torn) == len(whole) {
				continue
			}
			if err := os.WriteFile(file, torn, 0o600); err != nil {
				t.Fatal(err)
			}
			log := open(t, dir, filelog.Options{})
			if got := names(t, log, log.Start()); got != "a b" {
				t.Fatalf("cut at %d of %d: the log has %q", n, len(whole), got)
			}
			add(t, log, "d")
			log.Close()
			if log = open(t, dir, filelog.Options{}); names(t, log, log.Start()) != "a b d" {
				t.Fatalf("cut at %d of %d: afterwards the log has %q", n, len(whole), names(t, log, log.Start()))
			}
			log.Close()
		}
	}
}

// Damage that no crash explains is an error, at the start or when it is read.
func TestDamageIsNamed(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, filelog.Options{FileBytes: 1000}, "a", "b", "c", "d", "e", "f")
	list := files(t, dir)
	if len(list) < 3 {
		t.Fatalf("there are %d files", len(list))
	}
	for i, file := range list[1:] {
		whole, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, at := range []int{0, 5, 9, 20, 100} {
			bad := slices.Clone(whole)
			bad[at] ^= 1
			if err := os.WriteFile(file, bad, 0o600); err != nil {
				t.Fatal(err)
			}
			var damage *filelog.DamagedError
			newest := i == len(list)-2
			log, err := filelog.OpenLog(t.Context(), dir, filelog.Options{FileBytes: 1000}, eventlog.Options{})
			if err == nil {
				_, err = log.Back(t.Context(), math.MaxInt64, 100)
				log.Close()
			} else if !newest {
				t.Fatal(err)
			}
			if newest && bytes.Count(whole, []byte("SLR\x01")) == 1 {
				continue // its only record is the last, which a crash may have left so
			}
			if !errors.As(err, &damage) || damage.File != file || damage.Offset != 0 {
				t.Errorf("byte %d of %s: %v", at, file, err)
			}
			if log != nil && !newest {
				if log, err = filelog.OpenLog(t.Context(), dir, filelog.Options{FileBytes: 1000}, eventlog.Options{}); err != nil {
					t.Fatal(err)
				}
				if err := log.Check(t.Context()); !errors.As(err, &damage) || damage.File != file {
					t.Errorf("byte %d of %s: checked with %v", at, file, err)
				}
				log.Close()
			}
			if _, err := filelog.Verify(t.Context(), dir, nil); !errors.As(err, &damage) {
				t.Errorf("byte %d of %s: verified with %v", at, file, err)
			}
			if err := os.WriteFile(file, whole, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	if v, err := filelog.Verify(t.Context(), dir, nil); err != nil || v.Events != 7 {
		t.Errorf("%+v, %v", v, err)
	}
}

// faulty is a file that fails on demand.
type faulty struct {
	*os.File
	fail func(op string) error
}

func (f faulty) WriteAt(b []byte, at int64) (int, error) {
	if err := f.fail("write"); err != nil {
		n, _ := f.File.WriteAt(b[:len(b)/2], at)
		return n, err
	}
	return f.File.WriteAt(b, at)
}

func (f faulty) Sync() error {
	if err := f.fail("sync"); err != nil {
		return err
	}
	return f.File.Sync()
}

func (f faulty) Truncate(size int64) error {
	if err := f.fail("truncate"); err != nil {
		return err
	}
	return f.File.Truncate(size)
}

// An append that fails is not in the log, now or after a restart, and the next one succeeds.
func TestAFailedAppendIsUndone(t *testing.T) {
	for _, ops := range []string{"write", "sync", "write truncate", "sync truncate"} {
		dir := t.TempDir()
		failing := ""
		o := filelog.Options{OpenFile: func(name string) (filelog.File, error) {
			f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE, 0o600)
			return faulty{f, func(op string) error {
				if strings.Contains(failing, op) {
					return syscall.ENOSPC
				}
				return nil
			}}, err
		}}
		log := open(t, dir, o)
		add(t, log, "a")
		failing = ops
		_, _, err := log.Append(t.Context(), tip(t, log), eventlog.NewDraft([]*eventlog.Entry{logtest.Entry(t, "lost")}))
		if !errors.Is(err, eventlog.ErrFull) || !eventlog.Refused(err) {
			t.Errorf("%s fails: %v", ops, err)
		}
		if names(t, log, log.Start()) != "a" {
			t.Errorf("%s fails: the log has %q", ops, names(t, log, log.Start()))
		}
		failing = ""
		add(t, log, "b")
		log.Close()
		again := open(t, dir, filelog.Options{})
		if names(t, again, again.Start()) != "a b" {
			t.Errorf("%s fails: after a restart the log has %q", ops, names(t, again, again.Start()))
		}
	}
}

// Old files are removed by size and age. Readers are told where they can go on, also after a restart.
func TestOldFilesAreForgotten(t *testing.T) {
	dir := t.TempDir()
	o := filelog.Options{FileBytes: 700}
	var list []string
	for i := range 40 {
		list = append(list, fmt.Sprint(i))
	}
	write(t, dir, o, list...)
	log := open(t, dir, o)
	before := len(files(t, dir))
	if err := log.Retain(t.Context(), 6000, time.Time{}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		_, err := log.CatchUp(t.Context(), log.Start())
		var forgotten *eventlog.ForgottenError
		if !errors.As(err, &forgotten) || forgotten.Oldest != log.Oldest() {
			t.Fatalf("a read from the start: %v, want what names %v", err, log.Oldest())
		}
		rest := strings.Fields(names(t, log, forgotten.Oldest))
		if n := len(rest); n == 0 || n == 40 || !slices.Equal(rest, list[40-n:]) {
			t.Errorf("what is left is %q", rest)
		}
		if _, err := log.Back(t.Context(), forgotten.Oldest.Revision, 1); !errors.As(err, &forgotten) {
			t.Errorf("a read back of what is forgotten: %v", err)
		}
		if back, err := log.Back(t.Context(), math.MaxInt64, 1000); err != nil || len(back) != len(rest) {
			t.Errorf("a read back has %d batches of %d, %v", len(back), len(rest), err)
		}
		size := int64(0)
		for _, f := range files(t, dir) {
			info, err := os.Stat(f)
			if err != nil {
				t.Fatal(err)
			}
			size += info.Size()
		}
		if size > 6000 || len(files(t, dir)) >= before {
			t.Errorf("%d bytes are left in %d of %d files", size, len(files(t, dir)), before)
		}
		if v, err := filelog.Verify(t.Context(), dir, heads(tip(t, log))); err != nil || v.Oldest != log.Oldest() || v.Anchors != 1 {
			t.Errorf("%+v, %v", v, err)
		}
		log.Close()
		log = open(t, dir, o)
	}
	if err := log.Retain(t.Context(), 0, time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	add(t, log, "new")
	if err := log.Retain(t.Context(), 0, time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if got := names(t, log, log.Oldest()); got != "new" {
		t.Errorf("by age %q is left", got)
	}
}

// heads returns a function that returns heads.
func heads(list ...eventlog.Head) func(context.Context, time.Time) ([]eventlog.Head, error) {
	return func(context.Context, time.Time) ([]eventlog.Head, error) { return list, nil }
}

// A log that was written again, or that was cut, does not agree with the heads that were kept elsewhere.
func TestVerifyComparesHeads(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, filelog.Options{}, "a", "b")
	log := open(t, dir, filelog.Options{})
	head := tip(t, log)
	log.Close()
	other := head
	other.Hash[0]++
	later := head
	later.Revision++
	foreign := later
	foreign.Log[0]++
	for name, tc := range map[string]struct {
		head eventlog.Head
		want string
	}{
		"right": {head, ""}, "of another log": {foreign, ""}, "written again": {other, "was written again"}, "cut": {later, "what follows is lost"},
	} {
		if _, err := filelog.Verify(t.Context(), dir, heads(tc.head)); (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
