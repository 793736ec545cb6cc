package child

import (
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// auditArch are the architectures of which system calls are known, as seccomp names them.
var auditArch = map[string]uint32{"amd64": unix.AUDIT_ARCH_X86_64, "arm64": unix.AUDIT_ARCH_AARCH64}

// The answers of a filter, and where it finds what is called: see seccomp(2).
const (
	seccompAllow  = 0x7fff0000
	seccompRefuse = 0x00050000 | uint32(unix.EACCES)
	offsetNumber  = 0
	offsetArch    = 4
	x32Bit        = 0x40000000
)

// refuseSockets makes the kernel refuse new sockets to all threads of this process. Landlock alone does not: its rules for TCP are not
// about Multipath TCP and UDP. Without seccomp in the kernel, or on an architecture that is not known here, it does nothing.
func refuseSockets() error {
	arch, known := auditArch[runtime.GOARCH]
	if !known {
		return nil
	}
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offsetArch},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: arch, Jt: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: seccompRefuse}, // calls of another architecture
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offsetNumber},
		{Code: unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K, K: x32Bit, Jt: 2},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_SOCKET, Jt: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: seccompAllow},
		{Code: unix.BPF_RET | unix.BPF_K, K: seccompRefuse},
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	thread, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&program)))
	runtime.KeepAlive(filter)
	switch {
	case errno == unix.ENOSYS, errno == unix.EINVAL:
		return nil
	case errno == 0 && thread != 0:
		return fmt.Errorf("seccomp: thread %d has another filter", thread)
	case errno == 0:
		return nil
	}
	return os.NewSyscallError("seccomp", errno)
}
