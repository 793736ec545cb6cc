package audit_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"stele.dev/stele/projections/audit"
)

// A file that another program moves or deletes while it is written loses no line, and none is there twice.
func TestAFileThatIsReplacedWhileItIsWritten(t *testing.T) {
	for name, replace := range map[string]func(t *testing.T, file string){
		"moved within the folder": func(t *testing.T, file string) {
			rename(t, file, filepath.Join(filepath.Dir(file), "audit-0.log"))
		},
		"moved, and made again": func(t *testing.T, file string) {
			rename(t, file, filepath.Join(filepath.Dir(file), "audit-0.log"))
			if err := os.WriteFile(file, nil, 0o640); err != nil {
				t.Error(err)
			}
		},
		"moved elsewhere": func(t *testing.T, file string) { rename(t, file, filepath.Join(t.TempDir(), "audit.log")) },
		"deleted": func(t *testing.T, file string) {
			if err := os.Remove(file); err != nil {
				t.Error(err)
			}
		},
		"deleted with its folder": func(t *testing.T, file string) {
			if err := os.RemoveAll(filepath.Dir(file)); err != nil {
				t.Error(err)
			}
		},
		"replaced by a copy": func(t *testing.T, file string) {
			text, err := os.ReadFile(file)
			if err == nil {
				err = os.WriteFile(file+".copy", text, 0o600)
			}
			if err != nil {
				t.Error(err)
			}
			rename(t, file+".copy", file)
		},
	} {
		for _, pause := range []time.Duration{0, 100 * time.Millisecond, 3 * time.Second} { // before the next line
			synctest.Test(t, func(t *testing.T) {
				p := newPair(t)
				o := p.options(filepath.Join(t.TempDir(), "audit", "audit.log"))
				w, stop := follow(t, o)
				for range 3 {
					p.append(3)
					p.decide(2)
					time.Sleep(1500 * time.Millisecond)
				}
				p.append(2) // not synced yet
				synctest.Wait()
				replace(t, o.File)
				time.Sleep(pause)
				p.append(1)
				p.decide(1)
				time.Sleep(5 * time.Second)
				if diff := p.wrong(o.File); diff != "" || w.Health() != nil || w.Revision() != p.tip.Revision {
					t.Errorf("%s, %s: %v\n%s", name, pause, w.Health(), diff)
				}
				if strings.HasPrefix(name, "moved") && name != "moved elsewhere" && bytes.Count(read(t, o.File), []byte("\n")) != 3 {
					t.Errorf("%s, %s: the new file has more than what came after the move:\n%s", name, pause, read(t, o.File))
				}
				stop()
				p.append(1)
				writeAll(t, o)
				if diff := p.wrong(o.File); diff != "" {
					t.Errorf("%s, %s: after the next start:\n%s", name, pause, diff)
				}
			})
		}
	}
}

// follow runs a writer until stop is called.
func follow(t *testing.T, o audit.Options) (w *audit.Writer, stop func()) {
	t.Helper()
	w, err := audit.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- w.Run(ctx) }()
	return w, func() { cancel(); <-ended }
}

func rename(t *testing.T, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Error(err)
	}
}

func read(t *testing.T, file string) []byte {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Error(err)
	}
	return text
}

// A file that is deleted right before the server stops is whole after the next start.
func TestAFileThatIsDeletedBeforeTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t)
		o := p.options(filepath.Join(t.TempDir(), "audit.log"))
		_, stop := follow(t, o)
		p.append(3)
		time.Sleep(2 * time.Second)
		if err := os.Remove(o.File); err != nil {
			t.Fatal(err)
		}
		stop()
		if diff := p.wrong(o.File); diff != "" {
			t.Error(diff)
		}
	})
}

// The file is rotated while what a start has not read yet is still being read. That ends then.
func TestARotationWhileTheFileIsChecked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t)
		o := p.options(filepath.Join(t.TempDir(), "audit.log"))
		o.MarkBytes = 1000
		for range 8 { // until a part of the file is before the mark
			p.append(1)
			writeAll(t, o)
		}
		o.Rotation.MaxBytes = int64(len(read(t, o.File)))
		p.append(1) // it is rotated as soon as it runs
		_, stop := follow(t, o)
		time.Sleep(5 * time.Second)
		stop()
		if diff := p.wrong(o.File); diff != "" || len(files(t, o.File)) != 2 {
			t.Errorf("%d files\n%s", len(files(t, o.File)), diff)
		}
	})
}

// What crashes leave while cursors are replaced is removed, and nothing else.
func TestUnfinishedCursorsAreRemoved(t *testing.T) {
	p := newPair(t)
	dir := t.TempDir()
	o := p.options(filepath.Join(dir, "audit.log"))
	for _, name := range []string{".audit.log.cursor123", ".audit.log.begin9", ".audit.log.cursor.backup", ".audit.log.cursor12a"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	p.append(1)
	writeAll(t, o)
	left, err := filepath.Glob(filepath.Join(dir, ".*"))
	if err != nil || len(left) != 2 {
		t.Errorf("left are %v, %v", left, err)
	}
	for _, name := range left {
		if !strings.HasSuffix(name, ".backup") && !strings.HasSuffix(name, "12a") {
			t.Errorf("%s is left", name)
		}
	}
}
