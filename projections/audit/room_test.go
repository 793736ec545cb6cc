package audit_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"stele.dev/stele/projections/audit"
)

// held is a file on a disk that is full as long as it is open.
type held struct {
	*os.File
	full func(f *os.File, what string) bool
}

func (h *held) Write(b []byte) (int, error) {
	if h.full(h.File, "write") {
		return 0, syscall.ENOSPC
	}
	return h.File.Write(b)
}

func (h *held) Sync() error {
	if h.full(h.File, "sync") {
		return syscall.ENOSPC
	}
	return h.File.Sync()
}

// The disk is full, and somebody makes room by deleting or moving the file. The open file would keep the room.
func TestRoomIsMadeOnAFullDisk(t *testing.T) {
	for _, failing := range []string{"write", "sync", "rename"} {
		for name, makeRoom := range map[string]func(file string) error{
			"deleted":         os.Remove,
			"moved elsewhere": func(file string) error { return os.Rename(file, filepath.Join(t.TempDir(), "audit.log")) },
			"moved":           func(file string) error { return os.Rename(file, filepath.Join(filepath.Dir(file), "audit-0.log")) },
		} {
			if name == "moved" && failing == "sync" {
				continue // what it has must be durable
			}
			synctest.Test(t, func(t *testing.T) {
				p := newPair(t)
				var mu sync.Mutex
				var holding *os.File
				var opened *os.File
				full := func(f *os.File, what string) bool {
					mu.Lock()
					defer mu.Unlock()
					return f == holding && what == failing
				}
				o := p.options(filepath.Join(t.TempDir(), "audit.log")).WithFile(func(f *os.File) audit.File {
					mu.Lock()
					defer mu.Unlock()
					opened = f
					return &held{f, full}
				}).WithSteps(func(step string) error {
					mu.Lock()
					defer mu.Unlock()
					if step == failing && holding != nil && opened == holding {
						return syscall.ENOSPC
					}
					return nil
				})
				o.Rotation.MaxBytes = 4000
				w, stop := follow(t, o)
				p.append(2)
				time.Sleep(3 * time.Second)
				mu.Lock()
				holding = opened
				mu.Unlock()
				for range 4 {
					p.append(1)
					p.decide(1)
				}
				time.Sleep(10 * time.Second)
				if w.Health() == nil {
					t.Errorf("%s, %s: the disk is not full", failing, name)
				}
				if err := makeRoom(o.File); err != nil {
					t.Fatal(err)
				}
				time.Sleep(10 * time.Second)
				if diff := p.wrong(o.File); diff != "" && name != "moved elsewhere" || w.Health() != nil || w.Revision() != p.tip.Revision {
					t.Errorf("%s, %s: %v, at %d of %d\n%s", failing, name, w.Health(), w.Revision(), p.tip.Revision, diff)
				}
				stop()
				p.append(1)
				writeAll(t, o)
				if diff := p.wrong(o.File); diff != "" {
					t.Errorf("%s, %s: after the next start:\n%s", failing, name, diff)
				}
			})
		}
	}
}

// The file is deleted right before it would be renamed.
func TestAFileThatIsDeletedBeforeARotation(t *testing.T) {
	for _, at := range []string{"begin", "begin, and made again", "rename"} {
		synctest.Test(t, func(t *testing.T) {
			p := newPair(t)
			o := p.options(filepath.Join(t.TempDir(), "audit.log"))
			deleted := false
			o = o.WithSteps(func(step string) error {
				if first, _, again := strings.Cut(at, ","); step != first || deleted {
					return nil
				} else if deleted = true; again {
					return errors.Join(os.Remove(o.File), os.WriteFile(o.File, nil, 0o600))
				}
				return os.Remove(o.File)
			})
			o.Rotation.MaxBytes = 3000
			w, stop := follow(t, o)
			for range 5 {
				p.append(1)
				p.decide(1)
				time.Sleep(3 * time.Second)
			}
			if diff := p.wrong(o.File); diff != "" || !deleted || w.Revision() != p.tip.Revision {
				t.Errorf("%s: at %d of %d\n%s", at, w.Revision(), p.tip.Revision, diff)
			}
			stop()
		})
	}
}

