package durable

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Reserve allocates the blocks of a file up to a size, which may be beyond its end, and creates the file if it is missing. Its
// content and its length stay. The error is errors.ErrUnsupported if the file system cannot do it.
func Reserve(file string, size int64) error {
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, 0, size); err != nil {
		return fmt.Errorf("reserve %d bytes for %s: %w", size, file, err)
	}
	return nil
}
