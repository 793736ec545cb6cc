package calls

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// IsWorker reports whether this process shall be a worker.
func IsWorker() bool { return os.Getenv(workerVariable) != "" }

// Work runs calls, one after the other, until the pool ends. A call's command has the arguments, the environment, the folder
// and the standard files of its caller; run returns its exit code.
func Work(run func() int) error {
	conn, err := net.FileConn(os.NewFile(3, "pool"))
	if err != nil {
		return err
	}
	syscall.CloseOnExec(3)
	nothing, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	for {
		c, files, err := receiveCall(conn.(*net.UnixConn))
		if err != nil {
			return nil // the pool is gone
		}
		if err := become(c, files); err != nil {
			return err
		}
		code := run()
		for n := range 3 {
			if err := unix.Dup2(int(nothing.Fd()), n); err != nil {
				return err
			}
		}
		if err := json.NewEncoder(conn).Encode(answer{Code: code}); err != nil {
			return err
		}
	}
}

// become makes this process look like that of a caller.
func become(c call, files []int) error {
	for n, file := range files {
		if err := unix.Dup2(file, n); err != nil {
			return err
		}
		if err := syscall.Close(file); err != nil {
			return err
		}
	}
	os.Args = c.Args
	os.Clearenv()
	for _, variable := range c.Env {
		name, value, _ := strings.Cut(variable, "=")
		if err := os.Setenv(name, value); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return os.Chdir(c.Dir)
}
