package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime/pprof"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// scriptLimit is how long a script may take. The longest takes a tenth of it on two slow processors.
const scriptLimit = 8 * time.Minute

// limitScript ends all processes of a script that takes too long, so that the script fails, and its name and the stacks of its server
// and workers are known. testscript itself ends only the processes that it has started, and waits for those that these started.
func limitScript(e *testscript.Env, server **process) {
	timer := time.AfterFunc(scriptLimit, func() {
		fmt.Fprintf(os.Stderr, "%s: the script takes longer than %v; its processes are ended\n", filepath.Base(e.WorkDir), scriptLimit)
		_ = pprof.Lookup("goroutine").WriteTo(os.Stderr, 1)
		if p := *server; p != nil {
			_ = p.Process.Signal(syscall.SIGQUIT)
			time.Sleep(time.Second) // in which it prints its stacks
			fmt.Fprintf(os.Stderr, "its server:\n%s\n", p.stderr.String())
		}
		for _, signal := range []syscall.Signal{syscall.SIGQUIT, syscall.SIGKILL} {
			for pid, command := range processesOf(e.WorkDir) {
				fmt.Fprintf(os.Stderr, "%v to %d: %s\n", signal, pid, command)
				_ = syscall.Kill(pid, signal)
			}
			time.Sleep(time.Second)
		}
	})
	e.Defer(func() { timer.Stop() })
}

// processesOf returns the commands that have a script's folder in their environment, by process.
func processesOf(work string) map[int]string {
	found := map[int]string{}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		environ, err := os.ReadFile(filepath.Join("/proc", entry.Name(), "environ"))
		if err != nil || !bytes.Contains(environ, []byte("WORK="+work+"\x00")) {
			continue
		}
		command, _ := os.ReadFile(filepath.Join("/proc", entry.Name(), "cmdline"))
		found[pid] = strings.ReplaceAll(string(command), "\x00", " ")
	}
	return found
}
