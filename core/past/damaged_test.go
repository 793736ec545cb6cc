package past_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"stele.dev/stele/core/keep/checkpoints"
	"stele.dev/stele/core/run/plane"
	"stele.dev/stele/core/run/plane/planetest"
	"stele.dev/stele/eventlog/memlog"
	"stele.dev/stele/eventlog/segment"
)

// A file of older events is damaged or lost while the server is stopped, and etcd does not have these events any more. What
// needs them is a 410 that names the revisions, so that clients do not try again; everything else is answered.
func TestReadsOfRevisionsWhoseSegmentIsDamaged(t *testing.T) {
	for name, damage := range map[string]func(string) error{
		"lost":    os.Remove,
		"flipped": flipMiddle,
	} {
		t.Run(name, func(t *testing.T) {
			var store memlog.Store
			dir := t.TempDir()
			open := func() *planetest.Replica {
				t.Helper()
				r, err := planetest.OpenReplicaWith(t.Context(), store.Open(nil), planetest.Options{Dir: dir, Config: plane.Config{
					WatchBytes: 1, Segments: plane.Segments{Revisions: 8, Window: time.Nanosecond, Trim: true}, Checkpoints: checkpoints.Options{Events: 10, Unrecorded: true},
				}})
				if err != nil {
					t.Fatal(err)
				}
				return r
			}
			r := open()
			r.Bootstrap(t, planetest.Bundle)
			var revisions []string
			for i := range 60 {
				revisions = append(revisions, write(r, t, planetest.WidgetsPath, fmt.Sprint("w-", i)))
			}
			var old, late uint64
			fmt.Sscan(revisions[20], &old)
			fmt.Sscan(revisions[40], &late)
			for i := 0; store.Batches()[1].First <= late; i++ {
				write(r, t, planetest.WidgetsPath, fmt.Sprint("filler-", i))
				time.Sleep(10 * time.Millisecond)
			}
			for checkpointed(t, dir) <= late {
				time.Sleep(10 * time.Millisecond)
			}
			r.Close()
			files, err := filepath.Glob(filepath.Join(dir, "segments", "*"+segment.PayloadsFile))
			if err != nil {
				t.Fatal(err)
			}
			gap, behind := "", uint64(0)
			for _, file := range files {
				if first, last, _, ok := segment.ParseName(segment.NameOf(file)); ok && first <= old && old <= last {
					behind = last + 1
					gap = fmt.Sprintf("revisions %d to %d cannot be read", first, last)
					if err := damage(file); err != nil {
						t.Fatal(err)
					}
				}
			}
			r = open()
			t.Cleanup(r.Close)
			for _, path := range []string{
				"/at/" + revisions[20] + planetest.WidgetsPath, planetest.WidgetsPath + "?resourceVersionMatch=Exact&resourceVersion=" + revisions[20],
				"/apis/log.stele.dev/v1/changes?fieldSelector=since=1", "/apis/log.stele.dev/v1/changes/" + revisions[20],
			} {
				if a := r.Must(t, 410, "GET", path, ""); gap == "" || !strings.Contains(string(a.Body), gap) {
					t.Errorf("%s: %s, want %q", path, a, gap)
				}
			}
			r.Must(t, 200, "GET", "/at/"+revisions[50]+planetest.WidgetsPath+"/w-45", "")
			r.Must(t, 200, "GET", "/apis/log.stele.dev/v1/changes/"+revisions[45], "")
			r.Must(t, 200, "GET", planetest.WidgetsPath, "")
			for since := behind; since < behind+3; since++ { // what is before it is not read
				names := r.Must(t, 200, "GET", fmt.Sprintf("/apis/log.stele.dev/v1/changes?fieldSelector=since=%d", since), "").Names()
				if len(names) == 0 || names[len(names)-1] != fmt.Sprint(since) {
					t.Errorf("the changes since %d are %v", since, names)
				}
			}
		})
	}
}

// checkpointed returns the revision of the newest checkpoint in a data directory.
func checkpointed(t *testing.T, dir string) (newest uint64) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "checkpoints", "*.ckpt"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		var revision uint64
		fmt.Sscanf(filepath.Base(file), "%d.ckpt", &revision)
		newest = max(newest, revision)
	}
	return newest
}

func flipMiddle(file string) error {
	content, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	content[len(content)/2] ^= 1
	return os.WriteFile(file, content, 0o600)
}
