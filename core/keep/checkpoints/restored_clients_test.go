package checkpoints_test

import (
	"context"
	"maps"
	"path/filepath"
	"testing"

	"stele.dev/stele/core/run/plane/planetest"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/backup"
	"stele.dev/stele/eventlog/backup/stores"
	"stele.dev/stele/eventlog/memlog"
)

// restore puts the log back to a backup, as on another machine, while no process runs.
func restore(s *planetest.Site, store stores.Store, m *backup.Manifest) {
	s.T.Helper()
	var restored memlog.Store
	dir := s.T.TempDir()
	_, err := backup.Restore(s.T.Context(), backup.RestoreOptions{
		Store: store, Manifest: m, Dir: dir, Marker: filepath.Join(dir, "restoring.json"),
		OpenStore: func(context.Context) (eventlog.Backend, error) { return restored.Open(nil), nil },
	})
	if err != nil {
		s.T.Fatal(err)
	}
	restored.Tamper(func(head []byte, batches []eventlog.Stored) ([]byte, []eventlog.Stored) {
		s.Store.Tamper(func([]byte, []eventlog.Stored) ([]byte, []eventlog.Stored) { return head, batches })
		return head, batches
	})
}

// An informer that has seen revisions which a restore lost lists again, and goes on from there.
func TestInformersListAgainAfterARestore(t *testing.T) {
	s := planetest.NewSite(t, 1)
	planetest.Fill(t, s.Replica, 3)
	store := stores.NewFolder(t.TempDir())
	m, err := backup.Create(t.Context(), backup.CreateOptions{Source: &backup.Local{Log: s.Log}, Store: store})
	if err != nil {
		t.Fatal(err)
	}
	informer := s.Informer("")
	s.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("lost", 1))
	for name := ""; name != "lost"; {
		name = <-informer.Added
	}
	lists := informer.Asked.Lists.Load()
	s.Crash()
	restore(s, store, m)
	s.Boot()
	s.Listen()
	s.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("new", 1))
	for name := ""; name != "new"; {
		name = <-informer.Added
	}
	want := s.Listed(planetest.WidgetsPath)
	planetest.WaitFor(t, func() bool { return maps.Equal(planetest.Contents(t, informer.GetStore()), want) })
	if _, still := want["lost"]; still || len(want) != 4 {
		t.Errorf("the server has %v", want)
	}
	// The first list is at the revision that is lost, and refused; the second one is at the newest.
	if n := informer.Asked.Lists.Load() - lists; n < 1 || n > 2 {
		t.Errorf("the informer has asked for %d lists more, want at most 2", n)
	}
	s.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("newer", 1))
	for name := ""; name != "newer"; {
		name = <-informer.Added
	}
}
