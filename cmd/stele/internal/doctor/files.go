package doctor

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// visit calls do for each file in a folder. Files that disappear meanwhile, and folders that cannot be read, are left
// out.
func visit(dir string, do func(fs.FileInfo)) {
	_ = filepath.WalkDir(dir, func(_ string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Type().IsRegular() {
			if info, err := entry.Info(); err == nil {
				do(info)
			}
		}
		return nil
	})
}

// sizeOf sums the sizes of the files in a folder, in bytes.
func sizeOf(dir string) (sum int64) {
	visit(dir, func(info fs.FileInfo) { sum += info.Size() })
	return sum
}

// newestFile returns when the newest file in a folder was written.
func newestFile(dir string) (newest time.Time) {
	visit(dir, func(info fs.FileInfo) {
		if info.ModTime().After(newest) {
			newest = info.ModTime()
		}
	})
	return newest
}

// size formats a number of bytes.
func size(n uint64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	value, unit := float64(n), 0
	for value >= 1024 && unit < len(units)-1 {
		value, unit = value/1024, unit+1
	}
	if unit == 0 {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.1f %s", value, units[unit])
}
