package child

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ForgoPrivileges makes the programs that this thread starts from now on, and all that these start, unable to gain privileges by
// set-user-ID files or file capabilities. It cannot be undone, so the caller MUST be locked to its thread and never unlock it.
// It has no effect on systems other than Linux.
func ForgoPrivileges() { _ = unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }

// fileAccess has the kinds of access to files that each version of Landlock added, by the bits of the kernel.
var fileAccess = [...]uint64{1: 1<<13 - 1, 2: unix.LANDLOCK_ACCESS_FS_REFER, 3: unix.LANDLOCK_ACCESS_FS_TRUNCATE, 5: unix.LANDLOCK_ACCESS_FS_IOCTL_DEV}

// The versions of Landlock that added rules for TCP, and for abstract Unix sockets.
const (
	tcpVersion      = 4
	abstractVersion = 6
)

// landlockVersion returns the version of Landlock in the kernel.
func landlockVersion() (version int, err error) {
	v, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		return 0, fmt.Errorf("the kernel has no Landlock: %w", errno)
	}
	return int(v), nil
}

// Unconfined returns why children can open files and start programs, nil if they cannot: see [Sandbox].
func Unconfined() error {
	// A rule set holds for one thread. The call for all threads is not available in a program with cgo. It ends the process if its
	// results differ between threads, so it is tried with one that is the same for all.
	if _, _, errno := syscall.AllThreadsSyscall(unix.SYS_GETPID, 0, 0, 0); errno == unix.ENOTSUP {
		return errors.New("the program was built with cgo, so that it cannot use Landlock: build it with CGO_ENABLED=0")
	}
	_, err := landlockVersion()
	return err
}

// Sandbox takes from this process what a child does not need: it can open no files but those that it is given, for reading,
// start no programs, and open no sockets. What is open stays open. If [Unconfined] returns an error, it can open files and start
// programs. The parent must have called [ForgoPrivileges].
func Sandbox(files ...string) error {
	if err := refuseSockets(); err != nil {
		return err
	}
	version, err := landlockVersion()
	if err != nil {
		return nil
	}
	rules := unix.LandlockRulesetAttr{}
	for v, access := range fileAccess {
		if v <= version {
			rules.Handled_access_fs |= access
		}
	}
	if version >= tcpVersion {
		rules.Handled_access_net = unix.LANDLOCK_ACCESS_NET_BIND_TCP | unix.LANDLOCK_ACCESS_NET_CONNECT_TCP
	}
	if version >= abstractVersion {
		rules.Scoped = unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET
	}
	set, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&rules)), unsafe.Sizeof(rules), 0)
	if errno != 0 {
		return os.NewSyscallError("landlock_create_ruleset", errno)
	}
	defer unix.Close(int(set))
	for _, file := range files {
		if err := allowReading(int(set), file); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
	// The kernel requires that the process has forgone privileges. Children of this package have, see ForgoPrivileges.
	switch _, _, errno := syscall.AllThreadsSyscall(unix.SYS_LANDLOCK_RESTRICT_SELF, set, 0, 0); errno {
	case 0, unix.ENOTSUP: // the latter if the program was built with cgo
		return nil
	default:
		return os.NewSyscallError("landlock_restrict_self", errno)
	}
}

func allowReading(set int, file string) error {
	fd, err := unix.Open(file, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	rule := unix.LandlockPathBeneathAttr{Allowed_access: unix.LANDLOCK_ACCESS_FS_READ_FILE, Parent_fd: int32(fd)}
	if _, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(set), unix.LANDLOCK_RULE_PATH_BENEATH, uintptr(unsafe.Pointer(&rule)), 0, 0, 0); errno != 0 {
		return os.NewSyscallError("landlock_add_rule", errno)
	}
	return nil
}
