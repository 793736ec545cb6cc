//go:build unix

package etcdlog

import "golang.org/x/sys/unix"

// freeBytes returns the free space on dir's disk for ordinary users.
func freeBytes(dir string) (uint64, error) {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return 0, err
	}
	return fs.Bavail * uint64(fs.Bsize), nil
}
