package archive

import (
	"os"

	"golang.org/x/sys/unix"
)

// forget asks the system to drop a synced file from its cache.
func forget(f *os.File) { unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED) }
