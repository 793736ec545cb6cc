package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
)

// ticksPerSecond is USER_HZ of Linux.
const ticksPerSecond = 100

// usage is what the processes of a server have used so far.
type usage struct{ cpu, resident, peak float64 } // seconds, MiB, MiB

func usageOf(pids []int) (sum usage, err error) {
	for _, pid := range pids {
		dir := filepath.Join("/proc", strconv.Itoa(pid))
		text, err := os.ReadFile(filepath.Join(dir, "stat"))
		if err != nil {
			return sum, err
		}
		ticks, err := parseStat(string(text))
		if err != nil {
			return sum, err
		}
		sum.cpu += ticks / ticksPerSecond
		if text, err = os.ReadFile(filepath.Join(dir, "status")); err != nil {
			return sum, err
		}
		for line := range strings.Lines(string(text)) {
			var kib float64
			if n, _ := fmt.Sscanf(line, "VmRSS: %g", &kib); n == 1 {
				sum.resident += kib / 1024
			}
			if n, _ := fmt.Sscanf(line, "VmHWM: %g", &kib); n == 1 {
				sum.peak += kib / 1024
			}
		}
	}
	return sum, nil
}

// parseStat returns user and system time of /proc/PID/stat in ticks: fields 14 and 15 of proc(5). The name of the program, in
// parentheses, may have any characters.
func parseStat(text string) (float64, error) {
	fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	if len(fields) < 13 {
		return 0, fmt.Errorf("%q is no line of /proc/PID/stat", text)
	}
	user, err := strconv.ParseFloat(fields[11], 64)
	if err != nil {
		return 0, err
	}
	system, err := strconv.ParseFloat(fields[12], 64)
	return user + system, err
}

// perfWorks reports whether perf can count instructions here.
func perfWorks(ctx context.Context) bool {
	var out bytes.Buffer
	c := exec.CommandContext(ctx, "perf", "stat", "-x,", "-e", "instructions:u", "true")
	c.Stderr = &out
	if c.Run() != nil {
		return false
	}
	_, err := parsePerf(out.String())
	return err == nil
}

// countInstructions counts instructions of processes until stop is called.
func countInstructions(pids []int) (stop func() (float64, error), err error) {
	var list []string
	for _, pid := range pids {
		list = append(list, strconv.Itoa(pid))
	}
	var out bytes.Buffer
	c := exec.Command("perf", "stat", "-x,", "-e", "instructions:u", "-p", strings.Join(list, ","))
	c.Stderr = &out
	if err := c.Start(); err != nil {
		return nil, err
	}
	return func() (float64, error) {
		_ = c.Process.Signal(syscall.SIGINT)
		_ = c.Wait() // it ends by the signal
		return parsePerf(out.String())
	}, nil
}

// parsePerf reads the output of perf stat -x,.
func parsePerf(text string) (float64, error) {
	for line := range strings.Lines(text) {
		if fields := strings.Split(line, ","); len(fields) > 2 && strings.HasPrefix(fields[2], "instructions") {
			return strconv.ParseFloat(fields[0], 64)
		}
	}
	return 0, fmt.Errorf("perf counted no instructions: %s", text)
}

// machine describes this machine in a few words.
func machine() string {
	model := "unknown processor"
	text, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(text)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "model name" {
			model = strings.TrimSpace(value)
			break
		}
	}
	return fmt.Sprintf("%d cores (%s), shared by server, etcd and clients", runtime.NumCPU(), model)
}
