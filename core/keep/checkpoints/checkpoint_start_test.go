package checkpoints_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"stele.dev/stele/core/commit"
	"stele.dev/stele/core/keep/checkpoints"
	"stele.dev/stele/core/run/plane"
	"stele.dev/stele/core/run/plane/planetest"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/memlog"
	"stele.dev/stele/projections/checkpoint"
)

// checkpointed is a log with two checkpoints.
type checkpointed struct {
	store        memlog.Store
	p            *planetest.Replica
	dir          string
	older, newer uint64
	want         map[string]any
}

func newCheckpointed(t *testing.T) *checkpointed {
	t.Helper()
	k := &checkpointed{dir: t.TempDir()}
	k.p = planetest.StartReplica(t, k.store.Open(nil), 0)
	k.p.Bootstrap(t, planetest.Bundle)
	folder := k.folder(t)
	write := func() uint64 {
		t.Helper()
		tip := k.p.Committer.Tip()
		if _, err := folder.Write(t.Context(), tip.Revision(), 0, tip.Save); err != nil {
			t.Fatal(err)
		}
		return tip.Revision()
	}
	for i := range 3 {
		k.p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget(fmt.Sprint("w", i), 1))
		if k.older, k.newer = k.newer, write(); i < 2 {
			k.p.Activate(t, []string{planetest.Graded, planetest.Regraded}[i])
		}
	}
	k.p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("last", 1))
	k.want = asMemory(t, k.p.Committer, k.p.Log)
	return k
}

