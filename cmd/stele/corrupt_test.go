package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/etcdlog"
)

// What is in the data directory and is no log of ours is one line and an exit code,
// and stays as it is.
func TestLogsThatCannotBeReadAreRefused(t *testing.T) {
	t.Parallel()
	stele, err := exec.LookPath("stele")
	if err != nil {
		t.Fatal(err)
	}
	env := append(os.Environ(), "HOME="+t.TempDir())
	good := t.TempDir()
	p, err := serveProcess(stele, good, env)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.await(); err != nil {
		t.Fatal(err)
	}
	if err := p.end(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}

	// store opens the store as a program would that knows nothing of the format.
	store := func(t *testing.T, dir string, write func(eventlog.Backend) (eventlog.Answer, error)) {
		backend, err := etcdlog.Embed(t.Context(), etcdlog.EmbedOptions{Dir: filepath.Join(dir, "etcd")})
		if err != nil {
			t.Fatal(err)
		}
		defer backend.Close()
		if a, err := write(backend); err != nil || !a.Applied {
			t.Fatalf("not written: %+v, %v", a, err)
		}
	}
	for _, tc := range []struct {
		name  string
		empty bool // begin without a log
		spoil func(t *testing.T, dir string)
		want  string
	}{
		{"a log that is something else", true, func(t *testing.T, dir string) {
			store(t, dir, func(b eventlog.Backend) (eventlog.Answer, error) {
				return b.Append(t.Context(), eventlog.Proposal{To: []byte("hello"), At: 1, Value: []byte("world")})
			})
		}, "the log in stele-data/etcd cannot be read: "},
		{"a batch that is none", false, func(t *testing.T, dir string) {
			store(t, dir, func(b eventlog.Backend) (eventlog.Answer, error) {
				a, err := b.Read(t.Context(), 1)
				if err != nil {
					return a, err
				}
				last := a.Batches[len(a.Batches)-1]
				spoiled := append([]byte(nil), last.Value...)
				spoiled[len(spoiled)/2] ^= 1
				return b.Append(t.Context(), eventlog.Proposal{From: a.Head, To: a.Head, At: last.First + 1000, Value: spoiled})
			})
		}, "the log in stele-data/etcd cannot be read: "},
		{"a database that is none", false, func(t *testing.T, dir string) {
			if err := os.WriteFile(filepath.Join(dir, "etcd", "member", "snap", "db"), []byte(strings.Repeat("no database ", 9000)), 0o600); err != nil {
				t.Fatal(err)
			}
		}, "stele-data/etcd/member/snap/db is damaged: invalid database: restore the folder from a backup"},
		{"a database that was cut off", false, func(t *testing.T, dir string) {
			if err := os.Truncate(filepath.Join(dir, "etcd", "member", "snap", "db"), 40<<10); err != nil {
				t.Fatal(err)
			}
		}, "stele-data/etcd/member/snap/db is damaged: it has 40960 of "},
		{"a page that is none", false, func(t *testing.T, dir string) {
			overwrite(t, filepath.Join(dir, "etcd", "member", "snap", "db"), 2*os.Getpagesize(), 40*os.Getpagesize())
		}, "stele-data/etcd/member/snap/db is damaged: "},
		{"a write-ahead log that is none", false, func(t *testing.T, dir string) {
			files, err := filepath.Glob(filepath.Join(dir, "etcd", "member", "wal", "*.wal"))
			if err != nil || len(files) == 0 {
				t.Fatal(files, err)
			}
			overwrite(t, files[0], 600, 100)
		}, "crc mismatch"},
		{"a write-ahead log that was cut off", false, func(t *testing.T, dir string) {
			files, err := filepath.Glob(filepath.Join(dir, "etcd", "member", "wal", "*.wal"))
			if err != nil || len(files) == 0 {
				t.Fatal(files, err)
			}
			if err := os.Truncate(files[0], 2<<10); err != nil {
				t.Fatal(err)
			}
		}, "acknowledged writes are missing: the write-ahead log "},
		{"a write-ahead log that was emptied", false, func(t *testing.T, dir string) {
			files, err := filepath.Glob(filepath.Join(dir, "etcd", "member", "wal", "*.wal"))
			if err != nil || len(files) == 0 {
				t.Fatal(files, err)
			}
			if err := os.Truncate(files[0], 0); err != nil {
				t.Fatal(err)
			}
		}, "has no committed entry: restore the folder from a backup"},
		{"etcd's folder is gone", false, func(t *testing.T, dir string) {
			if err := os.RemoveAll(filepath.Join(dir, "etcd")); err != nil {
				t.Fatal(err)
			}
		}, "the write-ahead log is gone"},
		{"another log", false, func(t *testing.T, dir string) {
			if err := os.RemoveAll(filepath.Join(dir, "etcd")); err != nil {
				t.Fatal(err)
			}
			store(t, dir, func(b eventlog.Backend) (eventlog.Answer, error) {
				_, err := eventlog.Open(t.Context(), b, eventlog.Options{})
				return eventlog.Answer{Applied: true}, err
			})
		}, "restore what belongs together"},
		{"a write-ahead log that is gone", false, func(t *testing.T, dir string) {
			if err := os.RemoveAll(filepath.Join(dir, "etcd", "member", "wal")); err != nil {
				t.Fatal(err)
			}
		}, "the write-ahead log is gone"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			data := filepath.Join(dir, "stele-data")
			if err := os.CopyFS(data, os.DirFS(filepath.Join(good, "stele-data"))); err != nil {
				t.Fatal(err)
			}
			if tc.empty {
				if err := errors.Join(os.RemoveAll(filepath.Join(data, "etcd")), os.Remove(filepath.Join(data, "log.id"))); err != nil {
					t.Fatal(err)
				}
			}
			tc.spoil(t, data)
			p, err := serveProcess(stele, dir, env)
			if err != nil {
				t.Fatal(err)
			}
			if p.await() == nil {
				_ = p.end(syscall.SIGKILL)
				t.Fatal("it serves")
			}
			said := p.stderr.String()
			if p.ProcessState.ExitCode() != 1 || strings.Count(said, "\n") != 1 || !strings.HasPrefix(said, "stele: ") || !strings.Contains(said, tc.want) {
				t.Errorf("exit code %d, said:\n%s\nwant one line with %q", p.ProcessState.ExitCode(), said, tc.want)
			}
		})
	}
}

// overwrite puts question marks into a file.
func overwrite(t *testing.T, file string, at, n int) {
	t.Helper()
	f, err := os.OpenFile(file, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt([]byte(strings.Repeat("?", n)), int64(at)); err != nil {
		t.Fatal(err)
	}
}
