package archive_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/archive"
)

// keep runs a keeper until the test ends. The bubble's clock is that of the keeper; now is that of the log.
func keep(t *testing.T, a *archive.Archive, w *author, o archive.KeeperOptions) *archive.Keeper {
	t.Helper()
	w.log.SetArchive(a)
	o.Archive, o.Log, o.Trim = a, w.log, true
	o.Tip = func() eventlog.Head {
		newest, err := w.log.Back(t.Context(), 1<<62, 1)
		if err != nil {
			t.Error(err)
			return eventlog.Head{}
		}
		return newest[0].Head()
	}
	k := archive.NewKeeper(o)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- k.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	return k
}

// pass lets the keeper work for some time.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// inStore returns the revisions of the first batch and of the one after it in the store.
func inStore(w *author) (first, second uint64) {
	stored := w.store.Batches()
	return stored[0].First, stored[1].First
}

func TestAKeeperMovesBatchesOutOfTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newAuthor(t, 80)
		a := open(t, t.TempDir(), w.log.ID())
		k := keep(t, a, w, archive.KeeperOptions{Window: time.Hour})
		w.writes(100)
		pass(5 * time.Second)
		tip := a.Tip()
		if tip.Revision == 0 || k.Health() != nil {
			t.Fatalf("sealed up to %v, health %v", tip, k.Health())
		}
		if _, second := inStore(w); second > 8 {
			t.Errorf("what is younger than the window has left the store: it goes on at %d", second)
		}
		w.advance(3 * time.Hour)
		pass(5 * time.Second)
		if first, second := inStore(w); first != 1 || second <= tip.Revision {
			t.Errorf("the store has %d and then %d, sealed up to %d", first, second, tip.Revision)
		}
		batches := w.batches
		w.tip, w.batches = eventlog.Head{}, nil
		w.catchUp() // through both tiers
		sameBatches(t, w.batches, batches)
	})
}

func TestAKeeperLeavesWhatIsStillNeeded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newAuthor(t, 81)
		a := open(t, t.TempDir(), w.log.ID())
		var covered atomic.Uint64
		keep(t, a, w, archive.KeeperOptions{Window: time.Nanosecond, Covered: covered.Load})
		w.writes(100)
		w.advance(time.Hour)
		pass(5 * time.Second)
		if len(a.Segments()) < 3 {
			t.Fatal(a.Segments())
		}
		if _, second := inStore(w); second > 8 {
			t.Errorf("the store goes on at %d, although nothing is covered", second)
		}
		covered.Store(a.Segments()[1].Last + 1)
		pass(5 * time.Second)
		if _, second := inStore(w); second <= a.Segments()[1].Last || second > a.Segments()[2].Last {
			t.Errorf("the store goes on at %d; covered is %d", second, covered.Load())
		}
	})
}

// While the disk is broken nothing leaves the store; afterwards all goes on.
func TestAKeeperGoesOnWhenTheDiskDoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newAuthor(t, 82)
		var broken atomic.Bool
		a, err := archive.OpenWith(archive.Options{Dir: t.TempDir(), Log: w.log.ID(), SegmentRevisions: 50}, func(op, _ string) error {
			if broken.Load() && op == "sync" {
				return errors.New("the disk is broken")
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		broken.Store(true)
		k := keep(t, a, w, archive.KeeperOptions{Window: time.Nanosecond})
		w.writes(100)
		w.advance(time.Hour)
		pass(5 * time.Second)
		if k.Health() == nil || a.Tip() != (eventlog.Head{}) {
			t.Errorf("health %v, sealed up to %v", k.Health(), a.Tip())
		}
		if _, second := inStore(w); second > 8 {
			t.Errorf("the store goes on at %d", second)
		}
		broken.Store(false)
		pass(time.Minute)
		if err := k.Health(); err != nil || a.Tip().Revision == 0 {
			t.Errorf("health %v, sealed up to %v", err, a.Tip())
		}
		if _, second := inStore(w); second <= a.Tip().Revision-100 {
			t.Errorf("the store goes on at %d, sealed up to %d", second, a.Tip().Revision)
		}
		agrees(t, a, w)
	})
}

// A segment that went bad since it was sealed is read back before anything leaves the store, and made again from there.
func TestAKeeperTrimsNothingThatItHasNotReadBack(t *testing.T) {
	for _, which := range []int{0, 1, -1} {
		for file := range 2 {
			synctest.Test(t, func(t *testing.T) {
				w, dir, infos := sealedFolder(t, 83)
				bad := infos[(which+len(infos))%len(infos)].Files[file]
				text, err := os.ReadFile(filepath.Join(dir, bad.Name))
				if err != nil {
					t.Fatal(err)
				}
				text[len(text)/3] ^= 1 // in a block
				if err := os.WriteFile(filepath.Join(dir, bad.Name), text, 0o600); err != nil {
					t.Fatal(err)
				}
				a := open(t, dir, w.log.ID())
				k := keep(t, a, w, archive.KeeperOptions{Window: time.Nanosecond})
				w.advance(time.Hour)
				pass(time.Minute)
				if errs := append(a.Damaged(), a.Verify(t.Context())...); len(errs) > 0 || k.Health() != nil {
					t.Errorf("damaged: %v; health: %v", errs, k.Health())
				}
				if _, second := inStore(w); second <= infos[len(infos)-1].Last {
					t.Errorf("the store goes on at %d", second)
				}
				agrees(t, open(t, dir, w.log.ID()), w)
			})
		}
	}
}

// A segment that goes bad when the store has nothing of it any more does not make the store fill up.
func TestAKeeperGoesOnBehindASegmentThatIsLost(t *testing.T) {
	for _, which := range []int{0, 1} {
		synctest.Test(t, func(t *testing.T) {
			w, dir, infos := sealedFolder(t, 84)
			w.log.SetArchive(open(t, dir, w.log.ID()))
			if err := w.log.Trim(t.Context(), infos[2].Last); err != nil {
				t.Fatal(err)
			}
			if err := os.Remove(filepath.Join(dir, infos[which].Files[0].Name)); err != nil {
				t.Fatal(err)
			}
			a := open(t, dir, w.log.ID())
			keep(t, a, w, archive.KeeperOptions{Window: time.Nanosecond})
			w.writes(100)
			w.advance(time.Hour)
			pass(time.Minute)
			if _, second := inStore(w); second <= infos[len(infos)-1].Last || second <= a.Tip().Revision {
				t.Errorf("segment %d is lost: the store goes on at %d, sealed up to %d", which, second, a.Tip().Revision)
			}
			if len(a.Damaged()) != 1 {
				t.Errorf("damaged: %v", a.Damaged())
			}
		})
	}
}
