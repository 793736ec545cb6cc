package etcdlog_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.etcd.io/bbolt"
	"go.etcd.io/etcd/client/pkg/v3/fileutil"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/etcdlog"
	"stele.dev/stele/eventlog/logtest"
)

// smallSegments makes the files of the write-ahead log small enough to be copied often.
func smallSegments(t *testing.T) {
	before := wal.SegmentSizeBytes
	wal.SegmentSizeBytes = 64 << 10
	t.Cleanup(func() { wal.SegmentSizeBytes = before })
}

// filled returns etcd's folder after n appends, closed, and the log's tip.
func filled(t *testing.T, n int) (dir string, tip eventlog.Head) {
	t.Helper()
	dir = t.TempDir()
	b := embedded(t, dir)
	log, err := eventlog.Open(t.Context(), b, eventlog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	batches, err := log.CatchUp(t.Context(), log.Start())
	if err != nil {
		t.Fatal(err)
	}
	tip = batches[0].Head()
	for range n {
		won, _, err := log.Append(t.Context(), tip, eventlog.NewDraft([]*eventlog.Entry{logtest.Entry(t, "x")}))
		if err != nil {
			t.Fatal(err)
		}
		tip = won.Head()
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	return dir, tip
}

func walFile(t *testing.T, dir string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "member", "wal", "*.wal"))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	return files[0]
}

func databaseFile(dir string) string { return filepath.Join(dir, "member", "snap", "db") }

// records returns the offsets at which the records of a write-ahead log file end.
func records(t *testing.T, file string) (ends []int64) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for decoder := wal.NewDecoder(fileutil.NewFileReader(f)); ; {
		var r walpb.Record
		if err := decoder.Decode(&r); errors.Is(err, io.EOF) {
			return ends
		} else if err != nil {
			t.Fatal(err)
		}
		if r.GetType() == wal.CrcType {
			decoder.UpdateCRC(r.GetCrc())
		}
		ends = append(ends, decoder.LastOffset())
	}
}

// copied copies a folder.
func copied(t *testing.T, dir string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "etcd")
	if err := os.CopyFS(to, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	return to
}

func rewrite(t *testing.T, file string, change func([]byte) []byte) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, change(data), 0o600); err != nil {
		t.Fatal(err)
	}
}

