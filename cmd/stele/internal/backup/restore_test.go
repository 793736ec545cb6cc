package backup_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A restore into a folder that has files is refused, and leaves nothing in it.
func TestARestoreIntoAFolderThatIsNotEmptyChangesNothing(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "letter.txt"), []byte("hello"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := try(t, "restore", filepath.Join(golden, "batches"), "--data-dir", dir)
	if err == nil || !strings.Contains(err.Error(), "is not empty: it has letter.txt") {
		t.Errorf("%v", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("the folder has %v, %v", entries, err)
	}
}

// --all reads every backup of a place, and names what is wrong in those that are not the newest.
func TestAllBackupsOfAPlaceAreVerified(t *testing.T) {
	place := t.TempDir()
	if err := os.CopyFS(place, os.DirFS(filepath.Join(golden, "batches"))); err != nil {
		t.Fatal(err)
	}
	said, err := try(t, "verify", place, "--all")
	if err != nil || strings.Count(said, "is whole") != 2 {
		t.Errorf("%v: %s", err, said)
	}
	manifests, err := filepath.Glob(filepath.Join(place, "*", "backups", "*.json"))
	if err != nil || len(manifests) != 2 {
		t.Fatal(manifests, err)
	}
	text, err := os.ReadFile(manifests[0]) // the older one
	if err == nil {
		text[len(text)/2] ^= 1
		err = os.WriteFile(manifests[0], text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := try(t, "verify", place); err != nil {
		t.Errorf("the newest: %v", err)
	}
	said, err = try(t, "verify", place, "--all")
	if err == nil || !strings.Contains(said, filepath.Base(manifests[0])) || strings.Count(said, "is whole") != 1 {
		t.Errorf("%v: %s", err, said)
	}
}