// As long as a deleted file cannot be written again, its lines are not durable.
func TestLinesOfADeletedFileAreNotDurable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t)
		o := p.options(filepath.Join(t.TempDir(), "audit.log"))
		w, stop := follow(t, o)
		p.append(3)
		p.decide(3)
		time.Sleep(2500 * time.Millisecond) // between two looks
		if err := os.Remove(o.File); err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(o.File, 0o700); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		if w.Health() == nil || w.Revision() != 0 || w.DecisionsRevision() != 0 {
			t.Errorf("%v, at %d and %d", w.Health(), w.Revision(), w.DecisionsRevision())
		}
		if err := os.Remove(o.File); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		if diff := p.wrong(o.File); diff != "" || w.Health() != nil || w.Revision() != p.tip.Revision {
			t.Errorf("%v, at %d of %d\n%s", w.Health(), w.Revision(), p.tip.Revision, diff)
		}
		stop()
	})
}

// stated is a file that says when its state is read.
type stated struct {
	*os.File
	stat func()
}

func (s *stated) Stat() (os.FileInfo, error) { s.stat(); return s.File.Stat() }

// The file is moved away, and is back before its other name is looked for.
func TestAFileThatIsMovedBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t)
		var mu sync.Mutex
		calls := 0 // since the file was moved
		o := p.options(filepath.Join(t.TempDir(), "audit.log"))
		away := o.File + ".away"
		o = o.WithFile(func(f *os.File) audit.File {
			return &stated{f, func() {
				mu.Lock()
				defer mu.Unlock()
				if _, err := os.Stat(away); err != nil {
					return
				}
				if calls++; calls == 2 {
					rename(t, away, o.File)
				}
			}}
		})
		w, stop := follow(t, o)
		p.append(3)
		time.Sleep(2500 * time.Millisecond) // between two looks
		rename(t, o.File, away)
		p.append(1)
		time.Sleep(5 * time.Second)
		if diff := p.wrong(o.File); diff != "" || calls != 2 || w.Revision() != p.tip.Revision {
			t.Errorf("%d calls, at %d of %d\n%s", calls, w.Revision(), p.tip.Revision, diff)
		}
		stop()
	})
}

// uncut is a file that can be truncated a number of times.
type uncut struct {
	*os.File
	left int
}

func (u *uncut) Truncate(size int64) error {
	if u.left--; u.left < 0 {
		return syscall.EIO
	}
	return u.File.Truncate(size)
}

// A start cannot restore the file, and somebody deletes it.
func TestAFileThatIsDeletedWhileAStartRestoresIt(t *testing.T) {
	for _, later := range []int{0, 1} { // 1: the part before the mark is wrong, which is found later
		deleteWhileItIsRestored(t, later)
	}
}

func deleteWhileItIsRestored(t *testing.T, later int) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t)
		o := p.options(filepath.Join(t.TempDir(), "audit.log"))
		o.MarkBytes = 1000
		for range 8 { // until a part of the file is before the mark
			p.append(1)
			writeAll(t, o)
		}
		if text := read(t, o.File); later > 0 {
			if err := os.WriteFile(o.File, append([]byte("x"), text[1:]...), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		opened := 0
		w, stop := follow(t, o.WithFile(func(f *os.File) audit.File {
			if opened++; opened == 1 {
				return &uncut{f, later}
			}
			return f
		}))
		p.append(1)
		time.Sleep(5 * time.Second)
		if w.Health() == nil {
			t.Error("the file is restored")
		}
		if err := os.Remove(o.File); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		if diff := p.wrong(o.File); diff != "" || w.Health() != nil || w.Revision() != p.tip.Revision {
			t.Errorf("%v, at %d of %d\n%s", w.Health(), w.Revision(), p.tip.Revision, diff)
		}
		stop()
	})
}
