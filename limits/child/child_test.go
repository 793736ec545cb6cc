package child_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"stele.dev/stele/limits/child"
)

// The test binary is the child as well.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "child" {
		if err := child.Confine(os.Args[3:]...); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		behave(os.Args[2])
		return
	}
	if len(os.Args) > 2 && os.Args[1] == "parent" {
		parent(os.Args[2])
		return
	}
	os.Exit(m.Run())
}

var hoard [][]byte

func behave(how string) {
	switch how {
	case "echo":
		_, _ = io.Copy(os.Stdout, os.Stdin)
	case "spin":
		for {
			hoard = nil
		}
	case "sleep":
		time.Sleep(time.Hour)
	case "hoard":
		for {
			b := make([]byte, 16<<20)
			for i := range b {
				b[i] = 1
			}
			hoard = append(hoard, b)
		}
	case "recur":
		var recur func(int) int
		recur = func(n int) int { return recur(n+1) + 1 }
		recur(0)
	case "flood":
		for {
			_, _ = os.Stdout.Write(make([]byte, 1<<16))
		}
	case "panic":
		panic("it is broken")
	case "forbidden":
		forbidden(os.Args[3:])
	case "environment":
		fmt.Print(strings.Join(os.Environ(), "\n"))
	}
}

var limits = child.Limits{CPU: 20 * time.Second, Wall: time.Minute, Memory: 256 << 20, Output: 1 << 20}

func run(ctx context.Context, l child.Limits, how, input string, files ...string) (output string, err error) {
	err = child.Run(ctx, l, append([]string{"child", how}, files...), func(w io.Writer) error {
		_, err := io.WriteString(w, input)
		return err
	}, func(r io.Reader) error {
		text, err := io.ReadAll(r)
		output = string(text)
		return err
	})
	return output, err
}

func TestAChildAnswers(t *testing.T) {
	input := strings.Repeat("text", 100_000)
	if got, err := run(t.Context(), limits, "echo", input); err != nil || got != input {
		t.Errorf("of %d bytes %d come back, %v", len(input), len(got), err)
	}
	t.Setenv("SECRET", "x")
	if got, err := run(t.Context(), limits, "environment", ""); err != nil || strings.Contains(got, "SECRET") {
		t.Errorf("a child has the environment %s, %v", got, err)
	}
}

// Whatever a child does, its end says why, and whether it may be tried again.
func TestWhatEndsAChildIsSaid(t *testing.T) {
	for _, c := range []struct {
		how, says string
		limit     child.Limit
		change    func(*child.Limits)
	}{
		{"spin", "it takes more than 1s of processor time", child.CPU, func(l *child.Limits) { l.CPU = time.Second }},
		{"hoard", "it takes more than 256 MiB of memory", child.Memory, func(*child.Limits) {}},
		{"recur", "it recurs too deeply", child.Stack, func(l *child.Limits) { l.Memory = 4 << 30 }},
		{"flood", "the result is larger than 1 MiB", child.Output, func(*child.Limits) {}},
		{"panic", "panic: it is broken", 0, func(*child.Limits) {}},
	} {
		t.Run(c.how, func(t *testing.T) {
			if runtime.GOOS != "linux" && c.limit == child.Memory {
				t.Skip("there is no limit")
			}
			l := limits
			c.change(&l)
			_, err := run(t.Context(), l, c.how, "input that is not read")
			var failure *child.Failure
			if !errors.As(err, &failure) || failure.Why != c.says || failure.Limit != c.limit {
				t.Errorf("it says %#v", err)
			}
		})
	}
}

func TestAChildThatGetsNoProcessorIsStarved(t *testing.T) {
	l := limits
	l.Wall = 300 * time.Millisecond
	_, err := run(t.Context(), l, "sleep", "")
	var starved *child.Starved
	if !errors.As(err, &starved) || !strings.Contains(err.Error(), "the machine is too busy") {
		t.Errorf("it says %v", err)
	}
}

func TestWhoDoesNotWaitEndsTheChild(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := run(ctx, limits, "sleep", ""); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("it says %v", err)
	}
}

// parent runs a child each time that a byte comes in.
func parent(how string) {
	for b := make([]byte, 1); ; {
		if _, err := os.Stdin.Read(b); err != nil {
			return
		}
		got, err := run(context.Background(), limits, how, "still the same")
		fmt.Println(got, err)
	}
}

// After an upgrade of its file a program still runs itself, not what stands there now.
func TestAProgramThatWasReplacedRunsItself(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("elsewhere the file is all there is")
	}
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(file, self, 0o700); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(file, "parent", "echo")
	in, _ := cmd.StdinPipe()
	out, _ := cmd.StdoutPipe()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	if err := errors.Join(os.WriteFile(file+".new", []byte("#!/bin/sh\necho another version\n"), 0o700), os.Rename(file+".new", file)); err != nil {
		t.Fatal(err)
	}
	_, _ = in.Write([]byte("x"))
	in.Close()
	if got, _ := io.ReadAll(out); string(got) != "still the same <nil>\n" {
		t.Errorf("it says %q", got)
	}
}