func (k *checkpointed) folder(t *testing.T) *checkpoint.Folder {
	t.Helper()
	folder, err := checkpoint.Open(k.dir, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return folder
}

// start starts a committer, which must have what the log has, and returns the revision of the checkpoint that it
// started from and what it logged.
func (k *checkpointed) start(t *testing.T, options commit.Options) (from uint64, said string) {
	t.Helper()
	var text bytes.Buffer
	c := commit.New(options)
	if err := checkpoints.Load(t.Context(), k.folder(t), c, slog.New(slog.NewTextHandler(&text, &slog.HandlerOptions{Level: slog.LevelWarn}))); err != nil {
		t.Fatal(err)
	}
	if err := c.Replay(t.Context()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(k.want, asMemory(t, c, options.Log)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	return c.Restored().Revision, text.String()
}

// A checkpoint that cannot be used is named with the reason, and the start takes the one before, or the whole log.
func TestAStartWithoutItsNewestCheckpoint(t *testing.T) {
	flip := func(at int) func(*testing.T, string) {
		return func(t *testing.T, file string) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			text[(at+len(text))%len(text)] ^= 4
			if err := os.WriteFile(file, text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, tc := range map[string]struct {
		change func(*testing.T, string)
		reason string
	}{
		"flipped at the beginning": {flip(3), "does not begin as a checkpoint does"},
		"flipped in a block":       {flip(400), "has another checksum"},
		"flipped at the end":       {flip(-1), "has another checksum"},
		"of a newer format":        {func(t *testing.T, file string) { rewrite(t, file, "checkpoint\n\x01", "checkpoint\n\x02") }, "has format 2; this version knows 1"},
		"cut off":                  {func(t *testing.T, file string) { truncate(t, file, 2) }, "ends before its footer"},
		"empty":                    {func(t *testing.T, file string) { truncate(t, file, 1<<30) }, "does not begin as a checkpoint does"},
		"a folder":                 {func(t *testing.T, file string) { remove(t, file); mkdir(t, file) }, "is a directory"},
		"of other code":            {func(t *testing.T, file string) { save(t, file, "tip", 99) }, "tip was made by version 99 of its code; this program has version 1"},
		"of other sections":        {func(t *testing.T, file string) { save(t, file, "top", 1) }, `has \"top\" where this version expects \"tip\"`},
	} {
		t.Run(name, func(t *testing.T) {
			k := newCheckpointed(t)
			if from, said := k.start(t, commitOptions(t, &k.store)); from != k.newer || said != "" {
				t.Fatalf("without damage: from %d, %s", from, said)
			}
			folder := k.folder(t)
			tc.change(t, folder.Path(k.newer))
			from, said := k.start(t, commitOptions(t, &k.store))
			if from != k.older || strings.Count(said, "\n") != 1 || !strings.Contains(said, tc.reason) || !strings.Contains(said, folder.Path(k.newer)) || !strings.Contains(said, "instead="+folder.Path(k.older)) {
				t.Errorf("from %d, not %d: %s", from, k.older, said)
			}
			tc.change(t, folder.Path(k.older))
			from, said = k.start(t, commitOptions(t, &k.store))
			if from != 0 || strings.Count(said, "\n") != 2 || strings.Count(said, tc.reason) != 2 || !strings.Contains(said, `instead="the whole log"`) {
				t.Errorf("from %d: %s", from, said)
			}
		})
	}
}

func rewrite(t *testing.T, file, from, to string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err == nil {
		err = os.WriteFile(file, bytes.Replace(text, []byte(from), []byte(to), 1), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func truncate(t *testing.T, file string, less int64) {
	t.Helper()
	info, err := os.Stat(file)
	if err == nil {
		err = os.Truncate(file, max(0, info.Size()-less))
	}
	if err != nil {
		t.Fatal(err)
	}
}

func remove(t *testing.T, file string) {
	t.Helper()
	if err := os.RemoveAll(file); err != nil {
		t.Fatal(err)
	}
}

func mkdir(t *testing.T, file string) {
	t.Helper()
	if err := os.MkdirAll(file, 0o700); err != nil {
		t.Fatal(err)
	}
}

// save writes a checkpoint with one section in place of a file.
func save(t *testing.T, file, section string, version uint32) {
	t.Helper()
	folder, err := checkpoint.Open(t.TempDir(), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	written, err := folder.Write(t.Context(), 1, 0, func(to checkpoint.Sink) error { return to.Begin(section, version) })
	if err == nil {
		err = os.Rename(written.File, file)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// A checkpoint of another log is not used, and neither is one behind which the log has lost writes or has others.
func TestACheckpointThatTheLogDoesNotContinue(t *testing.T) {
	foreign := newCheckpointed(t)
	k := newCheckpointed(t)
	k.dir = foreign.dir
	if from, said := k.start(t, commitOptions(t, &k.store)); from != 0 || strings.Count(said, "the checkpoint is of another log") != 2 {
		t.Errorf("foreign: from %d: %s", from, said)
	}

	k = newCheckpointed(t)
	k.store.Tamper(func(_ []byte, batches []eventlog.Stored) ([]byte, []eventlog.Stored) { // a backup is restored
		n := slices.IndexFunc(batches, func(b eventlog.Stored) bool { return b.First > k.older })
		last, err := eventlog.DecodeBatch(batches[n-1].First, batches[n-1].Value)
		if err != nil {
			t.Fatal(err)
		}
		return last.Head().Encode(), batches[:n]
	})
	shorter, whole := commitOptions(t, &k.store), commit.New(commitOptions(t, &k.store))
	if err := whole.Replay(t.Context()); err != nil {
		t.Fatal(err)
	}
	k.want = asMemory(t, whole, shorter.Log)
	from, said := k.start(t, shorter)
	if from != k.older || strings.Count(said, "\n") != 1 || !strings.Contains(said, "level=ERROR") || !strings.Contains(said, "it has lost acknowledged writes") {
		t.Errorf("lost: from %d, not %d: %s", from, k.older, said)
	}
}

// The keeper makes checkpoints while writes go on, and one more when it stops.
func TestCheckpointsAreMadeInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var store memlog.Store
		p, err := planetest.OpenReplicaWith(t.Context(), store.Open(nil), planetest.Options{Config: plane.Config{Checkpoints: checkpoints.Options{Events: 20, Every: time.Hour}}})
		if err != nil {
			t.Fatal(err)
		}
		p.Bootstrap(t, planetest.Bundle)
		newest := func() uint64 {
			t.Helper()
			names, err := os.ReadDir(p.Plane.Dir + "/checkpoints")
			if err != nil {
				t.Fatal(err)
			}
			n := uint64(0)
			for _, name := range names {
				var revision uint64
				if _, err := fmt.Sscanf(name.Name(), "%d.ckpt", &revision); err == nil {
					n = max(n, revision)
				}
			}
			return n
		}
		write := func(n int) {
			t.Helper()
			for range n {
				p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget(fmt.Sprint("w", p.Committer.Tip().Revision()), 1))
			}
		}
		write(20)
		time.Sleep(2 * time.Second)
		first := newest()
		if first+1 != p.Committer.Tip().Revision() { // the last event records it
			t.Errorf("after %d revisions the newest checkpoint is of %d", p.Committer.Tip().Revision(), first)
		}
		write(19)
		time.Sleep(2 * time.Second)
		if is := newest(); is != first {
			t.Errorf("after 19 more there is one of %d", is)
		}
		time.Sleep(time.Hour)
		if is := newest(); is+1 != p.Committer.Tip().Revision() {
			t.Errorf("after an hour the newest is of %d", is)
		}
		before := newest()
		time.Sleep(3 * time.Hour)
		if is := newest(); is != before {
			t.Errorf("without a change there is one of %d", is)
		}
		p.Drain()
		p.Close()
	})
}

// A failure is logged once, and tried again.
func TestACheckpointThatCannotBeWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var store memlog.Store
		p, err := planetest.OpenReplica(t.Context(), store.Open(nil), 0)
		if err != nil {
			t.Fatal(err)
		}
		p.Bootstrap(t, planetest.Bundle)
		files := &crowded{}
		files.full.Store(true)
		var said bytes.Buffer
		folder, err := checkpoint.Open(t.TempDir(), files, nil)
		if err != nil {
			t.Fatal(err)
		}
		k := checkpoints.New(checkpoints.Options{Folder: folder, Committer: p.Committer, Events: 1, Metrics: prometheus.NewRegistry(), Logger: slog.New(slog.NewTextHandler(&said, nil))})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- k.Run(ctx) }()
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if n := strings.Count(said.String(), "no checkpoint can be made"); n != 1 {
			t.Errorf("it was said %d times:\n%s", n, said.String())
		}
		files.full.Store(false)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if good := folder.Good(); len(good) != 1 {
			t.Errorf("when there is room: %v\n%s", good, said.String())
		}
		cancel()
		<-ended
		p.Close()
	})
}

// crowded is a file system on which there may be no room.
type crowded struct {
	checkpoint.Disk
	full atomic.Bool
}

// Create implements [checkpoint.Files].
func (c *crowded) Create(name string) (checkpoint.File, error) {
	if c.full.Load() {
		return nil, syscall.ENOSPC
	}
	return c.Disk.Create(name)
}

// A start reads the older checkpoint, too, so that what it covers may be erased from the log, and removes an even older one, which a
// crash has left.
func TestAStartKnowsItsOlderCheckpoint(t *testing.T) {
	k := newCheckpointed(t)
	left, err := os.ReadFile(k.folder(t).Path(k.older))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(k.folder(t).Path(k.older-1), left, 0o600); err != nil {
		t.Fatal(err)
	}
	folder, c := k.folder(t), commit.New(commitOptions(t, &k.store))
	if err := checkpoints.Load(t.Context(), folder, c, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	if err := c.Replay(t.Context()); err != nil {
		t.Fatal(err)
	}
	if covered := folder.Covered(); covered != 0 {
		t.Fatalf("before it was read, revision %d is covered", covered)
	}
	keeper := checkpoints.New(checkpoints.Options{Folder: folder, Committer: c})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- keeper.Run(ctx) }()
	for folder.Covered() == 0 && t.Context().Err() == nil {
		runtime.Gosched()
	}
	cancel()
	<-ended
	if covered := folder.Covered(); covered != k.older {
		t.Errorf("revision %d is covered, not %d", covered, k.older)
	}
	if revisions, err := folder.Revisions(); err != nil || slices.Min(revisions) != k.older {
		t.Errorf("checkpoints of revisions %v are there, %v", revisions, err)
	}
}