// reopened opens the log in a folder, returns its tip, and appends one batch to prove that it accepts
// writes.
func reopened(t *testing.T, o etcdlog.EmbedOptions) (eventlog.Head, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	b, err := etcdlog.Embed(ctx, o)
	if err != nil {
		return eventlog.Head{}, err
	}
	defer b.Close()
	log, err := eventlog.Open(ctx, b, eventlog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	tip := log.Start()
	for {
		batches, err := log.CatchUp(ctx, tip)
		if err != nil {
			t.Fatal(err)
		}
		if len(batches) == 0 {
			break
		}
		tip = batches[len(batches)-1].Head()
	}
	if won, _, err := log.Append(ctx, tip, eventlog.NewDraft([]*eventlog.Entry{logtest.Entry(t, "more")})); won == nil || err != nil {
		t.Fatal("nothing can be appended: ", err)
	}
	return tip, nil
}

// A first start may be killed at any point. The next start must begin again, unless the caller knows that
// the folder was in use.
func TestAFirstStartThatWasCutOffBeginsAgain(t *testing.T) {
	smallSegments(t)
	whole, _ := filled(t, 0)
	ends := records(t, walFile(t, whole))
	cuts := []int64{-1, 0}           // no log; one without a record
	cuts = append(cuts, ends[:6]...) // the header, the entry that makes it a member, its state, and what follows
	pages := make([]byte, 4*os.Getpagesize())
	databases := map[string]func(file string) error{
		"missing": os.Remove,
		"empty":   func(file string) error { return os.WriteFile(file, nil, 0o600) },
		"zeros":   func(file string) error { return os.WriteFile(file, pages, 0o600) },
		"cut":     func(file string) error { return os.WriteFile(file, pages[:5000], 0o600) },
		"new": func(file string) error {
			return errors.Join(os.Remove(file), create(file))
		},
	}
	for name, change := range databases {
		states := cuts
		if name == "zeros" || name == "cut" { // it is synced before the log is made
			states = cuts[:6]
		}
		for _, cut := range states {
			t.Run(fmt.Sprintf("database %s, log of %d bytes", name, cut), func(t *testing.T) {
				dir := copied(t, whole)
				if err := change(databaseFile(dir)); err != nil {
					t.Fatal(err)
				}
				if cut < 0 {
					if err := os.RemoveAll(filepath.Join(dir, "member", "wal")); err != nil {
						t.Fatal(err)
					}
				} else {
					rewrite(t, walFile(t, dir), func(data []byte) []byte { clear(data[cut:]); return data })
				}
				if cut < ends[2] { // before the first entry
					if _, err := reopened(t, etcdlog.EmbedOptions{Dir: copied(t, dir), Used: true}); !errors.Is(err, etcdlog.ErrLost) {
						t.Errorf("of a folder that was in use: %v", err)
					}
				}
				if _, err := reopened(t, etcdlog.EmbedOptions{Dir: dir}); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

func create(file string) error {
	db, err := bbolt.Open(file, 0o600, nil)
	if err != nil {
		return err
	}
	return db.Close()
}

// If any part of the write-ahead log is missing, either no acknowledged write is lost or the start is
// refused.
func TestALogThatWasCutIsRefused(t *testing.T) {
	smallSegments(t)
	dir, tip := filled(t, 8)
	ends := records(t, walFile(t, dir))
	for i, end := range ends[:len(ends)-1] {
		for _, cut := range []int64{end, (end + ends[i+1]) / 2} {
			for how, change := range map[string]func([]byte) []byte{
				"truncated": func(data []byte) []byte { return data[:cut] },
				"zeroed":    func(data []byte) []byte { clear(data[cut:]); return data },
			} {
				d := copied(t, dir)
				rewrite(t, walFile(t, d), change)
				now, err := reopened(t, etcdlog.EmbedOptions{Dir: d})
				if err == nil && now != tip || err != nil && !errors.Is(err, etcdlog.ErrLost) && !strings.Contains(err.Error(), " is damaged: ") {
					t.Errorf("%s to %d bytes: the log is at %v, not at %v: %v", how, cut, now, tip, err)
				}
			}
		}
	}
}

// If the database is missing, etcd must rebuild it from the write-ahead log, or the start is refused if the
// beginning of that is missing, too.
func TestADatabaseThatIsGone(t *testing.T) {
	smallSegments(t)
	for _, n := range []int{20, 500} { // snapshots are made every 200 entries
		dir, tip := filled(t, n)
		if err := os.Remove(databaseFile(dir)); err != nil {
			t.Fatal(err)
		}
		now, err := reopened(t, etcdlog.EmbedOptions{Dir: dir})
		if err == nil && now != tip || n > 200 && !errors.Is(err, etcdlog.ErrLost) {
			t.Errorf("after %d appends the log is at %v, not at %v: %v", n, now, tip, err)
		}
	}
}

// A database is mapped into memory: reading beyond the end of a truncated file would be a SIGBUS.
func TestADatabaseThatWasCutIsRefused(t *testing.T) {
	smallSegments(t)
	whole, tip := filled(t, 20)
	info, err := os.Stat(databaseFile(whole))
	if err != nil {
		t.Fatal(err)
	}
	page := int64(os.Getpagesize())
	for _, size := range []int64{1, 512, page, page + 1, 2 * page, 3 * page, 4 * page, 5 * page, 8 * page, 12 * page, 64 * page, info.Size() / 2, info.Size() - 1} {
		dir := copied(t, whole)
		if err := os.Truncate(databaseFile(dir), size); err != nil {
			t.Fatal(err)
		}
		now, err := reopened(t, etcdlog.EmbedOptions{Dir: dir})
		if err != nil && !strings.Contains(err.Error(), databaseFile(dir)+" is damaged: ") || err == nil && now != tip {
			t.Errorf("cut to %d bytes: the log is at %v, not at %v: %v", size, now, tip, err)
		}
	}
}

// Reading a page with any content must not end the process.
func TestADatabaseOfGarbageIsRefused(t *testing.T) {
	smallSegments(t)
	whole, _ := filled(t, 5)
	page := os.Getpagesize()
	for at := 2; at < 40; at++ { // the first two say where the others are, and have checksums
		dir := copied(t, whole)
		rewrite(t, databaseFile(dir), func(data []byte) []byte {
			copy(data[at*page:(at+1)*page], bytes.Repeat([]byte{0xff}, page))
			return data
		})
		refused := errors.New("refused")
		_, err := reopened(t, etcdlog.EmbedOptions{Dir: dir, Check: func(context.Context, string) error { return refused }})
		if !errors.Is(err, refused) && !strings.Contains(err.Error(), " is damaged: ") {
			t.Errorf("page %d: %v", at, err)
		}
	}
}

// A folder's name may contain glob characters: if the log in it were not found, a start would begin again.
func TestAFolderWithBracketsInItsName(t *testing.T) {
	smallSegments(t)
	whole, tip := filled(t, 3)
	dir := filepath.Join(t.TempDir(), `data [1]*\?`)
	if err := os.CopyFS(dir, os.DirFS(whole)); err != nil {
		t.Fatal(err)
	}
	now, err := reopened(t, etcdlog.EmbedOptions{Dir: dir})
	if err != nil || now != tip {
		t.Errorf("the log is at %v, not at %v: %v", now, tip, err)
	}
}

// Two processes must not use one folder, because each would assume that it is the only writer.
func TestAFolderInUseIsRefused(t *testing.T) {
	dir := t.TempDir()
	embedded(t, dir)
	if _, err := reopened(t, etcdlog.EmbedOptions{Dir: dir}); err == nil || !strings.Contains(err.Error(), "is in use by another process") {
		t.Errorf("Embed = %v", err)
	}
}
