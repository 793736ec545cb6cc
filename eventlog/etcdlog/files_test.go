package etcdlog_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"stele.dev/stele/eventlog"
)

// What is appended to files that no start will find is not acknowledged.
func TestNothingIsAppendedToFilesThatAreGone(t *testing.T) {
	for _, tc := range []struct {
		name string
		take func(t *testing.T, dir string) (back func()) // back is nil if the files cannot come back
	}{
		{"the folder is deleted", func(t *testing.T, dir string) func() { remove(t, dir); return nil }},
		{"the folder is moved, and comes back", func(t *testing.T, dir string) func() {
			move(t, dir, dir+".moved")
			return func() { move(t, dir+".moved", dir) }
		}},
		{"the folder is replaced by a copy", func(t *testing.T, dir string) func() {
			move(t, dir, dir+".moved")
			if err := os.CopyFS(dir, os.DirFS(dir+".moved")); err != nil {
				t.Fatal(err)
			}
			return nil
		}},
		{"the write-ahead log is deleted", func(t *testing.T, dir string) func() { remove(t, filepath.Join(dir, "member", "wal")); return nil }},
		{"its files are deleted", func(t *testing.T, dir string) func() {
			found, err := filepath.Glob(filepath.Join(dir, "member", "wal", "*"))
			if err != nil || len(found) == 0 {
				t.Fatal(err)
			}
			for _, file := range found {
				remove(t, file)
			}
			return nil
		}},
		{"the database is deleted", func(t *testing.T, dir string) func() {
			remove(t, filepath.Join(dir, "member", "snap", "db"))
			return nil
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel() // each waits for looks at the files
			dir := filepath.Join(t.TempDir(), "etcd")
			b := small(t, dir, 0)
			c := &chain{b: b, size: 100}
			if err := c.next(t, false); err != nil {
				t.Fatal(err)
			}
			back := tc.take(t, dir)
			time.Sleep(time.Second)
			for _, frees := range []bool{false, true} {
				if err := c.next(t, frees); !errors.Is(err, eventlog.ErrLost) || !eventlog.Refused(err) {
					t.Errorf("an append that frees space (%v): %v", frees, err)
				}
			}
			if b.Usage().Lost == "" {
				t.Error("the usage does not say what is lost")
			}
			if back == nil {
				return
			}
			back()
			time.Sleep(time.Second)
			if err := c.next(t, false); err != nil || b.Usage().Lost != "" {
				t.Error(err, b.Usage().Lost)
			}
		})
	}
}

func remove(t *testing.T, file string) {
	t.Helper()
	if err := os.RemoveAll(file); err != nil {
		t.Fatal(err)
	}
}

func move(t *testing.T, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
}
