package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
)

// A server whose program was replaced by another version goes on with its own until it is started again: what compiles
// a policy is the same program that enforces it.
func TestAServerCompilesWithItsOwnProgramAfterAnUpgrade(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("elsewhere a program is known by its file alone")
	}
	installed, err := exec.LookPath("stele")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	program := filepath.Join(dir, "bin", "stele")
	if err := errors.Join(os.Mkdir(filepath.Dir(program), 0o700), copyProgram(installed, program)); err != nil {
		t.Fatal(err)
	}
	server, err := serveProcess(program, dir, os.Environ())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.end(syscall.SIGKILL) })
	if err := server.await(); err != nil {
		t.Fatal(err)
	}
	next := program + ".next"
	if err := errors.Join(os.WriteFile(next, []byte("#!/bin/sh\nexit 1\n"), 0o700), os.Rename(next, program)); err != nil {
		t.Fatal(err)
	}
	push := exec.Command(installed, "policy", "push", "--rename", "--skip-plan", filepath.Join("..", "..", "examples", "platform", "clusters", "prod-eu"))
	push.Env = append(os.Environ(), "KUBECONFIG="+filepath.Join(dir, "stele-data", "admin.kubeconfig"))
	if out, err := push.CombinedOutput(); err != nil || !strings.Contains(string(out), "is in force since revision") {
		t.Errorf("a push says %s, %v", out, err)
	}
}
