package core_test

import (
	"context"
	"maps"
	"path/filepath"
	"testing"

	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/backup"
	"stele.dev/stele/eventlog/backup/stores"
	"stele.dev/stele/eventlog/memlog"
)

// restore puts the log back to a backup, as on another machine, while no process runs.
func (s *site) restore(store stores.Store, m *backup.Manifest) {
	s.t.Helper()
	var restored memlog.Store
	dir := s.t.TempDir()
	_, err := backup.Restore(s.t.Context(), backup.RestoreOptions{
		Store: store, Manifest: m, Dir: dir, Marker: filepath.Join(dir, "restoring.json"),
		OpenStore: func(context.Context) (eventlog.Backend, error) { return restored.Open(nil), nil },
	})
	if err != nil {
		s.t.Fatal(err)
	}
	restored.Tamper(func(head []byte, batches []eventlog.Stored) ([]byte, []eventlog.Stored) {
		s.store.Tamper(func([]byte, []eventlog.Stored) ([]byte, []eventlog.Stored) { return head, batches })
		return head, batches
	})
}

// An informer that has seen revisions which a restore lost lists again, and goes on from there.
func TestInformersListAgainAfterARestore(t *testing.T) {
	s := newSite(t, 1)
	fill(t, s.replica, 3)
	store := stores.NewFolder(t.TempDir())
	m, err := backup.Create(t.Context(), backup.CreateOptions{Source: &backup.Local{Log: s.log}, Store: store})
	if err != nil {
		t.Fatal(err)
	}
	informer := s.informer("")
	s.must(t, 201, "POST", widgetsPath, widget("lost", 1))
	for name := ""; name != "lost"; {
		name = <-informer.added
	}
	lists := informer.asked.lists.Load()
	s.crash()
	s.restore(store, m)
	s.boot()
	s.listen()
	s.must(t, 201, "POST", widgetsPath, widget("new", 1))
	for name := ""; name != "new"; {
		name = <-informer.added
	}
	want := s.listed(widgetsPath)
	waitFor(t, func() bool { return maps.Equal(contents(t, informer.GetStore()), want) })
	if _, still := want["lost"]; still || len(want) != 4 {
		t.Errorf("the server has %v", want)
	}
	// The first list is at the revision that is lost, and refused; the second one is at the newest.
	if n := informer.asked.lists.Load() - lists; n < 1 || n > 2 {
		t.Errorf("the informer has asked for %d lists more, want at most 2", n)
	}
	s.must(t, 201, "POST", widgetsPath, widget("newer", 1))
	for name := ""; name != "newer"; {
		name = <-informer.added
	}
}
