package host

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	goplugin "github.com/hashicorp/go-plugin"
	"golang.org/x/sys/unix"
)

// awaitExit waits until the child has exited. It does not reap the child, so that no other process gets its id.
func awaitExit(pid int) {
	for unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
	}
}

// startTime returns when a process started, in ticks since the system did. Together with the id it identifies a process.
func startTime(pid int) (string, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", err
	}
	// The second field is the name, which may contain spaces and parentheses.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 20 {
		return "", fmt.Errorf("/proc/%d/stat has %d fields", pid, len(fields)+2)
	}
	return string(fields[19]), nil
}

// strays returns the processes that the plugin of a folder started, even those that left its process group. It finds them
// by their environment.
func strays(folder string) []int {
	mark := []byte(goplugin.EnvUnixSocketDir + "=" + folder + string(filepath.Separator))
	environments, _ := filepath.Glob("/proc/[0-9]*/environ")
	var found []int
	for _, file := range environments {
		env, err := os.ReadFile(file)
		if err != nil || !bytes.HasPrefix(env, mark) && !bytes.Contains(env, append([]byte{0}, mark...)) {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file))); err == nil && pid != os.Getpid() {
			found = append(found, pid)
		}
	}
	return found
}
