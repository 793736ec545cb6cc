package history_test

import (
	"os"
	"testing"
)

// filesOf returns the names of the files in a folder that are not empty.
func filesOf(t testing.TB, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if info, err := e.Info(); err != nil {
			t.Fatal(err)
		} else if info.Size() > 0 {
			names = append(names, e.Name())
		}
	}
	return names
}
