package child_test

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// forbidden tries what a child must not do, and prints what it could do. Its files are one that it may read, one that it may not
// read, and the address of a server.
func forbidden(args []string) {
	allowed := args[0]
	other, address := filepath.Join(filepath.Dir(allowed), "other"), ""
	if text, err := os.ReadFile(allowed); err == nil {
		fmt.Println("it reads its file")
		address = string(text)
	}
	tries := map[string]func() error{
		"it reads another file":    func() error { _, err := os.ReadFile(other); return err },
		"it writes its file":       func() error { return os.WriteFile(allowed, nil, 0o600) },
		"it makes a file":          func() error { return os.WriteFile(other+"2", nil, 0o600) },
		"it removes a file":        func() error { return os.Remove(other) },
		"it lists a folder":        func() error { _, err := os.ReadDir("/"); return err },
		"it starts a program":      func() error { return exec.Command("/proc/self/exe", "child").Start() },
		"it reads its environment": func() error { _, err := os.ReadFile("/proc/self/environ"); return err },
		"it connects":              func() error { _, err := net.Dial("tcp", address); return err },
		"it listens":               func() error { _, err := net.Listen("tcp", "127.0.0.1:0"); return err }, // Multipath TCP, if it can
		"it sends packets":         func() error { _, err := net.Dial("udp", "127.0.0.1:53"); return err },
	}
	for what, try := range tries {
		done := make(chan error)
		go func() { done <- try() }() // on any thread
		if err := <-done; err == nil {
			fmt.Println(what)
		}
	}
	if on, _ := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0); on != 1 {
		fmt.Println("it can gain privileges")
	}
	var core unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_CORE, &core); err != nil || core.Max > 0 {
		fmt.Println("it leaves a core file")
	}
}

// What this process starts afterwards, for its user, is not restricted.
func TestOtherProgramsKeepTheirPrivileges(t *testing.T) {
	for range 20 {
		if _, err := run(t.Context(), limits, "echo", ""); err != nil {
			t.Fatal(err)
		}
		text, err := exec.Command("cat", "/proc/self/status").Output()
		if err != nil || !strings.Contains(string(text), "NoNewPrivs:\t0") {
			t.Fatalf("%v\n%s", err, text)
		}
	}
}
