package durable_test

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"stele.dev/stele/limits/durable"
)

func TestAFileIsReplacedWhollyOrNotAtAll(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	if err := durable.MakeFolder(dir); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "file")
	write := func(text string, failed error) error {
		return durable.WriteFile(file, func(w io.Writer) error {
			_, err := io.WriteString(w, text)
			return errors.Join(err, failed)
		})
	}
	if err := write("first", nil); err != nil {
		t.Fatal(err)
	}
	failed := errors.New("half of it")
	if err := write("sec", failed); !errors.Is(err, failed) {
		t.Errorf("a file that cannot be written: %v, want %v", err, failed)
	}
	if text, err := os.ReadFile(file); string(text) != "first" {
		t.Errorf("the file has %q, %v, want what it had before the failure", text, err)
	}
	if left, err := os.ReadDir(dir); len(left) != 1 {
		t.Errorf("the folder has %v, %v, want one file", left, err)
	}
}

func TestFilesAndFoldersAreForTheirOwnerAlone(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a")
	file := filepath.Join(dir, "file")
	if err := durable.MakeFolder(dir); err != nil {
		t.Fatal(err)
	}
	if err := durable.WriteFile(file, func(io.Writer) error { return nil }); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]fs.FileMode{dir: 0o700, file: 0o600} {
		if info, err := os.Stat(name); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v, want %v", name, info, err, want)
		}
	}
}
