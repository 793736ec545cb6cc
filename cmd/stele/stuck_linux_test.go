package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// scriptLimit is how long a script may take. The longest takes a tenth of it on two slow processors.
const scriptLimit = 8 * time.Minute

// limitScript ends all processes of a script that takes too long, so that the script fails, and its name and the stacks of its server
// and workers are known. testscript itself ends only the processes that it has started, and waits for those that these started.
func limitScript(t *testing.T, e *testscript.Env, server **process) {
	ended, told := make(chan struct{}), make(chan struct{})
	timer := time.AfterFunc(scriptLimit, func() {
		defer close(told)
		t.Errorf("%s takes longer than %v; its processes are ended", filepath.Base(e.WorkDir), scriptLimit)
		for pid, command := range processesOf(e.WorkDir) {
			fmt.Fprintf(os.Stderr, "process %d: %s\n", pid, command)
		}
		if p := *server; p != nil {
			_ = p.Process.Signal(syscall.SIGQUIT)
			time.Sleep(time.Second) // in which it prints its stacks
			fmt.Fprintf(os.Stderr, "its server:\n%s\n", p.stderr.String())
		}
		for _, signal := range []syscall.Signal{syscall.SIGQUIT, syscall.SIGKILL} {
			for pid := range processesOf(e.WorkDir) {
				_ = syscall.Kill(pid, signal)
			}
			time.Sleep(time.Second)
		}
		select {
		case <-ended:
		case <-time.After(time.Minute):
			debug.SetTraceback("all")
			panic(fmt.Sprintf("%s does not end without its processes", filepath.Base(e.WorkDir)))
		}
	})
	e.Defer(func() {
		close(ended)
		if !timer.Stop() {
			<-told
		}
	})
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
