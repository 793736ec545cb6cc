//go:build unix

package connections

import "syscall"

// openFiles returns how many files this process may have open; 0 if that is not known.
func openFiles() uint64 {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil {
		return 0
	}
	return uint64(limit.Cur) // a signed number on some systems
}
