package etcdlog_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// The database has blocks of the disk for what it will be soon.
func TestTheDatabaseHasItsBlocks(t *testing.T) {
	dir := t.TempDir()
	small(t, dir, 0)
	info, err := os.Stat(filepath.Join(dir, "member", "snap", "db"))
	if err != nil {
		t.Fatal(err)
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		t.Fatalf("%T", info.Sys())
	}
	if blocks := stat.Blocks * 512; blocks < info.Size()+32<<20 {
		t.Errorf("the database of %d bytes has %d bytes of the disk", info.Size(), blocks)
	}
}
